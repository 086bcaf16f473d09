"""Time as the supervisor takes it, so that tests and simulations bring their own."""

from typing import Protocol


class Clock(Protocol):
    """What `time` offers."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Let seconds pass."""
        ...
