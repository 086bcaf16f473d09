"""`python -m jobs watch`: follows a run to its end, says how it went, and exits with the job's fate."""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.log_follower import LogFollower, follow_to_the_end
from jobs.log_parser import LogParser
from jobs.log_records import JobEnded, Record, SupervisorEvent, to_json
from jobs.log_summary import LogSummary
from jobs.report import summarize
from jobs.run_progress import WINDOW_STEPS, RunProgress, format_bytes, format_duration, format_kept, format_reward
from jobs.stack_outputs import add_stack_argument

if TYPE_CHECKING:
    from jobs.dashboard import Job


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("watch", help="follow the job to its end; exit code 0 only if it succeeded")
    add_stack_argument(parser, required=True)
    parser.add_argument("--json", action="store_true", help="one JSON record a line, as `events` prints them")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Follow the job; returns 0 if it succeeded, else 1.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
    """
    screen = JsonScreen() if args.json else PlainScreen(Console(highlight=False, markup=False, soft_wrap=True))
    told: set[str] = set()

    def say_once(url: str) -> None:
        if url not in told:
            told.add(url)
            screen.note(f"Ray dashboard: {url}")

    watcher = Watcher(screen)
    with screen.live():
        job = follow_to_the_end(args.stack, LogFollower(watcher.read), on_connected=say_once)
    watcher.finish(job)
    return 0 if job.status == "SUCCEEDED" else 1


class Watcher:
    """Turns a log's text into what a screen shows."""

    def __init__(self, screen: "PlainScreen | JsonScreen") -> None:
        self._screen = screen
        self._parser = LogParser()
        self.progress = RunProgress()

    def read(self, text: str) -> None:
        """Take in a piece of the log."""
        for record in self._parser.feed(text.encode("utf-8", "replace")):
            self._take(record)

    def finish(self, job: "Job") -> None:
        """End the log, and tell the job's fate."""
        for record in self._parser.close():
            self._take(record)
        self._screen.end(job, self.progress, line=self._parser.line)

    def _take(self, record: Record) -> None:
        self.progress.add(record)
        self._screen.show(record, self.progress)


class JsonScreen:
    """One JSON record a line: all of the log's, its summary, and the job's end."""

    def __init__(self) -> None:
        self._summary = LogSummary()

    def live(self) -> AbstractContextManager[object]:
        """Return what surrounds the time of watching; nothing here."""
        return nullcontext()

    def note(self, text: str) -> None:
        """Say something that is no record."""
        print(text, file=sys.stderr, flush=True)

    def show(self, record: Record, _: RunProgress) -> None:
        """Print a record."""
        self._summary.add(record)
        print(to_json(record), flush=True)

    def end(self, job: "Job", progress: RunProgress, *, line: int) -> None:
        """Print the last two records."""
        ended = JobEnded(
            line=line,
            submission_id=job.submission_id,
            status=str(job.status),
            message=job.message,
            goodput=progress.account.goodput,
        )
        for record in (self._summary.summary(line=line), ended):
            print(to_json(record), flush=True)


class PlainScreen:
    """A line for each thing that happened; on a terminal, how the run stands in one more line below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def live(self) -> AbstractContextManager[object]:
        """Return what surrounds the time of watching."""
        if not self._console.is_terminal:
            return nullcontext()
        self._live = Live(console=self._console, transient=True, refresh_per_second=2)
        return self._live

    def note(self, text: str) -> None:
        """Print a line."""
        if self._live:
            self._console.print(text)  # above the line that stays
        else:
            print(text, file=self._console.file, flush=True)

    def show(self, record: Record, progress: RunProgress) -> None:
        """Print what a record says to people, if it does."""
        if isinstance(record, SupervisorEvent) and (line := describe(record, progress)):
            self.note(line)
            if self._live:
                self._live.update(Text(describe_standing(progress), no_wrap=True, overflow="ellipsis"))

    def end(self, job: "Job", progress: RunProgress, *, line: int) -> None:
        """Print how it went."""
        self.note(f"{job.submission_id}: {job.status} after {line} lines of log")
        self.note(f"steps: {progress.step} of {progress.max_steps or '?'}, trainer started {progress.attempt} times")
        self.note(
            f"mean reward: {format_reward(progress.first_reward)} over the first {WINDOW_STEPS} steps, "
            f"{format_reward(progress.last_reward)} over the last {WINDOW_STEPS}"
        )
        self.note(f"checkpoints: {format_kept(progress.kept)}")
        self.note(summarize(progress.account))
        if job.status != "SUCCEEDED":
            self.note(f"cause: {progress.cause or job.message or 'unknown'}")


# By kind, or by kind and phase or reason where these make another sentence of it.
_SENTENCES = {
    "waiting": "waiting for {reason}: {gpus_alive} of {gpus_needed} GPUs on {nodes_alive} nodes, {waited_s} s so far",
    "waiting_lease": "waiting for the lease of another supervisor, {waited_s} s so far",
    "waiting_prefetch": "fetching the model, {waited_s} s so far",
    "prefetched": "model is in the cache: {bytes} more, {seconds} s",
    "scaled": "RayCluster told to have {workers} workers",
    "set_aside": "{told}",
    "resumed": "resuming from step_{step}",
    "started": "training started, attempt {attempt}, on {nodes} nodes with {gpus} GPUs",
    "step": "step {step}/{max_steps}  reward {reward}  {step_time_s} s  goodput {goodput}",
    "checkpoint": "checkpoint step_{step}  {bytes}  held training up for {blocking_s} s ({saving_share} of the step)",
    "lost_node": "node lost after step {step}: {nodes}; {nodes_alive} nodes with {gpus_alive} GPUs left",
    "crashed": "training crashed after step {step} ({crashes} of {max_crashes}): {cause}",
    "crashed_prefetch": "fetching the model failed ({crashes} of {max_crashes}): {cause}",
    "stalled": "training stalled after step {step}: {phase} took more than {limit_s} s",
    "stopped": "stopped after step {step} ({reason})",
    "done": "done at step {step}",
    "failed": "failed after step {step}: {cause}",
}


def describe(event: SupervisorEvent, progress: RunProgress) -> str | None:
    """Write one event for people; none for one of a kind that this version does not know.

    Args:
        event: the event.
        progress: how the run stands, the event included.
    """
    kind = f"{event.event}_{event.fields.get('phase') or event.fields.get('reason')}"
    sentence = _SENTENCES.get(kind) or _SENTENCES.get(event.event)
    shown = _Shown(event.fields, goodput=progress.account.goodput, saving_share=progress.saving_share)
    return sentence and sentence.format_map(shown)


def describe_standing(progress: RunProgress) -> str:
    """Write how a run stands in one line."""
    step, held = progress.last_save or (None, None)
    shown = _Shown(
        gpus_alive=progress.gpus_alive,
        nodes_alive=progress.nodes_alive,
        reward=progress.rewards.get(progress.step),
        step_time=format_duration(progress.step_times_s.get(progress.step, 0.0)),
        bytes=progress.kept.get(step or 0),
        held=None if held is None else format_duration(held),
        saving_share=progress.saving_share,
        goodput=progress.account.goodput,
        save=step,
        attempt=progress.attempt,
        step=progress.step,
        max_steps=progress.max_steps,
    )
    return (
        "step {step}/{max_steps} · reward {reward} · {step_time} a step · step_{save}: {bytes}, held {held} "
        "({saving_share}) · {nodes_alive} nodes, {gpus_alive} GPUs · attempt {attempt} · goodput {goodput}"
    ).format_map(shown)


_FORMATS: dict[str, Callable[[Any], str]] = {
    "reward": format_reward,
    "bytes": format_bytes,
    "goodput": "{:.0%}".format,
    "saving_share": "{:.0%}".format,
}


class _Shown(dict[str, Any]):
    """Values as they are shown; one that is not there shows as a dash."""

    def __getitem__(self, key: str) -> str:
        match self.get(key):
            case None:
                return "-"
            case int() | float() as number if key in _FORMATS:
                return _FORMATS[key](number)
            case list(values):
                return ", ".join(str(value) for value in values)
            case value:
                return str(value)
