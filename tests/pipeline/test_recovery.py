"""What a run survives, with its work, and what ends it: preemptions, kills, a lost head, faulty trainers, a destroy.

The tests share one twin; each but the first has a run of its own, under another name. A run that comes to its end has
the weights of the first, which nobody disturbed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.run_on_head import DISCARD_VARIABLE
from jobs.waiting import wait_until
from tests.pipeline.twin_session import CLUSTER, TwinSession, twin_session
from twin.cloud.store import Store

pytestmark = pytest.mark.recovery

SPEED = "1000"
LAST_STEP = 12
ENTRY_SCRIPT = "/lustre/held_training.py"
WEIGHTS = Path("policy/weights/model.safetensors")
EVERYTHING = "999999"
TRAINER_PATIENCE_S = 7  # as held_training.py sets it

Event = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run of the twin's stack, as it lies on its Lustre."""

    session: TwinSession
    name: str

    @property
    def directory(self) -> Path:
        return self.session.state.lustre(CLUSTER) / "local" / self.name

    def checkpoint(self, step: int) -> Path:
        return self.directory / "checkpoints" / f"step_{step}"

    @property
    def record(self) -> Path:
        return self.directory / "supervisor" / "events.jsonl"

    def events(self, kind: str | None = None) -> list[Event]:
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [event for event in map(json.loads, lines) if kind in {None, event["event"]}]

    def steps(self, kind: str) -> list[int]:
        return [event["step"] for event in self.events(kind)]

    def allow(self, limit: str) -> None:
        """Say how far the trainer may go; see held_training.py."""
        self.directory.parent.mkdir(exist_ok=True)
        self.directory.with_name(f"{self.name}.go").write_text(limit)

    def give_faults(self, *faults: tuple[str, int]) -> None:
        self.directory.parent.mkdir(exist_ok=True)
        self.directory.with_name(f"{self.name}.faults").write_text(json.dumps(faults))

    def submit(self) -> None:
        self.session.edit("job", name=self.name)
        self.session.twin("up")

    def wait_for(self, kind: str, *, count: int = 1) -> Event:
        """Wait for the event of that number; return it."""

        def found() -> Event | None:
            events = self.events(kind)
            assert kind in {"failed", "stopped"} or not (self.events("failed")), self.events()[-5:]
            return events[count - 1] if len(events) >= count else None

        return wait_until(found, timeout_s=150, every_s=0.1, doing=f"{self.name} to write event {kind} no. {count}")

    def wait_for_step(self, step: int, kind: str = "step") -> None:
        wait_until(
            lambda: step in self.steps(kind) or None,
            timeout_s=150, every_s=0.1, doing=f"{self.name} to tell of {kind} {step}",
        )  # fmt: skip

    def kill(self, command: str) -> None:
        """Kill -9 the one Python process of this twin whose command line begins so: a pattern, `python` left out."""
        pattern = re.compile(rf"\S*python\S* {command}")
        (pid,) = [pid for pid, words in self.session.processes().items() if pattern.match(words)]
        os.kill(pid, signal.SIGKILL)

    def assert_undisturbed(self) -> None:
        """No two trainers, no step lost or doubled, and the weights of a run that nothing has happened to."""
        assert not self.directory.with_name(f"{self.name}.overlaps").exists()
        assert self.steps("checkpoint") == list(range(2, LAST_STEP + 1, 2))
        at = 0
        for event in self.events():
            if event["event"] == "resumed":
                at = event["step"]
            elif event["event"] == "step":
                assert event["step"] == at + 1, self.events()
                at = event["step"]
        assert at == LAST_STEP
        reference = Run(self.session, "reference").checkpoint(LAST_STEP) / WEIGHTS
        assert (self.checkpoint(LAST_STEP) / WEIGHTS).read_bytes() == reference.read_bytes()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    with twin_session(tmp_path_factory.mktemp("recovery"), speed=SPEED) as running:
        running.edit("job", grpo={"max_num_steps": LAST_STEP}, name="reference")
        # The script that holds the trainer where a test wants it.
        running.edit("ray", release={"entry_script": ENTRY_SCRIPT})
        lustre = running.state.lustre(CLUSTER)
        lustre.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("held_training.py"), lustre)
        yield running


def test_a_watched_run_shows_every_line_once_while_its_connections_drop(session: TwinSession, tmp_path: Path) -> None:
    run = Run(session, "reference")
    run.allow("2")
    session.twin("up")
    watching, following = (
        session.start("jobs", *words, "--stack", "local", stderr=subprocess.DEVNULL)
        for words in (("watch", "--json"), ("logs", "--follow"))
    )
    dropping = session.start("twin", "drop-connections", "--every", "2")
    try:
        assert dropping.stdout
        for limit in ("4", "6", "8", EVERYTHING):
            assert "cut every open connection" in dropping.stdout.readline()
            run.allow(limit)
        watched, _ = watching.communicate(timeout=300)
        followed, _ = following.communicate(timeout=60)
    finally:
        dropping.terminate()
        dropping.communicate(timeout=60)
    assert (watching.returncode, following.returncode) == (0, 0), watched
    log = session.run("jobs", "logs", "--stack", "local")
    assert followed == log
    saved = tmp_path / "log"
    saved.write_text(log)
    records = watched.splitlines()
    assert records[:-1] == session.run("jobs", "events", str(saved)).splitlines()
    assert json.loads(records[-1])["status"] == "SUCCEEDED"


def test_three_preemptions_in_a_row_cost_the_steps_since_the_last_checkpoint(session: TwinSession) -> None:
    run = Run(session, "preempted")
    run.allow("5")
    run.submit()
    run.wait_for_step(5)
    session.twin("preempt", "--nodes", "1")
    run.wait_for("lost_node")
    run.allow("7")
    run.wait_for_step(7)
    # Both at once, and none comes back while the trainer itself would wait for it.
    session.twin("preempt", "--nodes", "2", "--return-after", "20000")
    run.wait_for("lost_node", count=2)
    run.allow("9.5")
    partial = run.checkpoint(10).with_name("tmp_step_10")
    wait_until(lambda: partial.exists() or None, timeout_s=150, every_s=0.1, doing="the save of step 10 to begin")
    session.twin("preempt", "--nodes", "1")
    run.wait_for("lost_node", count=3)
    assert partial.exists()
    run.allow(EVERYTHING)
    watched = session.run("jobs", "watch", "--stack", "local")
    assert f"{session.output('job')['submission_id']}: SUCCEEDED" in watched
    run.assert_undisturbed()
    assert {event["submission_id"] for event in run.events()} == {session.output("job")["submission_id"]}
    assert run.steps("resumed") == [4, 6, 8]
    waits = waits_after(run.events("lost_node")[1], run)
    assert min(wait["nodes_alive"] for wait in waits) == 1
    assert waits[-1]["waited_s"] > TRAINER_PATIENCE_S
    assert any(
        "tmp_step_10, left by an interrupted save" in told
        for event in run.events("set_aside")
        for told in event["told"]
    )
    report = session.run("jobs", "report", "--stack", "local")
    assert re.match(r"goodput: [\d.]+% of .*; 3 interruptions, 3 steps lost, .* of waiting for nodes\n", report), report
    assert report.count("node loss") == 3


def waits_after(loss: Event, run: Run) -> list[Event]:
    """What a run told of its wait for nodes after a loss, until it went on."""
    after = [event for event in run.events() if event["at"] >= loss["at"]]
    end = next(place for place, event in enumerate(after) if event["event"] == "resumed")
    return [event for event in after[:end] if event["event"] == "waiting"]


def test_a_lost_head_and_killed_processes_cost_an_up_at_most_and_never_make_two_trainers(session: TwinSession) -> None:
    run = Run(session, "killed")
    run.allow("3")
    run.submit()
    watching = session.start("jobs", "watch", "--stack", "local", stderr=subprocess.DEVNULL)
    run.wait_for_step(3)
    run.wait_for_step(2, "checkpoint")
    lose_head(session, lambda: session.twin("crash-head"))
    session.twin("up")
    run.allow("5")
    run.wait_for_step(5)
    run.kill(ENTRY_SCRIPT)
    run.wait_for("crashed")
    run.allow("7")
    run.wait_for_step(7)
    run.wait_for_step(6, "checkpoint")
    run.kill("-m jobs.payload.supervisor")
    watched, _ = watching.communicate(timeout=60)
    assert watching.returncode == 1
    # A lost head takes with it what it had not been read for; what was done twice may be seen twice.
    shown = re.findall(r"^step (\d+)/", watched, re.MULTILINE)
    assert sorted(set(shown)) == ["1", "2", "3", "4", "5", "6", "7"]
    assert {step for step in shown if shown.count(step) > 1} <= {"3", "5"}
    session.twin("up")
    run.allow("9")
    run.wait_for_step(9)
    run.wait_for_step(8, "checkpoint")
    lose_head(session, lambda: run.kill(r"\S*/ray/dashboard/dashboard\.py"))
    session.twin("up")
    run.allow(EVERYTHING)
    assert "SUCCEEDED" in session.run("jobs", "watch", "--stack", "local")
    run.assert_undisturbed()
    assert run.steps("resumed") == [2, 4, 6, 8]
    report = session.run("jobs", "report", "--stack", "local")
    assert re.search(r"; 4 interruptions, 4 steps lost, ", report), report
    assert report.count("supervisor lost") == 3


def lose_head(session: TwinSession, lose: Callable[[], object]) -> None:
    """Lose the head's Ray, and wait until there is another."""

    def head() -> tuple[str, int, bool]:
        (pod,) = session.pods("head")
        (status,) = pod["status"]["containerStatuses"]
        return pod["metadata"]["uid"], status["restartCount"], status["ready"]

    before = head()
    lose()
    wait_until(
        lambda: (head()[:2] != before[:2] and head()[2]) or None,
        timeout_s=150, every_s=0.5, doing="another head to be Ready",
    )  # fmt: skip


def test_trainings_that_stand_still_are_started_again_and_one_that_always_crashes_fails(session: TwinSession) -> None:
    session.edit("job", limits={"step_limit_s": 8, "max_crashes": 2, "node_loss_settle_s": 3})
    run = Run(session, "faulty")
    run.give_faults(("hang", 3), ("chatter", 5), ("crash", 7))
    run.submit()
    watched = session.run("jobs", "watch", "--stack", "local", code=1)
    assert [(event["step"], event["phase"]) for event in run.events("stalled")] == [(2, "step"), (4, "step")]
    assert run.steps("resumed") == [2, 4, 6]
    (failed,) = run.events("failed")
    assert failed["cause"].startswith("RuntimeError: the reward of a sample is not a number (2 times in a row")
    assert "cause: RuntimeError: the reward of a sample is not a number" in watched
    assert len(run.events("started")) == 4


def test_a_checkpoint_of_another_model_is_refused_before_a_gpu_is_asked_for(session: TwinSession) -> None:
    run = Run(session, "reference")
    asked = [event for event in run.events("scaled") if event["workers"]]
    session.edit("job", name=run.name, grpo={"model_name": "adder-4k"})
    # Whether Ray tells of the end before `up` has seen the job run decides its exit code.
    session.start("twin", "up").communicate(timeout=300)
    failed = run.wait_for("failed")
    assert "holds a checkpoint of adder-100k, and adder-4k is to be trained" in failed["cause"]
    assert [event for event in run.events("scaled") if event["workers"]] == asked
    assert not session.pods("worker")
    session.edit("job", grpo={"model_name": "adder-100k"})


def test_a_full_lustre_fails_the_run_with_its_reason_and_spares_older_checkpoints(session: TwinSession) -> None:
    run = Run(session, "saved")
    run.allow("5")
    run.submit()
    run.wait_for_step(5)
    before = {path: path.read_bytes() for path in run.checkpoint(4).rglob("*") if path.is_file()}
    # Less than a checkpoint; the heartbeat of the run's lease takes some of it.
    session.twin("fill-lustre", "--leave-gib", "0.0005")
    run.allow(EVERYTHING)
    watched = session.run("jobs", "watch", "--stack", "local", code=1)
    assert re.search(r"cause: .*No space left on device", watched), watched
    session.twin("fill-lustre", "--undo")
    assert before
    assert {path: path.read_bytes() for path in run.checkpoint(4).rglob("*") if path.is_file()} == before
    assert not run.checkpoint(6).exists()


def test_a_destroy_is_refused_while_work_is_unsaved_and_ends_the_run_at_a_checkpoint_with_the_override(
    session: TwinSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(session, "saved")
    run.allow("7")
    session.edit("job", protect_unsaved_work=True, grpo={"max_num_steps": 3000})
    run.submit()
    run.wait_for_step(7)
    resources = len(Store.open(session.state).list())
    refused = session.twin("destroy", code=1)
    assert "Nothing was destroyed, and job.protect_unsaved_work is on: saved's newest checkpoint is step_6" in refused
    assert len(Store.open(session.state).list()) == resources
    run.allow("9")
    run.wait_for_step(9)
    monkeypatch.setenv(DISCARD_VARIABLE, "saved")
    run.allow(EVERYTHING)
    # Lustre goes too: the record is kept open.
    with run.record.open() as record:
        destroyed = session.twin("destroy")
        events = [json.loads(line) for line in record]
    assert "saved-" in destroyed
    stopped = events[-1]
    assert (stopped["event"], stopped["reason"]) == ("stopped", "hand_over")
    # The trainer may have begun the next step before its supervisor saw the checkpoint.
    newest = [event["step"] for event in events if event["event"] == "checkpoint"][-1]
    assert str(newest) in stopped["kept"]
    assert newest > 9
    assert session.processes() == {}
    assert list(Store.open(session.state).list()) == []
