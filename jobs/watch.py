"""`python -m jobs watch`: follows a run to its end, says how it went, and exits with the job's fate."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobs.log_follower import follow_to_the_end
from jobs.log_parser import LogParser
from jobs.log_records import Record, SupervisorEvent
from jobs.run_progress import WINDOW_STEPS, RunProgress, format_bytes, format_kept, format_reward
from jobs.stack_outputs import read_stack_outputs

if TYPE_CHECKING:
    from jobs.dashboard import Job


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("watch", help="follow the job to its end; exit code 0 only if it succeeded")
    parser.add_argument("--stack", metavar="STACK", required=True, help="the stack whose job it is")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Follow the job; returns 0 if it succeeded, else 1.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
    """
    outputs = read_stack_outputs(args.stack)
    told: set[str] = set()

    def say_once(url: str) -> None:
        if url not in told:
            told.add(url)
            print(f"Ray dashboard: {url}", flush=True)

    watcher = Watcher(lambda line: print(line, flush=True))
    job = follow_to_the_end(outputs, watcher.read, on_connected=say_once)
    for line in watcher.finish(job):
        print(line, flush=True)
    return 0 if job.status == "SUCCEEDED" else 1


class Watcher:
    """Turns a log's text into one line for each thing that happened, and a summary."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._parser = LogParser()
        self.progress = RunProgress()

    def read(self, text: str) -> None:
        """Take in a piece of the log."""
        for record in self._parser.feed(text.encode("utf-8", "replace")):
            self._take(record)

    def finish(self, job: "Job") -> list[str]:
        """End the log; returns the summary, line by line."""
        for record in self._parser.close():
            self._take(record)
        progress = self.progress
        lines = [
            f"{job.submission_id}: {job.status}",
            f"steps: {progress.step} of {progress.max_steps or '?'}, trainer started {progress.attempt} times",
            f"mean reward: {format_reward(progress.first_reward)} over the first {WINDOW_STEPS} steps, "
            f"{format_reward(progress.last_reward)} over the last {WINDOW_STEPS}",
            f"checkpoints: {format_kept(progress.kept)}",
        ]
        if job.status != "SUCCEEDED":
            lines.append(f"cause: {progress.cause or job.message or 'unknown'}")
        return lines

    def _take(self, record: Record) -> None:
        self.progress.add(record)
        if isinstance(record, SupervisorEvent) and (line := describe(record)):
            self._say(line)


_SENTENCES = {
    "waiting": "waiting for {reason}: {gpus_alive} of {gpus_needed} GPUs, {waited_s} s so far",
    "resumed": "resuming from step_{step}",
    "started": "training started, attempt {attempt}, on {nodes} nodes with {gpus} GPUs",
    "step": "step {step}/{max_steps}  reward {reward}  {step_time_s} s",
    "checkpoint": "checkpoint step_{step}  {bytes}  held training up for {blocking_s} s",
    "lost_node": "node lost after step {step}: {nodes}; {gpus_alive} GPUs left",
    "crashed": "training crashed after step {step} ({crashes} of {max_crashes}): {cause}",
    "stalled": "training stalled after step {step}: {phase} took more than {limit_s} s",
    "stopped": "stopped after step {step} ({reason})",
    "done": "done at step {step}",
    "failed": "failed after step {step}: {cause}",
}


def describe(event: SupervisorEvent) -> str | None:
    """Write one event for people; none for one of a kind that this version does not know."""
    sentence = _SENTENCES.get(event.event)
    return sentence and sentence.format_map(_Shown(event.fields))


class _Shown(dict[str, Any]):
    """An event's fields as they are shown; one that is not there shows as a dash."""

    def __getitem__(self, key: str) -> str:
        match key, self.get(key):
            case _, None:
                return "-"
            case "reward", int() | float() as reward:
                return format_reward(reward)
            case "bytes", int() as size:
                return format_bytes(size)
            case _, list(values):
                return ", ".join(str(value) for value in values)
            case _, value:
                return str(value)
