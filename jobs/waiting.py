"""The one way to wait: a condition, a deadline, a period, and a sentence for the day it does not come true."""

import time
from collections.abc import Callable
from typing import TypeVar

from jobs.errors import WaitTimeout

Value = TypeVar("Value")


def wait_until(
    condition: Callable[[], Value | None],
    *,
    timeout_s: float,
    every_s: float,
    doing: str,
) -> Value:
    """Ask until there is an answer.

    Args:
        condition: returns something true when it is reached; asked at least once.
        timeout_s: seconds after which no further attempt is made.
        every_s: seconds between two attempts.
        doing: what is waited for, with object and place; completes "Waited 60 s for ...".

    Raises:
        WaitTimeout: the condition was still not true at the deadline.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise WaitTimeout(f"Waited {timeout_s:.0f} s for {doing}, in vain")
        time.sleep(min(every_s, left_s))
    return value
