"""The summary tells how a run stands, and an attempt that went on does not remember why the one before it ended."""

from pathlib import Path
from unittest.mock import ANY

import pytest

from jobs.log_parser import LogParser
from jobs.log_records import FailureClass, Outcome, Summary
from jobs.log_summary import LogSummary

DATA = Path(__file__).with_name("data")
SETUP = "SETUP COMPLETE\n"
STEP = "=== Step 1/9 ===\n📊 Training Results:\n  • Total step time: 9.00s\n\n"
LOST = "ray.exceptions.ActorDiedError: The actor died unexpectedly\n"
BOOM = "RuntimeError: boom\n"


def event(name: str, fields: str = "") -> str:
    return f'rlstack-event {{"v":1,"event":"{name}","at":1{fields}}}\n'


def summarize(log: str) -> Summary:
    parser, summary = LogParser(), LogSummary()
    for record in [*parser.feed(log.encode()), *parser.close()]:
        summary.add(record)
    return summary.summary(line=parser.line)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sync_megatron_v0.4.0.log", (6, (4, 6), None, 2, Outcome.DONE, None)),
        ("async_dtensor_v0.7.0.log", (2, (2,), None, 1, Outcome.STOPPED, None)),
        ("storage_full_v0.5.0.log", (1, (), 2, 1, Outcome.FAILED, FailureClass.STORAGE_FULL)),
    ],
)
def test_saved_logs(name: str, expected: tuple[object, ...]) -> None:
    summary = summarize((DATA / name).read_text(encoding="utf-8"))
    assert expected == (
        summary.last_complete_step,
        summary.usable_checkpoints,
        summary.interrupted_save,
        summary.attempts,
        summary.outcome,
        summary.failure_class,
    )


@pytest.mark.parametrize(
    ("log", "outcome", "failure", "cause"),
    [
        ("", Outcome.UNFINISHED, None, None),
        (SETUP + STEP, Outcome.UNFINISHED, None, None),
        (SETUP + BOOM, Outcome.FAILED, FailureClass.CRASH, "RuntimeError: boom"),
        (SETUP + BOOM + STEP, Outcome.UNFINISHED, None, None),
        (SETUP + BOOM + SETUP, Outcome.UNFINISHED, None, None),
        (BOOM + LOST, Outcome.FAILED, FailureClass.CRASH, "RuntimeError: boom"),
        (LOST + event("lost_node"), Outcome.FAILED, FailureClass.NODE_LOSS, LOST.strip()),
        (LOST + event("lost_node") + event("resumed"), Outcome.UNFINISHED, None, None),
        (BOOM + event("done"), Outcome.DONE, None, None),
        (BOOM + event("stopped"), Outcome.STOPPED, None, None),
        (BOOM + event("crashed"), Outcome.FAILED, FailureClass.CRASH, "RuntimeError: boom"),
        (event("failed"), Outcome.FAILED, FailureClass.CRASH, None),
        (event("failed", ',"cause":"no GPUs in 3600 s"'), Outcome.FAILED, FailureClass.CRASH, "no GPUs in 3600 s"),
        (event("failed", ',"cause":"only 8 of 16 GPUs on 1 nodes"'), Outcome.FAILED, FailureClass.CAPACITY, ANY),
        (event("failed", ',"cause":"/c/step_2 holds a checkpoint of A"'), Outcome.FAILED, FailureClass.CONFIG, ANY),
        (event("stalled") + event("failed"), Outcome.FAILED, FailureClass.STALL, None),
        (event("lost_node") + event("stalled"), Outcome.FAILED, FailureClass.NODE_LOSS, None),
        (event("stalled") + event("lost_node") + event("failed"), Outcome.FAILED, FailureClass.NODE_LOSS, None),
        (event("stalled") + event("resumed"), Outcome.UNFINISHED, None, None),
        (event("failed", ',"cause":["x"]'), Outcome.FAILED, FailureClass.CRASH, None),
        (event("done") + event("started"), Outcome.UNFINISHED, None, None),
    ],
)
def test_outcome_and_cause(log: str, outcome: Outcome, failure: FailureClass | None, cause: str | None) -> None:
    summary = summarize(log)
    assert (summary.outcome, summary.failure_class, summary.root_cause) == (outcome, failure, cause)


def test_the_supervisor_outranks_the_trainer() -> None:
    end = "Max number of steps has been reached, stopping training early\n"
    assert summarize(end).outcome is Outcome.DONE
    assert summarize(end + event("failed")).outcome is Outcome.FAILED


def test_checkpoint_that_the_supervisor_saw_is_usable_and_no_longer_interrupted() -> None:
    saving = "Saving checkpoint for step 4...\n"
    assert summarize(saving).interrupted_save == 4
    summary = summarize(saving + event("checkpoint", ',"step":4'))
    assert (summary.interrupted_save, summary.usable_checkpoints) == (None, (4,))


def test_unreadable_events_are_counted() -> None:
    assert summarize("rlstack-event {\nrlstack-event []\n").unreadable_events == 2


def test_checkpoints_remembered_are_bounded_and_the_newest() -> None:
    steps = summarize("".join(event("checkpoint", f',"step":{step}') for step in range(10_003))).usable_checkpoints
    assert (len(steps), steps[0], steps[-1]) == (10_000, 3, 10_002)
