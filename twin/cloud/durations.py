"""How long Google takes, in one table, and the clock that scales it.

The clock is $RLSTACK_TWIN_SPEED: simulated seconds per real second, 240 by default, so that a 30 minute Lustre
create takes 7.5 s and the order in which things end is the cloud's. 0 or `inf` is the fast clock: nothing waits.
"""

import asyncio
import math
import os
from dataclasses import dataclass
from typing import Literal

from jobs.errors import UsageError
from twin.cloud.store import ResourceType

SPEED_VARIABLE = "RLSTACK_TWIN_SPEED"
DEFAULT_SPEED = 240.0

Operation = Literal["create", "update", "delete"]


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Simulated seconds of one operation; an estimate is what people report, not what was measured."""

    seconds: float
    estimate: bool = True


# Not one of these was measured by this project: they are orders of magnitude, and nothing may depend on their values.
DURATIONS: dict[tuple[str, Operation], Duration] = {
    (ResourceType.NETWORK, "create"): Duration(seconds=20),
    (ResourceType.NETWORK, "delete"): Duration(seconds=20),
    (ResourceType.SUBNETWORK, "create"): Duration(seconds=20),
    (ResourceType.SUBNETWORK, "delete"): Duration(seconds=20),
    (ResourceType.CONNECTION, "create"): Duration(seconds=60),
    (ResourceType.CONNECTION, "delete"): Duration(seconds=30),
    (ResourceType.LUSTRE_INSTANCE, "create"): Duration(seconds=30 * 60),
    # Google's documentation speaks of up to 90 minutes for an expansion.
    (ResourceType.LUSTRE_INSTANCE, "update"): Duration(seconds=60 * 60),
    (ResourceType.LUSTRE_INSTANCE, "delete"): Duration(seconds=10 * 60),
    (ResourceType.CLUSTER, "create"): Duration(seconds=9 * 60),
    (ResourceType.CLUSTER, "update"): Duration(seconds=3 * 60),
    (ResourceType.CLUSTER, "delete"): Duration(seconds=5 * 60),
    (ResourceType.NODE_POOL, "create"): Duration(seconds=4 * 60),
    (ResourceType.NODE_POOL, "update"): Duration(seconds=2 * 60),
    (ResourceType.NODE_POOL, "delete"): Duration(seconds=3 * 60),
}
OTHERWISE = Duration(seconds=10)
"""What an operation that is not in the table takes."""

PRODUCER_RELEASE = Duration(seconds=4 * 60)
"""How long after its last Lustre instance a service producer goes on holding the connection."""


class Clock:
    """Simulated time that runs faster than real time; never blocks the event loop."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    @classmethod
    def from_environment(cls) -> "Clock":
        """Read $RLSTACK_TWIN_SPEED.

        Raises:
            UsageError: it is not a number, or negative.
        """
        text = os.environ.get(SPEED_VARIABLE, str(DEFAULT_SPEED))
        try:
            speed = float(text)
        except ValueError:
            speed = math.nan
        if not speed >= 0:
            message = (
                f"{SPEED_VARIABLE}={text}: the twin cannot keep time by it. Give simulated seconds per real second, "
            )
            raise UsageError(f"{message}for example {DEFAULT_SPEED:g}, or 0 to wait for nothing")
        return cls(speed or math.inf)

    def real_s(self, duration: Duration) -> float:
        """Return real seconds for a simulated duration; 0 on the fast clock."""
        return duration.seconds / self.speed

    async def wait(self, duration: Duration, cancelled: asyncio.Event) -> bool:
        """Wait for a simulated duration; False when `cancelled` was set before it was over."""
        try:
            await asyncio.wait_for(cancelled.wait(), timeout=self.real_s(duration))
        except TimeoutError:
            return True
        return False


def duration_of(type_: str, operation: Operation) -> Duration:
    """Look an operation up."""
    return DURATIONS.get((type_, operation), OTHERWISE)
