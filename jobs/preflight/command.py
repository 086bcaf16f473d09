"""`python -m jobs preflight`: whether a stack can come up, before anything is paid for.

It reads and changes nothing. Google's libraries are imported only when it runs.
"""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from jobs.errors import GoogleCredentialsError
from jobs.stack_file import read_stack

if TYPE_CHECKING:
    from components.config import StackConfig
    from jobs.preflight.google_apis import GoogleApis
    from jobs.preflight.report import Report, Run


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("preflight", help="ask Google Cloud, read-only, whether the stack can come up")
    parser.add_argument("--stack", metavar="STACK", required=True, help="look at Pulumi.STACK.yaml in this directory")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found; the exit code is 1 if anything fails.

    Raises:
        UsageError: the stack's file cannot be read.
        ConfigError: the config cannot be used.
    """
    # Google's libraries take a second to import, which no other command needs.
    from jobs.preflight.findings import Status  # noqa: PLC0415

    report = examine(read_stack(args.stack), stack=args.stack)
    print(report.to_json() if args.json else report.to_text())
    return int(report.result is Status.FAIL)


def connect(project_id: str) -> "GoogleApis":
    """Open the way to Google's APIs with Application Default Credentials.

    Raises:
        GoogleCredentialsError: there are none that Google takes.
    """
    from jobs.preflight.google_apis import GoogleApis, default_credentials  # noqa: PLC0415

    return GoogleApis(credentials=default_credentials(project_id))


def examine(config: "StackConfig", *, stack: str) -> "Report":
    """Run every check; those that ask Google only with credentials."""
    from jobs.preflight.checks import CHECKS  # noqa: PLC0415
    from jobs.preflight.engine import Engine  # noqa: PLC0415
    from jobs.preflight.findings import Subject, fail, ok  # noqa: PLC0415
    from jobs.preflight.hub import check_model_access  # noqa: PLC0415
    from jobs.preflight.report import collect  # noqa: PLC0415

    engine = Engine(stack=stack)
    checks: dict[str, Run] = {}
    try:
        google = connect(config.project.project_id)
    except GoogleCredentialsError as error:
        no_credentials = fail(str(error), error.remedy)
        checks["credentials"] = lambda: iter([no_credentials])
    else:
        checks["credentials"] = lambda: iter([ok("Google takes the Application Default Credentials")])
        subject = Subject(config=config, google=google, engine=engine)
        checks.update({name: partial(check, subject) for name, check in CHECKS.items()})
    checks["model access"] = partial(check_model_access, config, engine)
    return collect(config.stack, checks, project_id=config.project.project_id)
