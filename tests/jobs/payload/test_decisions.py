"""One line for each way in which a trainer can end."""

from typing import Any

import pytest

from jobs.payload.decisions import MAX_LOSSES, Ending, Judge, Verdict

LAST_STEP = 20


def ending(**changes: Any) -> Ending:
    plain = {
        "exit_code": 1,
        "step": 3,
        "newest_checkpoint": 2,
        "reached_last_step": False,
        "nodes_lost": False,
        "stalled": False,
    }
    return Ending(**{**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"exit_code": 0, "step": LAST_STEP}, Verdict.DONE),
        ({"exit_code": 0, "reached_last_step": True}, Verdict.DONE),
        ({"exit_code": 0, "step": 0, "newest_checkpoint": LAST_STEP}, Verdict.DONE),
        ({"exit_code": 1, "newest_checkpoint": LAST_STEP}, Verdict.DONE),
        ({"exit_code": 0}, Verdict.STOPPED),
        ({"exit_code": 0, "step": LAST_STEP - 1}, Verdict.STOPPED),
        ({"exit_code": 1, "step": LAST_STEP}, Verdict.RETRY),
        ({"exit_code": 1}, Verdict.RETRY),
        ({"exit_code": 137, "nodes_lost": True}, Verdict.RECOVER),
        ({"exit_code": 0, "stalled": True}, Verdict.RETRY),
        ({"exit_code": 143, "stalled": True, "nodes_lost": True}, Verdict.RECOVER),
    ],
)
def test_each_ending_has_its_verdict(changes: dict[str, Any], verdict: Verdict) -> None:
    assert Judge(max_steps=LAST_STEP, max_crashes=3).judge(ending(**changes)) is verdict


def test_crashes_in_a_row_without_a_step_gained_end_the_run() -> None:
    judge = Judge(max_steps=LAST_STEP, max_crashes=3)

    assert [judge.judge(ending(step=3)) for _ in range(3)] == [Verdict.RETRY, Verdict.RETRY, Verdict.FAILED]


def test_a_step_gained_forgives_the_crashes_before_it() -> None:
    judge = Judge(max_steps=LAST_STEP, max_crashes=2)

    assert [judge.judge(ending(step=step)) for step in (3, 4, 5, 5)] == [*[Verdict.RETRY] * 3, Verdict.FAILED]


def test_a_training_that_takes_its_own_node_down_every_time_comes_to_an_end() -> None:
    judge = Judge(max_steps=LAST_STEP, max_crashes=2)
    verdicts = [judge.judge(ending(nodes_lost=True, step=3)) for _ in range(MAX_LOSSES)]

    assert verdicts == [*[Verdict.RECOVER] * (MAX_LOSSES - 1), Verdict.LOST_TOO_OFTEN]
    assert judge.judge(ending(nodes_lost=True, step=4)) is Verdict.RECOVER


def test_lost_nodes_neither_count_as_crashes_nor_forgive_them() -> None:
    judge = Judge(max_steps=LAST_STEP, max_crashes=2)
    verdicts = [judge.judge(ending(nodes_lost=lost)) for lost in (True, False, True, True, False)]

    assert verdicts == [Verdict.RECOVER, Verdict.RETRY, Verdict.RECOVER, Verdict.RECOVER, Verdict.FAILED]
