"""Watching a job: from the log's text to lines, rewards, checkpoints and an exit code."""

import io
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from jobs import log_follower
from jobs.__main__ import main
from jobs.dashboard import Job, JobStatus
from jobs.errors import DashboardUnreachable
from jobs.payload.event_lines import EventWriter
from jobs.stack_outputs import StackOutputs
from jobs.watch import JsonScreen, PlainScreen, Watcher, describe_standing
from tests.jobs.fakes import FakeDashboard
from tests.jobs.test_stack_outputs import OUTPUTS

JOB = OUTPUTS["job"]["submission_id"]
NEXT_JOB = "grpo-1-a2"


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


def watched(*events: tuple[str, dict[str, Any]], trainer: str = "", status: JobStatus = JobStatus.SUCCEEDED) -> str:
    """Return what watching a log says that ends with this status."""
    output = io.StringIO()
    watcher = Watcher(PlainScreen(Console(file=output)))
    watcher.read(log(*events, trainer=trainer))
    watcher.finish(job(status))
    return output.getvalue()


def test_rewards_and_kept_checkpoints_are_summed_up() -> None:
    pruned = "Removing checkpoint /lustre/checkpoints/step_2 due to being outside top-2\n"

    said = watched(STARTED, *STEPS, *SAVED, trainer=pruned)

    assert f"{JOB}: SUCCEEDED" in said
    assert "steps: 7 of 7, trainer started 1 times" in said
    assert "0.300 over the first 5 steps, 0.500 over the last 5" in said
    assert "checkpoints: step_4 1.2 MB, step_6 1.2 MB\n" in said


def test_what_lies_on_disk_at_the_end_is_what_counts() -> None:
    said = watched(STARTED, *SAVED, ("done", {"step": 7, "kept": {"7": 2_500_000_000_000}}))
    assert "checkpoints: step_7 2.50 TB\n" in said


def test_a_step_done_twice_counts_once_as_it_was_done_last() -> None:
    watcher = Watcher(PlainScreen(Console(file=io.StringIO())))
    watcher.read(log(*STEPS, ("step", {"step": 7, "max_steps": 7, "reward": 0.9})))

    assert watcher.progress.rewards[7] == 0.9
    assert len(watcher.progress.rewards) == 7


def test_a_failed_run_ends_with_its_cause() -> None:
    said = watched(STARTED, ("failed", {"step": 2, "cause": "ValueError: no"}), status=JobStatus.FAILED)
    assert said.endswith("cause: ValueError: no\n")


def test_each_event_is_a_line_and_one_of_a_later_version_is_none() -> None:
    lost = ("lost_node", {"step": 3, "nodes": ["a", "b"], "nodes_alive": 1, "gpus_alive": 8})

    said = watched(STARTED, STEPS[1], SAVED[0], ("teleported", {"step": 3}), lost).splitlines()

    assert said[:4] == [
        "training started, attempt 1, on 2 nodes with 16 GPUs",
        "step 2/7  reward 0.200  0.5 s  goodput -",
        "checkpoint step_2  1.2 MB  held training up for 0.1 s (20% of the step)",
        "node lost after step 3: a, b; 1 nodes with 8 GPUs left",
    ]
    assert said[4].startswith(f"{JOB}: ")


def test_how_a_run_stands_is_one_line_of_all_that_is_known() -> None:
    watcher = Watcher(PlainScreen(Console(file=io.StringIO())))
    assert describe_standing(watcher.progress).startswith("step 0/- · reward - · ")
    watcher.read(log(STARTED, *STEPS[:2], SAVED[0]))

    assert describe_standing(watcher.progress) == (
        "step 2/7 · reward 0.200 · 0.5 s a step · step_2: 1.2 MB, held 0.1 s (20%) · 2 nodes, 16 GPUs · attempt 1 "
        "· goodput -"
    )


def test_a_terminal_shows_how_the_run_stands_below_the_lines() -> None:
    output = io.StringIO()
    screen = PlainScreen(Console(file=output, force_terminal=True, width=200, highlight=False, markup=False))
    with screen.live():
        Watcher(screen).read(log(STARTED, STEPS[0]))

    said = output.getvalue()
    assert "step 1/7  reward 0.100" in said
    assert "step 1/7 · reward 0.100" in said


def test_json_is_one_record_a_line_and_the_job_is_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Watcher(JsonScreen())
    watcher.read(log(STARTED, *STEPS, *SAVED, ("done", {"step": 7}), trainer="SETUP COMPLETE\n"))
    watcher.finish(job(JobStatus.SUCCEEDED))

    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [record["record"] for record in records[-3:]] == ["setup_complete", "summary", "job_ended"]
    assert (records[-1]["submission_id"], records[-1]["status"]) == (JOB, "SUCCEEDED")
    assert records[-2]["usable_checkpoints"] == [2, 4, 6]


class Dropping(FakeDashboard):
    """Drops the connection after ever more characters, and the job ends while it is down."""

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
        if cut >= len(text):
            self.put(JOB, JobStatus.SUCCEEDED)
            self.texts[JOB] += "written at the very end\n"
        raise DashboardUnreachable("dropped")


class Closing(FakeDashboard):
    """Ends the log as at the end of a job, twice while the job runs."""

    def __init__(self) -> None:
        super().__init__()
        self.put(JOB, JobStatus.RUNNING)
        self.texts[JOB] = ""

    async def tail(self, submission_id: str) -> AsyncGenerator[str, None]:
        yield self.logs(submission_id)
        self.texts[JOB] += f"{len(self.texts[JOB])}\n"
        if len(self.texts[JOB]) > 3:
            self.put(JOB, JobStatus.SUCCEEDED)


class Way:
    """The way to a dashboard: refused as often as told, and told which ports were asked for."""

    def __init__(self, dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dashboard = dashboard
        self.outputs = [OUTPUTS]
        self.refusals = 0
        self.ports: set[int] = set()
        monkeypatch.setattr(log_follower, "read_stack_outputs", self._outputs)
        monkeypatch.setattr(log_follower, "open_stack_dashboard", self._open)
        for pause in ("_EVERY_S", "_OUTPUTS_EVERY_S"):
            monkeypatch.setattr(log_follower, pause, 0)

    def _outputs(self, _: str) -> StackOutputs:
        return StackOutputs.model_validate(self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0])

    @contextmanager
    def _open(self, _: StackOutputs, *, local_port: int) -> Iterator[FakeDashboard]:
        self.ports.add(local_port)
        if self.refusals:
            self.refusals -= 1
            raise DashboardUnreachable("not yet")
        yield self.dashboard


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(FakeDashboard(), monkeypatch)


@pytest.mark.parametrize(("status", "code"), [(JobStatus.SUCCEEDED, 0), (JobStatus.FAILED, 1), (JobStatus.STOPPED, 1)])
def test_the_exit_code_is_the_jobs_fate_and_the_address_stays(
    status: JobStatus, code: int, way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    way.dashboard.put(JOB, status)
    way.dashboard.texts[JOB] = log(STARTED, *STEPS)
    way.refusals = 2

    assert main(["watch", "--stack", "dev"]) == code

    captured = capsys.readouterr()
    assert captured.out.count("Ray dashboard: http://127.0.0.1:1\n") == 1
    assert captured.out.count("step 7/7") == 1
    assert captured.err.count("connection lost") == 1
    assert len(way.ports) == 1


def test_every_character_comes_once_through_dropped_connections(way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    way.dashboard = dashboard = Dropping("".join(f"line {number}\n" for number in range(50)))

    assert main(["logs", "--stack", "dev", "--follow"]) == 0

    captured = capsys.readouterr()
    assert captured.out == dashboard.texts[JOB]
    assert captured.out.endswith("written at the very end\n")
    assert captured.err.count("connection lost") == 1
    assert dashboard.connections > 5


def test_the_end_of_the_log_is_not_the_end_of_the_job(way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    way.dashboard = Closing()

    assert main(["logs", "--stack", "dev", "--follow"]) == 0
    assert capsys.readouterr().out == "0\n2\n"


class LosingHead(FakeDashboard):
    """Loses its job with its head in the middle of a line; the next one runs on another head."""

    async def tail(self, submission_id: str) -> AsyncGenerator[str, None]:
        yield self.logs(submission_id)
        del self.jobs[submission_id]
        self.put(NEXT_JOB, JobStatus.SUCCEEDED)


def test_a_replaced_heads_next_submission_is_followed_from_its_beginning(
    way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    way.dashboard = dashboard = LosingHead()
    dashboard.put(JOB, JobStatus.RUNNING)
    dashboard.texts = {JOB: "one\ntw", NEXT_JOB: "three\nfour\n"}
    next_outputs = {**OUTPUTS, "job": {**OUTPUTS["job"], "submission_id": NEXT_JOB}}
    way.outputs = [OUTPUTS, OUTPUTS, next_outputs]

    assert main(["logs", "--stack", "dev", "--follow"]) == 0

    captured = capsys.readouterr()
    assert captured.out == "one\ntw\nthree\nfour\n"
    assert captured.err.count("`up` submits it again") == 1


class ForgettingHead(FakeDashboard):
    """Loses its job; the next one, on another head, gets the same id."""

    async def tail(self, submission_id: str) -> AsyncGenerator[str, None]:
        yield self.logs(submission_id)
        self.jobs[JOB] = Job(submission_id=JOB, status=JobStatus.SUCCEEDED, start_time=1_000)
        self.texts[JOB] = "three\nfour\n"


def test_a_submission_with_the_id_of_a_lost_one_is_followed_from_its_beginning(
    way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    way.dashboard = dashboard = ForgettingHead()
    dashboard.put(JOB, JobStatus.RUNNING)
    dashboard.texts = {JOB: "one\ntw"}

    assert main(["logs", "--stack", "dev", "--follow"]) == 0
    assert capsys.readouterr().out == "one\ntw\nthree\nfour\n"


def test_a_job_that_was_never_known_is_an_error_at_once(way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--stack", "dev"]) == 1
    assert "does not know" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "code"), [(JobStatus.SUCCEEDED, 0), (JobStatus.FAILED, 1)])
def test_wait_says_one_line_and_no_log(
    status: JobStatus, code: int, way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    way.dashboard.put(JOB, status)
    way.dashboard.texts[JOB] = "text\n"

    assert main(["wait", "--stack", "dev"]) == code
    assert capsys.readouterr().out == f"{JOB}: {status}\n"


def test_wait_that_takes_too_long_has_an_exit_code_of_its_own(way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    way.dashboard.put(JOB, JobStatus.RUNNING)

    assert main(["wait", "--stack", "dev", "--timeout-s", "0"]) == 124
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "goes on" in captured.err
