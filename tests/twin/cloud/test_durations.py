"""The scaled clock."""

import asyncio
import math

import pytest

from jobs.errors import UsageError
from twin.cloud.durations import DEFAULT_SPEED, SPEED_VARIABLE, Clock, Duration

HOUR = Duration(seconds=3600)


@pytest.mark.parametrize("text", ["0", "inf"])
def test_the_fast_clock_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(SPEED_VARIABLE, text)
    clock = Clock.from_environment()
    assert clock.real_s(HOUR) == 0
    assert asyncio.run(clock.wait(HOUR, asyncio.Event())) is True


def test_the_clock_runs_at_the_default_speed_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SPEED_VARIABLE, raising=False)
    assert Clock.from_environment().real_s(HOUR) == 3600 / DEFAULT_SPEED


@pytest.mark.parametrize("text", ["fast", "-1", "", "nan"])
def test_a_speed_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(SPEED_VARIABLE, text)
    with pytest.raises(UsageError, match=SPEED_VARIABLE):
        Clock.from_environment()


def test_an_interrupted_wait_says_so_at_once() -> None:
    cancelled = asyncio.Event()
    cancelled.set()
    assert asyncio.run(Clock(1 / math.e).wait(HOUR, cancelled)) is False
