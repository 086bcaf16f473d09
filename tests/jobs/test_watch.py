"""Watching a job: from the log's text to lines, rewards, checkpoints and an exit code."""

import argparse
import io
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobs import log_follower, watch
from jobs.dashboard import JobStatus
from jobs.errors import DashboardUnreachable
from jobs.log_follower import LogFollower
from jobs.payload.event_lines import EventWriter
from jobs.stack_outputs import StackOutputs
from jobs.watch import Watcher
from tests.jobs.fakes import FakeDashboard
from tests.jobs.test_stack_outputs import OUTPUTS

JOB = OUTPUTS["job"]["submission_id"]


def log(*events: tuple[str, dict[str, Any]], trainer: str = "") -> str:
    """Write a log as the supervisor does."""
    output = io.BytesIO()
    writer = EventWriter(output, now=lambda: 1.0)
    for event, fields in events:
        writer.emit(event, **fields)
    writer.pass_through(trainer.encode())
    return output.getvalue().decode()


STARTED = ("started", {"attempt": 1, "step": 0, "max_steps": 7, "nodes": 2, "gpus": 16})
STEPS = [("step", {"step": step, "max_steps": 7, "reward": step / 10, "step_time_s": 0.5}) for step in range(1, 8)]
SAVED = [("checkpoint", {"step": step, "bytes": 1_200_000, "files": 3, "blocking_s": 0.1}) for step in (2, 4, 6)]


def job(status: JobStatus, message: str = "") -> Any:
    dashboard = FakeDashboard()
    dashboard.put(JOB, status)
    return dashboard.jobs[JOB].model_copy(update={"message": message})


def test_rewards_and_kept_checkpoints_are_summed_up() -> None:
    watcher = Watcher(lambda _: None)
    pruned = "Removing checkpoint /lustre/checkpoints/step_2 due to being outside top-2\n"
    watcher.read(log(STARTED, *STEPS, *SAVED, trainer=pruned))

    summary = "\n".join(watcher.finish(job(JobStatus.SUCCEEDED)))

    assert f"{JOB}: SUCCEEDED" in summary
    assert "steps: 7 of 7, trainer started 1 times" in summary
    assert "0.300 over the first 5 steps, 0.500 over the last 5" in summary
    assert "step_4 1.2 MB, step_6 1.2 MB" in summary
    assert "step_2" not in summary


def test_what_lies_on_disk_at_the_end_is_what_counts() -> None:
    watcher = Watcher(lambda _: None)
    watcher.read(log(STARTED, *SAVED, ("done", {"step": 7, "kept": {"7": 2_500_000_000_000}})))

    assert "checkpoints: step_7 2.50 TB" in watcher.finish(job(JobStatus.SUCCEEDED))


def test_a_step_done_twice_counts_once_as_it_was_done_last() -> None:
    watcher = Watcher(lambda _: None)
    again = ("step", {"step": 7, "max_steps": 7, "reward": 0.9})
    watcher.read(log(*STEPS, again))

    assert watcher.progress.rewards[7] == 0.9
    assert len(watcher.progress.rewards) == 7


def test_a_failed_run_ends_with_its_cause() -> None:
    watcher = Watcher(lambda _: None)
    watcher.read(log(STARTED, ("failed", {"step": 2, "cause": "ValueError: no"})))

    assert "cause: ValueError: no" in watcher.finish(job(JobStatus.FAILED))


def test_each_event_is_a_line_and_one_of_a_later_version_is_none() -> None:
    said: list[str] = []
    watcher = Watcher(said.append)
    watcher.read(log(STEPS[0], SAVED[0], ("teleported", {"step": 3}), ("lost_node", {"step": 3, "nodes": ["a", "b"]})))

    assert said == [
        "step 1/7  reward 0.100  0.5 s",
        "checkpoint step_2  1.2 MB  held training up for 0.1 s",
        "node lost after step 3: a, b; - GPUs left",
    ]


class Dropping(FakeDashboard):
    """Drops the connection after ever more characters, then ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts[JOB] = text
        self.put(JOB, JobStatus.RUNNING)
        self.connections = 0

    async def tail(self, submission_id: str) -> AsyncGenerator[str, None]:
        self.connections += 1
        text = self.logs(submission_id)
        cut = self.connections * 37
        for begin in range(0, min(cut, len(text)), 10):
            yield text[begin : min(begin + 10, cut)]
        if cut < len(text):
            raise DashboardUnreachable("dropped")
        self.put(JOB, JobStatus.SUCCEEDED)
        self.texts[JOB] += "written at the very end\n"


def test_every_character_comes_once_through_dropped_connections() -> None:
    dashboard = Dropping("".join(f"line {number}\n" for number in range(50)))
    got: list[str] = []
    follower = LogFollower(JOB, got.append)

    ended = None
    while ended is None:
        try:
            ended = follower.follow(dashboard)  # type: ignore[arg-type]
        except DashboardUnreachable:
            continue

    assert "".join(got) == dashboard.texts[JOB]
    assert dashboard.connections > 5


def test_the_end_of_the_log_is_not_the_end_of_the_job() -> None:
    dashboard = FakeDashboard()
    dashboard.put(JOB, JobStatus.RUNNING)

    assert LogFollower(JOB, lambda _: None).follow(dashboard) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("status", "code"), [(JobStatus.SUCCEEDED, 0), (JobStatus.FAILED, 1), (JobStatus.STOPPED, 1)])
def test_the_exit_code_is_the_jobs_fate_and_the_address_stays(
    status: JobStatus, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard = FakeDashboard()
    dashboard.put(JOB, status)
    dashboard.texts[JOB] = log(STARTED, *STEPS)
    ports = []

    @contextmanager
    def connect(_: StackOutputs, *, local_port: int) -> Iterator[FakeDashboard]:
        ports.append(local_port)
        if len(ports) < 3:
            raise DashboardUnreachable("not yet")
        yield dashboard

    monkeypatch.setattr(watch, "read_stack_outputs", lambda _: StackOutputs.model_validate(OUTPUTS))
    monkeypatch.setattr(log_follower, "open_stack_dashboard", connect)
    monkeypatch.setattr(log_follower, "_EVERY_S", 0)

    assert watch.run(argparse.Namespace(stack="dev")) == code

    captured = capsys.readouterr()
    assert captured.out.count("Ray dashboard: http://127.0.0.1:1\n") == 1
    assert captured.out.count("step 7/7") == 1
    assert captured.err.count("connection lost") == 1
    assert len(set(ports)) == 1
