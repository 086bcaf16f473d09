"""`python -m jobs logs`: what the job has written, supervisor and trainer."""

import argparse
import sys

from jobs.log_follower import follow_to_the_end
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import read_stack_outputs


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("logs", help="print the job's log")
    parser.add_argument("--stack", metavar="STACK", required=True, help="the stack whose job it is")
    parser.add_argument("--follow", action="store_true", help="go on until the job ends; then exit as watch does")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the log on standard output; with `--follow`, returns 0 only if the job succeeded.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
    """
    outputs = read_stack_outputs(args.stack)
    if args.follow:
        job = follow_to_the_end(outputs, _write, on_connected=lambda _: None)
        return 0 if job.status == "SUCCEEDED" else 1
    with open_stack_dashboard(outputs) as dashboard:
        _write(dashboard.logs(outputs.job.submission_id))
    return 0


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
