"""The durable record on a real file, and on a device that is always full."""

import io
import json
from pathlib import Path

from jobs.payload.event_lines import EventWriter
from jobs.payload.event_record import EventRecord


def writer(path: Path, job: str = "a1") -> tuple[EventWriter, io.BytesIO]:
    output = io.BytesIO()
    return EventWriter(
        output, record=EventRecord(path, submission_id=job, supervisor_id=f"{job} itself"), now=lambda: 1.5
    ), output


def ids(job: str) -> dict[str, str]:
    return {"submission_id": job, "supervisor_id": f"{job} itself"}


def test_every_event_of_every_job_is_one_line_with_the_job_s_name(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer(path)[0].emit("started", step=0, gpus=16)
    writer(path, "a2")[0].emit("done", step=6)

    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"v": 1, "event": "started", "at": 1.5, "step": 0, "gpus": 16, **ids("a1")},
        {"v": 1, "event": "done", "at": 1.5, "step": 6, **ids("a2")},
    ]


def test_a_later_supervisor_knows_how_often_the_trainer_was_started(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer(path)[0].emit("started", gpus=16)

    assert writer(path, "a2")[0].usage.starts == 1


def test_the_time_since_a_supervisor_that_ended_without_a_word_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer(path)[0].emit("started", gpus=16)

    later = writer(path, "a2")[0].usage

    assert (later.run_s(90_000), later.gpu_hours(90_000)) == (0, 0)


def test_a_cut_line_costs_itself_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "started", "at": 1}\n{"event": "st')

    writer(path)[0].emit("done")

    record = EventRecord(path, submission_id="", supervisor_id="")
    assert [event["event"] for event in record.read()] == ["started", "done"]


def test_without_room_the_log_has_every_event_and_the_loss_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events, output = writer(path)
    path.symlink_to("/dev/full")

    for step in (1, 2):
        events.emit("step", step=step)

    lines = output.getvalue().decode().splitlines()
    assert [line.startswith("rlstack-event ") for line in lines] == [True, False, True]
    assert "No space left on device" in lines[1]
