"""The command line: exit codes and where words go."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobs import logs, run_on_head, status, stop
from jobs.__main__ import main
from jobs.dashboard import JobStatus
from jobs.errors import HeadExecError
from jobs.stack_outputs import StackOutputs
from tests.jobs.fakes import FakeDashboard, FakeSupervisor
from tests.jobs.test_stack_outputs import OUTPUTS
from tests.jobs.test_watch import JOB, SAVED, STARTED, STEPS, log


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> FakeDashboard:
    fake = FakeDashboard()
    fake.put(JOB, JobStatus.RUNNING, {"attempt": "2"})
    fake.texts[JOB] = log(STARTED, *STEPS, *SAVED)

    @contextmanager
    def connect(_: Any) -> Iterator[FakeDashboard]:
        yield fake

    for command in (status, logs, stop):
        monkeypatch.setattr(command, "read_stack_outputs", lambda _: StackOutputs.model_validate(OUTPUTS))
        monkeypatch.setattr(command, "open_stack_dashboard", connect)
    return fake


def test_status_shows_job_steps_rewards_checkpoints_and_nodes(
    dashboard: FakeDashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--stack", "dev"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    for text in (JOB, "RUNNING", "7 of 7", "0.300", "0.500", "step_6 1.2 MB", "1, 8 GPUs"):
        assert text in shown


def test_logs_are_the_jobs_bytes_alone(dashboard: FakeDashboard, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--stack", "dev"]) == 0

    assert capsys.readouterr().out == dashboard.texts[JOB]


@pytest.fixture
def supervisor(dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch) -> FakeSupervisor:
    fake = FakeSupervisor(dashboard)
    monkeypatch.setattr(run_on_head, "exec_in_head", fake.exec_in_head)
    return fake


@pytest.mark.parametrize(("options", "action"), [([], "stop_after_checkpoint"), (["--now"], "stop_now")])
def test_stop_asks_the_supervisor_and_waits_for_the_end(
    dashboard: FakeDashboard,
    supervisor: FakeSupervisor,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    action: str,
) -> None:
    assert main(["stop", "--stack", "dev", *options]) == 0

    assert supervisor.asked == [{"action": action, "submission_id": JOB}]
    assert dashboard.stopped == []
    assert f"{JOB}: FAILED. `up` submits it again" in capsys.readouterr().out


def test_stop_now_needs_no_supervisor(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor.failure = HeadExecError("no exec here")

    assert main(["stop", "--stack", "dev", "--now"]) == 0

    assert dashboard.stopped == [JOB]
    assert "no exec here. Ray is told to stop it" in capsys.readouterr().out


def test_stop_says_when_no_checkpoint_came(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor.saves = False

    assert main(["stop", "--stack", "dev", "--timeout-s", "0"]) == 1

    assert "end after its next checkpoint" in capsys.readouterr().err
    assert dashboard.jobs[JOB].status == "RUNNING"


def test_a_failure_is_one_line_and_exit_code_1(dashboard: FakeDashboard, capsys: pytest.CaptureFixture[str]) -> None:
    dashboard.jobs.clear()

    assert main(["status", "--stack", "dev"]) == 1

    captured = capsys.readouterr()
    assert captured.err.startswith("error: Ray does not know")
    assert captured.out == ""


def test_a_wrong_stack_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["watch", "--stack", "dev"]) == 2
    assert "pulumi" in capsys.readouterr().err


def test_a_wrong_command_line_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["watch"])

    assert caught.value.code == 2
    assert "--stack" in capsys.readouterr().err
