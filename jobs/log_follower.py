"""Follows a job to its end: through dropped connections and a replaced head, each character of its log once.

Ray sends a log from its beginning on every connection, so what was seen before is counted and skipped. The end of a
stream is not the end of the job: the job's status decides. A head that is replaced takes its jobs with it; the next
`up` submits the run again, and that submission is followed from its first character.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from jobs.errors import (
    DashboardRefused,
    DashboardUnreachable,
    JobNotFound,
    PortForwardError,
    UsageError,
    WaitTimeout,
)
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import read_stack_outputs

if TYPE_CHECKING:
    from jobs.dashboard import Dashboard, Job

_EVERY_S = 2.0
_OUTPUTS_EVERY_S = 15.0
_PATIENCE_S = 600.0
_TELL_EVERY_S = 60.0


class LogFollower:
    """A log handed on piece by piece, over as many connections as it takes; of one job after the other."""

    def __init__(self, hand_on: Callable[[str], None]) -> None:
        self._hand_on = hand_on
        self._submission_id = ""
        self._submitted_ms: int | None = None
        self._seen = 0
        self._in_line = False

    def begin(self, job: "Job") -> None:
        """Turn to a job; one that is followed already goes on where it was.

        A new head knows no ids of the old one's, so that two jobs may have the same: the time of submission tells them
        apart.
        """
        if (job.submission_id, job.start_time_ms) == (self._submission_id, self._submitted_ms):
            return
        if self._in_line:
            self._hand_on("\n")  # what a lost head did not write to its end
        self._submission_id, self._submitted_ms = job.submission_id, job.start_time_ms
        self._seen, self._in_line = 0, False

    def tail(self, dashboard: "Dashboard") -> None:
        """Hand on what comes over one connection, until the server ends it.

        Raises:
            DashboardUnreachable: the connection dropped; call again on a new one.
            JobNotFound: the dashboard does not know the job.
        """
        asyncio.run(self._tail(dashboard))

    def read_rest(self, dashboard: "Dashboard") -> None:
        """Hand on all that is left of the log of a job that has ended; raises as `tail` does."""
        self._take(dashboard.logs(self._submission_id), begin=0)

    async def _tail(self, dashboard: "Dashboard") -> None:
        position = 0
        async with aclosing(dashboard.tail(self._submission_id)) as chunks:
            async for chunk in chunks:
                self._take(chunk, begin=position)
                position += len(chunk)

    def _take(self, text: str, *, begin: int) -> None:
        fresh = text[max(0, self._seen - begin) :]
        if fresh:
            self._seen += len(fresh)
            self._in_line = not fresh.endswith("\n")
            self._hand_on(fresh)


def follow_to_the_end(
    stack: str,
    follower: LogFollower | None,
    *,
    on_connected: Callable[[str], None] = lambda _: None,
    timeout_s: float | None = None,
    submission_id: str | None = None,
) -> "Job":
    """Follow a stack's job until it ends.

    Args:
        stack: whose job it is.
        follower: given every piece of the log once, in order; none where only the job's fate counts.
        on_connected: given the dashboard's address on each connection; it stays the same.
        timeout_s: seconds for the job to end; none for as long as it takes.
        submission_id: another job on the stack's cluster; no `up` submits it again when its head is lost.

    Raises:
        UsageError: the stack cannot be read.
        DashboardUnreachable: no connection for ten minutes.
        PortForwardError: the same, on the way to the dashboard.
        JobNotFound: Ray does not know the job; if it did, and lost it with its head, no other came for ten minutes.
        WaitTimeout: the job goes on.
    """
    from jobs.port_forward import free_port  # noqa: PLC0415 - with ray and kr8s, when they are needed

    outputs = read_stack_outputs(stack)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    port, patience = free_port(), _Patience()
    was_known = False
    while True:
        followed = submission_id or outputs.job.submission_id
        try:
            with open_stack_dashboard(outputs, local_port=port) as dashboard:
                on_connected(dashboard.url)
                while True:
                    # Asked before each stretch of log: with connections that drop early, none may see the log's end.
                    job = dashboard.get_job(followed)
                    was_known = True
                    patience.restore()
                    if follower:
                        follower.begin(job)
                        (follower.read_rest if job.status.is_final else follower.tail)(dashboard)
                    if job.status.is_final:
                        return job
                    _pause(_EVERY_S, followed, deadline)
        except JobNotFound as error:
            if submission_id or not was_known:
                raise
            patience.lose(f"{error}: the head that ran it was replaced. `up` submits it again; waiting for that", error)
            _pause(_OUTPUTS_EVERY_S, followed, deadline)
            with suppress(UsageError):  # an `up` in progress may have taken them away for a moment
                outputs = read_stack_outputs(stack)
        except (DashboardUnreachable, DashboardRefused, PortForwardError) as error:
            patience.lose(f"connection lost, trying again: {error}", error)
            _pause(_EVERY_S, followed, deadline)


def _pause(seconds: float, submission_id: str, deadline: float | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise WaitTimeout(
            f"Ray job {submission_id} has not ended by its deadline, and goes on. Wait again, or see how it stands: "
            "python -m jobs status"
        )
    time.sleep(seconds if deadline is None else min(seconds, max(0.0, deadline - time.monotonic())))


class _Patience:
    """Tells of trouble, though not at every turn, and raises it when it lasts."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told_at = -float("inf")

    def restore(self) -> None:
        """All is well."""
        self._since = None

    def lose(self, text: str, error: Exception) -> None:
        """Meet trouble; raises it if there has been nothing else for ten minutes."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > _PATIENCE_S:
            raise error
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            print(text, file=sys.stderr)
