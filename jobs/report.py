"""`python -m jobs report`: where a run's time went, every minute of it, and what each interruption cost."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from jobs.columns import aligned
from jobs.errors import UsageError
from jobs.log_records import SupervisorEvent
from jobs.run_account import Interruption, RunAccount, account_for
from jobs.run_progress import format_duration
from jobs.run_record import fetch_run_record
from jobs.stack_outputs import add_stack_argument, read_stack_outputs
from jobs.supervisor_events import read_event_file


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("report", help="account for every minute of the run: goodput, losses, waits")
    source = parser.add_mutually_exclusive_group(required=True)
    add_stack_argument(source, required=False)
    source.add_argument("--file", metavar="EVENTS", type=Path, help="a copy of a run's supervisor/events.jsonl")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the account.

    Raises:
        UsageError: the stack or the file cannot be read, or holds no event.
        HeadExecError: no way to the head.
    """
    events = _read_file(args.file) if args.file else fetch_run_record(read_stack_outputs(args.stack).on_head)
    if not events:
        raise UsageError(
            f"{args.file or f'The run of stack {args.stack}'} has no event yet, so there is nothing to account for. "
            "A run writes its first one when its supervisor starts: python -m jobs watch"
        )
    account = account_for(events)
    print("\n".join(describe(account)))
    return 0


def _read_file(path: Path) -> list[SupervisorEvent]:
    try:
        with path.open("rb") as lines:
            return list(read_event_file(lines))
    except OSError as error:
        raise UsageError(
            f"The record {path} cannot be read ({error.strerror}). It lies at <run directory>/supervisor/events.jsonl"
        ) from error


def summarize(account: RunAccount) -> str:
    """State the goodput in one line."""
    goodput = "-" if account.goodput is None else f"{account.goodput:.1%}"
    return (
        f"goodput: {goodput} of {format_duration(account.wall_s)}; {len(account.interruptions)} interruptions, "
        f"{account.steps_lost} steps lost, {format_duration(account.waited_s)} of waiting for nodes"
    )


def describe(account: RunAccount) -> Iterator[str]:
    """State the whole account, line by line; the parts add up to the wall time."""
    yield summarize(account)
    yield (
        f"{account.outcome or 'not ended'}: {account.steps_kept} steps kept, trainer started {account.starts} times "
        f"in {account.submissions} Ray jobs"
    )
    for what, seconds in (
        ("steps that were kept", account.training_s),
        ("saves that held them up", account.saving_s),
        ("steps that were lost, and those under way", account.lost_s),
        ("waiting for nodes", account.waited_s),
        ("waiting for another supervisor's lease", account.lease_s),
        ("starting and ending the trainer", account.setup_s),
        ("no supervisor", account.unsupervised_s),
    ):
        share = seconds / account.wall_s if account.wall_s else 0.0
        yield f"{share:7.1%}  {format_duration(seconds):>12}  {what}"
    if account.interruptions:
        yield ""
        yield from aligned(list(_interruption_rows(account)))


def _interruption_rows(account: RunAccount) -> Iterator[tuple[str, ...]]:
    yield "interruption", "at (UTC)", "after step", "steps lost", "lost", "waited", "set-up", "no supervisor"
    for interruption in account.interruptions:
        spent = interruption.lost_s, interruption.waited_s, interruption.setup_s, interruption.unsupervised_s
        yield (
            _kind(interruption),
            datetime.fromtimestamp(interruption.at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S"),
            str(interruption.step),
            str(interruption.steps_lost),
            *map(format_duration, spent),
        )


def _kind(interruption: Interruption) -> str:
    return f"{interruption.kind} ({interruption.reason})" if interruption.reason else str(interruption.kind)
