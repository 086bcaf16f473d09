"""`python -m jobs wait`: for scripts: silent until the job has ended, then one line, and its fate as exit code.

| exit code | meaning |
|---|---|
| 0 | SUCCEEDED |
| 1 | FAILED or STOPPED, or the job cannot be asked |
| 2 | the stack cannot be read |
| 124 | not ended within `--timeout-s`, as timeout(1) has it; the job goes on |
"""

import argparse
import sys

from jobs.errors import WaitTimeout
from jobs.log_follower import follow_to_the_end
from jobs.stack_outputs import add_stack_argument

EXIT_TIMEOUT = 124


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("wait", help="wait for the job's end in silence; exit codes as watch, 124 if late")
    add_stack_argument(parser, required=True)
    parser.add_argument("--timeout-s", metavar="N", type=float, help="seconds to wait; as long as it takes if left out")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Wait, then print one line.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
    """
    try:
        job = follow_to_the_end(args.stack, None, timeout_s=args.timeout_s)
    except WaitTimeout as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_TIMEOUT
    print(f"{job.submission_id}: {job.status}")
    return 0 if job.status == "SUCCEEDED" else 1
