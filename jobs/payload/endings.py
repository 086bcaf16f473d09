"""How a run can end: exit codes, reasons of a planned stop, and the two exceptions that carry an end upwards."""

import signal
from enum import StrEnum

EXIT_FAILED = 1
EXIT_PLANNED_STOP = 75  # EX_TEMPFAIL of sysexits.h: try again later
EXIT_SIGNAL = 128 + signal.SIGTERM
END_EVENTS = frozenset({"done", "failed", "stopped"})
"""The last event of a supervisor is one of these."""


class StopReason(StrEnum):
    """Why a run was stopped before its last step.

    The first two come from outside and leave workers as they are: Ray ends the job for a resubmission, or another
    supervisor has the run. All others are planned stops.
    """

    SIGNAL = "signal"
    LEASE = "lease"
    CONTROL = "control"
    HAND_OVER = "hand_over"
    TIME = "time"
    EARLY_EXIT = "early_exit"
    RUN_LIMIT = "run_limit"
    BUDGET = "budget"

    @property
    def is_planned(self) -> bool:
        """Whether it came in an orderly way, with the time to say what is kept."""
        return self not in {StopReason.SIGNAL, StopReason.LEASE}

    @property
    def gives_workers_back(self) -> bool:
        """Whether nobody is about to use the run's GPUs."""
        return self.is_planned and self is not StopReason.HAND_OVER


class StopRequested(Exception):
    """Training must end now, for the reason given; `cause` says more where a reason does not say all."""

    def __init__(self, reason: StopReason, cause: str | None = None) -> None:
        super().__init__(cause or reason)
        self.reason = reason
        self.cause = cause


class Unrecoverable(Exception):
    """The run cannot go on; the text is the cause."""
