"""`python -m jobs logs`: what the job has written, supervisor and trainer."""

import argparse
import sys

from jobs.log_follower import LogFollower, follow_to_the_end
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import add_stack_argument, read_stack_outputs


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("logs", help="print the job's log")
    add_stack_argument(parser, required=True)
    parser.add_argument("--follow", action="store_true", help="go on until the job ends; then exit as watch does")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the log on standard output; with `--follow`, returns 0 only if the job succeeded.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
    """
    if args.follow:
        job = follow_to_the_end(args.stack, LogFollower(write_through))
        return 0 if job.status == "SUCCEEDED" else 1
    outputs = read_stack_outputs(args.stack)
    with open_stack_dashboard(outputs) as dashboard:
        write_through(dashboard.logs(outputs.job.submission_id))
    return 0


def write_through(text: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
