"""The report reads a run's durable record, on the head or from a copy, and states all parts of the account."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs import report, run_on_head
from jobs.__main__ import main
from jobs.payload.event_lines import EventWriter
from jobs.stack_outputs import StackOutputs
from tests.jobs.test_run_account import BEGINNING, event, started, steps
from tests.jobs.test_stack_outputs import OUTPUTS

EVENTS = [
    *BEGINNING,
    *steps(200, range(1, 4)),
    event(450, "lost_node", step=3, nodes=["10.0.0.2"]),
    event(451, "waiting", reason="gpus"),
    event(630, "resumed", step=2),
    started(631, 2, attempt=2),
    *steps(781, range(3, 5)),
    event(1000, "stopped", step=4, reason="control", kept={"4": 10**12}),
]
RECORD = "".join(f"{json.dumps({'v': 1, 'event': e.event, 'at': e.at, **e.fields})}\n" for e in EVENTS)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's directory, with this machine in the head's place."""

    def exec_here(*, command: Sequence[str], timeout_s: float, **_: str) -> bytes:
        return subprocess.run(command, capture_output=True, check=True, timeout=timeout_s).stdout

    outputs = StackOutputs.model_validate({**OUTPUTS, "job": {**OUTPUTS["job"], "run_dir": str(tmp_path)}})
    monkeypatch.setattr(run_on_head, "exec_in_head", exec_here)
    monkeypatch.setattr(report, "read_stack_outputs", lambda _: outputs)
    (tmp_path / "supervisor").mkdir()
    return tmp_path


def test_parts_and_interruptions_are_stated(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = run_dir / "supervisor/events.jsonl"
    record.write_text(RECORD + '{"v": 1, "event": "do')  # a line that a kill has cut

    assert main(["report", "--stack", "dev"]) == 0
    from_head = capsys.readouterr().out
    assert main(["report", "--file", str(record)]) == 0

    assert capsys.readouterr().out == from_head
    assert from_head.startswith("goodput: 40.0% of 16 min 40 s; 2 interruptions, 1 steps lost, 3 min 59 s of waiting")
    assert "stopped: 4 steps kept, trainer started 2 times in 1 Ray jobs" in from_head
    shares = [line.split("%")[0] for line in from_head.splitlines() if "%  " in line]
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.3)
    assert "node loss" in from_head
    assert "stop (control)" in from_head


def test_run_that_has_not_begun_is_told_as_such(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--stack", "dev"]) == 2
    assert "no event yet" in capsys.readouterr().err
    assert main(["report", "--file", str(run_dir / "absent")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_record_is_what_the_supervisor_writes(tmp_path: Path) -> None:
    from jobs.payload.event_record import EventRecord
    from jobs.run_account import account_for
    from jobs.supervisor_events import read_event_file

    path = tmp_path / "events.jsonl"
    times = iter([0.0, 60.0, 200.0, 300.0])
    with (tmp_path / "log").open("wb") as log:
        writer = EventWriter(
            log, record=EventRecord(path, submission_id="a1", supervisor_id="s1"), now=lambda: next(times)
        )
        writer.emit("waiting", reason="gpus")
        writer.emit("started", attempt=1, step=0)
        writer.emit("step", step=1, step_time_s=100.0)
        writer.emit("step", step=2, step_time_s=100.0)
    account = account_for(read_event_file(path.read_bytes().splitlines()))

    assert (account.waited_s, account.setup_s, account.training_s, account.submissions) == (60, 40, 200, 1)
