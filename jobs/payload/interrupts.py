"""What can end a run from outside: a signal, a lost lease, a request by file, a limit that is reached.

`pause` and `obey` are called throughout; either raises `StopRequested` when the end is now. A stop after the next
checkpoint is taken note of here and carried out by whoever sees that checkpoint.
"""

from jobs.payload.allowance import Allowance
from jobs.payload.clock import Clock
from jobs.payload.control import Action, Control
from jobs.payload.endings import StopReason, StopRequested
from jobs.payload.lease import Lease

TICK_S = 0.2


class Interrupts:
    """All wishes for an end, in one place."""

    def __init__(
        self, *, clock: Clock, lease: Lease, control: Control, allowance: Allowance, save_limit_s: float
    ) -> None:
        """Watch for an end.

        Args:
            clock: what pauses are taken on.
            lease: this supervisor's claim on the run.
            control: requests by file.
            allowance: limits of time and GPUs.
            save_limit_s: seconds to wait for a checkpoint once a limit is reached.
        """
        self._clock = clock
        self._lease = lease
        self._control = control
        self._allowance = allowance
        self._save_limit_s = save_limit_s
        self._signalled = False
        self._after_checkpoint: StopRequested | None = None
        self._deadline = float("inf")

    def signal(self) -> None:
        """Take note of a signal; acted upon within a tick."""
        self._signalled = True

    @property
    def is_signalled(self) -> bool:
        """Whether every moment counts."""
        return self._signalled

    def pause(self, seconds: float = TICK_S) -> None:
        """Let a moment pass; raises if the end is now."""
        self._clock.sleep(seconds)
        if self._signalled:
            raise StopRequested(StopReason.SIGNAL)
        if self._lease.is_lost:
            raise StopRequested(StopReason.LEASE, self._lease.problem)

    def obey(self) -> None:
        """Act upon a request by file and upon the limits; raises if the end is now."""
        match self._control.take():
            case Action.STOP_NOW:
                raise StopRequested(StopReason.CONTROL)
            case Action.STOP_AFTER_CHECKPOINT:
                self._after_checkpoint = StopRequested(StopReason.CONTROL)
            case Action.HAND_OVER:
                self._after_checkpoint = StopRequested(StopReason.HAND_OVER)
        now = self._clock.monotonic()
        if self._deadline == float("inf") and (spent := self._allowance.spent()):
            self._after_checkpoint = self._after_checkpoint or spent
            self._deadline = now + self._save_limit_s
        if self._after_checkpoint and now > self._deadline:
            raise self._after_checkpoint

    def at_checkpoint(self) -> None:
        """Raise if a stop waits for this: there is a new checkpoint, or nothing that could make one."""
        if self._after_checkpoint:
            raise self._after_checkpoint
