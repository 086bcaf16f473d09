"""A stop that loses no work: the supervisor is asked, by a file on Lustre, to end after its next checkpoint."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jobs.errors import (
    DashboardUnreachable,
    HeadExecError,
    JobNotFound,
    PortForwardError,
    RayJobError,
    WaitTimeout,
)
from jobs.payload.control import Action
from jobs.run_on_head import DISCARD_VARIABLE, RunOnHead
from jobs.waiting import wait_until

if TYPE_CHECKING:
    from jobs.dashboard import Dashboard, Job

_KILL_TIMEOUT_S = 40.0
_EVERY_S = 2.0
_PATIENCE_S = 300.0  # without an answer; a head that is replaced takes a minute or two


def wait_for_end(dashboard: "Dashboard", submission_id: str, *, timeout_s: float, doing: str) -> "Job":
    """Wait until Ray calls a job ended.

    Raises:
        WaitTimeout: it has not ended.
        DashboardError: the dashboard did not answer, or does not know the job.
    """
    return wait_until(
        lambda: dashboard.get_final(submission_id),
        timeout_s=timeout_s,
        every_s=_EVERY_S,
        doing=f"Ray job {submission_id} to {doing}",
    )


def kill(dashboard: "Dashboard", submission_id: str) -> "Job":
    """Have Ray stop a job at once; steps since its newest checkpoint are lost.

    Raises:
        WaitTimeout: it goes on.
        DashboardError: the dashboard did not answer, or does not know the job.
    """
    dashboard.stop(submission_id)
    return wait_for_end(dashboard, submission_id, timeout_s=_KILL_TIMEOUT_S, doing="stop")


def stop_saved(
    connect: Callable[[], AbstractContextManager["Dashboard"]],
    submission_id: str,
    run: RunOnHead,
    *,
    timeout_s: float,
    is_protected: bool,
) -> None:
    """End a job after its next checkpoint, or, where that cannot be and nothing protects its work, at once.

    Its GPU nodes are not given back: whoever replaces the job needs them, and a destroy takes them with the pods.

    Args:
        connect: opens the way to the job's dashboard; more than once, as a way lasts no longer than its credential.
        submission_id: the job; one that has ended stays as it is.
        run: where its supervisor can be asked.
        timeout_s: seconds for it to reach a checkpoint.
        is_protected: whether it goes on if it reaches none.

    Raises:
        RayJobError: its work is protected and could not be saved; it goes on.
        DashboardError: the dashboard did not do its part, or does not know the job.
        PortForwardError: there is no way to it.
        WaitTimeout: it did not stop though Ray was told to.
    """
    with connect() as dashboard:
        job = dashboard.get_job(submission_id)
        if job.status.is_final:
            return
        if job.status == "PENDING":  # no supervisor yet, and no work
            kill(dashboard, submission_id)
            return
    print(f"Ray job {submission_id} is asked to stop after its next checkpoint, for {timeout_s:.0f} s at most")
    try:
        run.request(Action.HAND_OVER, submission_id=submission_id)
        ended = _wait_through_drops(connect, submission_id, timeout_s=timeout_s)
    except HeadExecError as error:
        trouble = f"it could not be asked ({error})"
    except (DashboardUnreachable, PortForwardError) as error:
        trouble = f"it was asked, and has not been heard of for {_PATIENCE_S:.0f} s ({error})"
    except WaitTimeout:
        trouble = f"it reached no checkpoint within job.stop_timeout_s ({timeout_s:.0f} s)"
    else:
        print(f"Ray job {submission_id} has ended: {ended}")
        return
    if is_protected:
        raise RayJobError(
            f"Ray job {submission_id} goes on: {trouble}, and job.protect_unsaved_work is on. If it was asked, it "
            "still stops at its next checkpoint: type the command again then; its GPU nodes stay, and are paid for, "
            f"until you do. To lose the steps since the newest checkpoint instead, set {DISCARD_VARIABLE} to the job's "
            "name and type it again"
        )
    print(f"Ray job {submission_id} is stopped at once: {trouble}. Steps since its newest checkpoint are lost")
    with connect() as dashboard:
        kill(dashboard, submission_id)


def _wait_through_drops(
    connect: Callable[[], AbstractContextManager["Dashboard"]], submission_id: str, *, timeout_s: float
) -> str:
    """Wait for a job's end on as many connections as it takes; returns how it ended."""
    deadline = time.monotonic() + timeout_s
    heard_at = time.monotonic()
    while True:
        try:
            with connect() as dashboard:
                while not (job := dashboard.get_final(submission_id)):
                    heard_at = time.monotonic()
                    if heard_at >= deadline:
                        raise WaitTimeout(f"Ray job {submission_id} has not ended")
                    time.sleep(_EVERY_S)
                return job.status
        except JobNotFound:
            return "gone with its head"
        except (DashboardUnreachable, PortForwardError):
            if time.monotonic() - heard_at > _PATIENCE_S:
                raise
            time.sleep(_EVERY_S)
