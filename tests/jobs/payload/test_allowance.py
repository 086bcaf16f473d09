"""What a run has used, from events as supervisors write them, and which limit that reaches."""

from typing import Any

import pytest

from jobs.payload.allowance import Allowance, Usage
from jobs.payload.endings import StopReason


def event(kind: str, at: float, *, job: str = "a1", **fields: Any) -> dict[str, Any]:
    return {"event": kind, "at": at, "submission_id": job, **fields}


def usage(*events: dict[str, Any]) -> Usage:
    folded = Usage()
    for item in events:
        folded.add(item)
    return folded


WAITING = event("waiting", 0, gpus_alive=8)
STARTED = event("started", 3600, gpus=16)


def test_gpus_count_from_the_moment_that_they_are_there() -> None:
    used = usage(WAITING, STARTED, event("step", 5400))

    assert used.gpu_hours(7200) == 8 + 16
    assert used.run_s(7200) == 7200
    assert used.starts == 1


def test_after_a_lost_node_what_is_left_goes_on_to_count() -> None:
    assert usage(STARTED, event("lost_node", 7200, gpus_alive=8)).gpu_hours(10_800) == 16 + 8


@pytest.mark.parametrize("end", ["done", "failed", "stopped"])
def test_between_an_end_and_the_next_job_nothing_counts(end: str) -> None:
    used = usage(STARTED, event(end, 7200), event("waiting", 50_000, job="a2", gpus_alive=0))

    assert used.run_s(50_010) == 3600 + 10
    assert used.gpu_hours(50_010) == 16


def test_a_supervisor_that_ended_without_a_word_counts_up_to_its_last_one() -> None:
    used = usage(STARTED, event("step", 7200), event("waiting", 90_000, job="a2", gpus_alive=16))

    assert used.gpu_hours(90_000) == 16


def test_a_new_head_that_gives_the_same_id_again_is_another_supervisor() -> None:
    first = [{**each, "supervisor_id": "first"} for each in (STARTED, event("step", 7200))]
    second = {**event("waiting", 90_000, gpus_alive=16), "supervisor_id": "second"}

    assert usage(*first, second).gpu_hours(90_000) == 16


def test_what_is_no_event_counts_for_nothing() -> None:
    assert usage(STARTED, {}, {"at": "noon"}).gpu_hours(7200) == 16


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_run_s": 3601, "budget_gpu_hours": 16.01}, None),
        ({"max_run_s": 3600, "budget_gpu_hours": None}, StopReason.RUN_LIMIT),
        ({"max_run_s": None, "budget_gpu_hours": 16}, StopReason.BUDGET),
        ({"max_run_s": None, "budget_gpu_hours": None}, None),
    ],
)
def test_each_limit_has_a_reason_of_its_own(limits: dict[str, float | None], reason: StopReason | None) -> None:
    stop = Allowance(usage(STARTED), now=lambda: 7200, **limits).spent()

    assert (stop and stop.reason) == reason
