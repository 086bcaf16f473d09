"""Follows a job's log to the end of the job: through dropped connections, each character once.

Ray sends a log from its beginning on every connection, so what was seen before is counted and skipped. The end of a
stream is not the end of the job: the job's status decides.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from jobs.errors import DashboardRefused, DashboardUnreachable, PortForwardError
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import StackOutputs

if TYPE_CHECKING:
    from jobs.dashboard import Dashboard, Job

_EVERY_S = 2.0
_PATIENCE_S = 600.0


class LogFollower:
    """One job's log, handed on piece by piece."""

    def __init__(self, submission_id: str, hand_on: Callable[[str], None]) -> None:
        self._submission_id = submission_id
        self._hand_on = hand_on
        self._seen = 0

    def follow(self, dashboard: "Dashboard") -> "Job | None":
        """Hand on the log over one connection; returns the job if it has ended.

        Raises:
            DashboardUnreachable: the connection dropped; call again on a new one.
            JobNotFound: the dashboard does not know the job.
        """
        asyncio.run(self._tail(dashboard))
        job = dashboard.get_job(self._submission_id)
        if not job.status.is_final:
            return None
        # What was written between the end of the stream and the end of the job.
        self._take(dashboard.logs(self._submission_id))
        return job

    async def _tail(self, dashboard: "Dashboard") -> None:
        position = 0
        async with aclosing(dashboard.tail(self._submission_id)) as chunks:
            async for chunk in chunks:
                self._take(chunk, begin=position)
                position += len(chunk)

    def _take(self, text: str, *, begin: int = 0) -> None:
        fresh = text[max(0, self._seen - begin) :]
        if fresh:
            self._seen += len(fresh)
            self._hand_on(fresh)


def follow_to_the_end(
    outputs: StackOutputs, hand_on: Callable[[str], None], *, on_connected: Callable[[str], None]
) -> "Job":
    """Follow a stack's job until it ends.

    Args:
        outputs: the stack's.
        hand_on: given every piece of the log once, in order.
        on_connected: given the dashboard's address on each connection; it stays the same.

    Raises:
        DashboardUnreachable: no connection for ten minutes.
        PortForwardError: the same, on the way to the dashboard.
        JobNotFound: Ray does not know the job any more.
    """
    from jobs.port_forward import free_port  # noqa: PLC0415 - with ray and kr8s, when they are needed

    follower = LogFollower(outputs.job.submission_id, hand_on)
    port = free_port()
    failing_since: float | None = None
    while True:
        try:
            with open_stack_dashboard(outputs, local_port=port) as dashboard:
                on_connected(dashboard.url)
                while True:
                    job = follower.follow(dashboard)
                    if job:
                        return job
                    failing_since = None
                    time.sleep(_EVERY_S)
        except (DashboardUnreachable, DashboardRefused, PortForwardError) as error:
            if failing_since is None:
                failing_since = time.monotonic()
                print(f"connection lost, trying again: {error}", file=sys.stderr)
            elif time.monotonic() - failing_since > _PATIENCE_S:
                raise
            time.sleep(_EVERY_S)
