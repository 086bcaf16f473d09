"""The command that starts a copy on the head, takes up one that runs, and follows it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobs import export, ray_job
from jobs.__main__ import main
from jobs.checkpoints import CheckpointEntry, CheckpointListing
from jobs.dashboard import Job, JobStatus
from jobs.errors import JobNotFound
from jobs.log_follower import LogFollower
from jobs.ray_job import RayJobProvider
from jobs.stack_outputs import StackOutputs
from tests.jobs.fakes import FakeDashboard
from tests.jobs.test_ray_job import props
from tests.jobs.test_stack_outputs import OUTPUTS

TO = "gs://weights/runs"
COPY = "export-grpo-step-4-n1"


def entry(name: str, step: int, state: str) -> CheckpointEntry:
    return CheckpointEntry(name=name, step=step, state=state, age_s=1, bytes=1, files=1, model="m", metrics={})


LISTING = CheckpointListing(
    checkpoints=(
        entry("step_2", 2, "complete"),
        entry("step_4", 4, "complete"),
        entry("step_6", 6, "incomplete"),
        entry("tmp_step_8", 8, "incomplete"),
    )
)


class Head(FakeDashboard):
    """A dashboard whose copies end as they are told to, when they are followed."""

    def __init__(self) -> None:
        super().__init__()
        self.entrypoints: dict[str, str] = {}
        self.listing = LISTING
        self.exit_code: int | None = 0
        self.trouble: BaseException | None = None

    def submit(self, **given: Any) -> None:
        super().submit(**given)
        self.entrypoints[given["submission_id"]] = given["entrypoint"]

    def follow(self, _stack: str, follower: LogFollower, *, submission_id: str) -> Job:
        if self.trouble:
            raise self.trouble
        follower.begin(self.jobs[submission_id])
        status = JobStatus.FAILED if self.exit_code else JobStatus.SUCCEEDED
        self.jobs[submission_id] = self.jobs[submission_id].model_copy(
            update={"status": status, "driver_exit_code": self.exit_code}
        )
        return self.jobs[submission_id]


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    fake = Head()

    @contextmanager
    def connect(_: StackOutputs) -> Iterator[Head]:
        yield fake

    monkeypatch.setattr(export, "read_stack_outputs", lambda _: StackOutputs.model_validate(OUTPUTS))
    monkeypatch.setattr(export, "open_stack_dashboard", connect)
    monkeypatch.setattr(export, "read_checkpoints", lambda _: fake.listing)
    monkeypatch.setattr(export, "follow_to_the_end", fake.follow)
    return fake


def command(step: str = "newest", to: str = TO) -> int:
    return main(["export", "--stack", "dev", "--step", step, "--to", to])


@pytest.mark.parametrize(("asked", "step"), [("newest", 4), ("2", 2)])
def test_the_checkpoint_that_is_meant_is_copied_by_a_job_on_the_head(head: Head, asked: str, step: int) -> None:
    assert command(asked) == 0

    (submission_id,) = head.jobs
    assert submission_id == f"export-grpo-step-{step}-n1"
    assert head.entrypoints[submission_id] == (
        f"nice python -m jobs.payload.export --checkpoint-dir /c --run-dir /r --step {step} --to {TO} --namespace ray"
    )
    assert "jobs/payload/export.py" in head.uploaded[0]


@pytest.mark.parametrize("asked", ["newest", "4"])
def test_the_same_command_takes_up_the_copy_that_runs(head: Head, asked: str) -> None:
    head.trouble = KeyboardInterrupt()
    assert command(asked) == 130
    head.trouble = None
    head.listing = CheckpointListing(checkpoints=(*LISTING.checkpoints, entry("step_10", 10, "complete")))

    assert command(asked) == 0

    assert list(head.jobs) == [COPY]


def test_another_bucket_and_a_copy_that_has_ended_make_new_jobs(head: Head) -> None:
    head.trouble = KeyboardInterrupt()
    command()
    head.trouble = None
    assert command(to="gs://elsewhere") == 0
    assert command(to="gs://elsewhere") == 0
    assert list(head.jobs) == [COPY, "export-grpo-step-4-n2", "export-grpo-step-4-n3"]


def test_ctrl_c_leaves_the_copy_running_and_says_how_to_stop_it(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.trouble = KeyboardInterrupt()

    assert command() == 130

    assert (
        f"kubectl -n ray exec svc/s -- ray job stop --address http://127.0.0.1:8265 {COPY}" in capsys.readouterr().err
    )
    assert head.jobs[COPY].status == JobStatus.RUNNING


@pytest.mark.parametrize(("driver", "code"), [(1, 1), (2, 2), (None, 0), (-9, 1)])
def test_exit_code_is_the_copys_fate(head: Head, driver: int | None, code: int) -> None:
    head.exit_code = driver
    assert command() == code


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("6", "step_6 is incomplete in /c"),
        ("8", "tmp_step_8 is incomplete in /c"),
        ("7", "step_7 does not exist in /c"),
    ],
)
def test_a_step_that_cannot_be_copied_is_refused_before_anything_is_submitted(
    head: Head, asked: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(asked) == 2
    assert f"{problem}. Complete checkpoints: step_2, step_4" in capsys.readouterr().err
    assert head.jobs == {}


def test_without_a_checkpoint_there_is_nothing_newest(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.listing = CheckpointListing(checkpoints=())
    assert command() == 2
    assert "there is no complete checkpoint in /c. Complete checkpoints: none" in capsys.readouterr().err


def test_a_url_of_another_form_is_refused_before_anything_is_asked(
    head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(to="s3://weights") == 2
    assert "s3://weights is no gs://BUCKET/PREFIX" in capsys.readouterr().err


def test_a_step_that_is_no_number_is_refused(head: Head) -> None:
    with pytest.raises(SystemExit, match="2"):
        command("latest")


def test_a_lost_head_is_told_with_the_command_to_type_again(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    head.trouble = JobNotFound("gone")
    assert command() == 1
    assert "Type the same command again" in capsys.readouterr().err


def test_a_copy_is_not_taken_for_the_training_job(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.trouble = KeyboardInterrupt()
    command()
    monkeypatch.setattr(ray_job, "connect", head.connect)

    created = RayJobProvider().create(props())

    assert created.outs is not None
    assert created.outs["attempt"] == 1
    assert created.id != COPY
    assert head.stopped == []
