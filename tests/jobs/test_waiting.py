"""Waits without time passing: a deadline of zero still asks once."""

import pytest

from jobs.errors import WaitTimeout
from jobs.waiting import wait_until


def test_the_answer_is_returned_as_soon_as_there_is_one() -> None:
    answers = iter([None, "", "there"])

    assert wait_until(lambda: next(answers), timeout_s=60, every_s=0, doing="an answer") == "there"


def test_the_condition_is_asked_once_even_at_the_deadline() -> None:
    assert wait_until(lambda: 1, timeout_s=0, every_s=1, doing="an answer") == 1


def test_a_wait_in_vain_says_for_what() -> None:
    with pytest.raises(WaitTimeout, match="Waited 0 s for Ray job x to stop"):
        wait_until(lambda: None, timeout_s=0, every_s=1, doing="Ray job x to stop")
