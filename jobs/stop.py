"""`python -m jobs stop`: stops the job now; what was trained since the newest checkpoint is lost."""

import argparse

from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import read_stack_outputs
from jobs.waiting import wait_until

_TIMEOUT_S = 60.0
_EVERY_S = 1.0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("stop", help="stop the job now; `up` resumes it from its newest checkpoint")
    parser.add_argument("--stack", metavar="STACK", required=True, help="the stack whose job it is")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Stop the job and wait until it has ended; one that has ended already stays as it is.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
        WaitTimeout: the job goes on.
    """
    outputs = read_stack_outputs(args.stack)
    submission_id = outputs.job.submission_id
    with open_stack_dashboard(outputs) as dashboard:
        dashboard.stop(submission_id)
        job = wait_until(
            lambda: dashboard.get_final(submission_id),
            timeout_s=_TIMEOUT_S,
            every_s=_EVERY_S,
            doing=f"Ray job {submission_id} to stop",
        )
    print(f"{submission_id}: {job.status}. `refresh` and `up` submit it again, from its newest checkpoint")
    return 0
