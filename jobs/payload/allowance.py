"""What a run has used, over all its Ray jobs, and whether it may go on.

Counted from its events, those of earlier jobs included (`event_record.py`). Time runs while a supervisor is on the run,
waiting included; the pause until a resubmission is nobody's. GPUs count from the moment that they are alive, training
or not, as they are billed so. After a supervisor's sudden end nothing is known beyond its last event, and nothing more
is counted.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.payload.endings import END_EVENTS, StopReason, StopRequested

_GPU_FIELDS = {"waiting": "gpus_alive", "lost_node": "gpus_alive", "started": "gpus"}
_SECONDS_PER_HOUR = 3600


class Usage:
    """Folds events, in order, into seconds and GPU-seconds.

    Attributes:
        starts: how often the trainer was started.
    """

    def __init__(self) -> None:
        self.starts = 0
        self._run_s = 0.0
        self._gpu_s = 0.0
        self._gpus = 0
        self._at: float | None = None
        self._writer: object = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Take the next event into account."""
        # A new head gives the ids of the old one's jobs again.
        writer, at = (event.get("submission_id"), event.get("supervisor_id")), event.get("at")
        if not isinstance(at, int | float):
            return
        if writer != self._writer:
            self._writer = writer
            self.pause()
        self._run_s, self._gpu_s = self.run_s(at), self._gpu_seconds(at)
        kind = event.get("event")
        self._at = None if kind in END_EVENTS else at
        gpus = event.get(_GPU_FIELDS.get(str(kind), ""))
        self._gpus = gpus if isinstance(gpus, int) else self._gpus
        self.starts += kind == "started"

    def pause(self) -> None:
        """Count nothing from the last event to the next: nobody was on the run."""
        self._at, self._gpus = None, 0

    def run_s(self, now: float) -> float:
        """Seconds that a supervisor was on the run, up to a moment (seconds since 1970)."""
        return self._run_s + self._open_s(now)

    def gpu_hours(self, now: float) -> float:
        """GPU-hours of the run, up to a moment (seconds since 1970)."""
        return self._gpu_seconds(now) / _SECONDS_PER_HOUR

    def _gpu_seconds(self, now: float) -> float:
        return self._gpu_s + self._open_s(now) * self._gpus

    def _open_s(self, now: float) -> float:
        return 0.0 if self._at is None else max(0.0, now - self._at)


class Allowance:
    """The run's limits against what it has used."""

    def __init__(
        self, usage: Usage, *, now: Callable[[], float], max_run_s: float | None, budget_gpu_hours: float | None
    ) -> None:
        """Hold a usage that goes on to be counted against limits.

        Args:
            usage: fed by whoever writes events.
            now: seconds since 1970, as events are stamped.
            max_run_s: seconds that the run may take; none for no limit.
            budget_gpu_hours: GPU-hours that it may use; none for no limit.
        """
        self._usage = usage
        self._now = now
        self._max_run_s = max_run_s
        self._budget_gpu_hours = budget_gpu_hours

    def spent(self) -> StopRequested | None:
        """Return the stop that follows when a limit is reached."""
        now = self._now()
        run_s, gpu_hours = self._usage.run_s(now), self._usage.gpu_hours(now)
        if self._max_run_s is not None and run_s >= self._max_run_s:
            return StopRequested(
                StopReason.RUN_LIMIT,
                f"the run has taken {run_s:.0f} s of the {self._max_run_s:.0f} s that job.limits.max_run_s allows; "
                "raise it to go on from the newest checkpoint",
            )
        if self._budget_gpu_hours is not None and gpu_hours >= self._budget_gpu_hours:
            return StopRequested(
                StopReason.BUDGET,
                f"the run has used {gpu_hours:.2f} of the {self._budget_gpu_hours:g} GPU-hours that "
                "job.budget_gpu_hours allows; raise it to go on from the newest checkpoint",
            )
        return None
