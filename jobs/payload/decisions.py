"""What to do after the trainer has ended: no files, no processes, no clock, so that every case is a line in a test."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What follows from an ending."""

    DONE = "done"
    STOPPED = "stopped"
    RECOVER = "recover"
    LOST_TOO_OFTEN = "lost too often"
    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one start of the trainer ended.

    Attributes:
        exit_code: of the training command.
        step: the last complete step of the run.
        newest_checkpoint: the step of the newest checkpoint on disk; 0 for none.
        reached_last_step: the trainer said so.
        nodes_lost: nodes that were there when training started and are gone.
        stalled: the supervisor ended it, since nothing moved.
    """

    exit_code: int
    step: int
    newest_checkpoint: int
    reached_last_step: bool
    nodes_lost: bool
    stalled: bool


MAX_LOSSES = 10
"""A training that exhausts its node's memory takes Ray's node with it, each time at the same step."""


class Judge:
    """Tells endings apart, and remembers crashes across restarts.

    | ending | verdict |
    |---|---|
    | the last step is reached, and the command ended well or its checkpoint exists | done |
    | a node is gone | recover, but lost too often after `MAX_LOSSES` in a row without a step gained |
    | stalled, or an exit code other than 0 | retry, but failed after `max_crashes` in a row without a step gained |
    | exit code 0 before the last step | stopped: the trainer meant it |
    """

    def __init__(self, *, max_steps: int, max_crashes: int) -> None:
        self._max_steps = max_steps
        self._max_crashes = max_crashes
        self._furthest_step = 0
        self.crashes = 0
        self.losses = 0

    def judge(self, ending: Ending) -> Verdict:
        """Decide on one ending; counts it if it is a crash."""
        if ending.newest_checkpoint >= self._max_steps:
            return Verdict.DONE
        if ending.exit_code == 0 and not ending.stalled:
            reached = ending.reached_last_step or ending.step >= self._max_steps
            return Verdict.DONE if reached else Verdict.STOPPED
        if ending.step > self._furthest_step:
            self._furthest_step = ending.step
            self.crashes = self.losses = 0
        if ending.nodes_lost:
            self.losses += 1
            return Verdict.LOST_TOO_OFTEN if self.losses >= MAX_LOSSES else Verdict.RECOVER
        self.crashes += 1
        return Verdict.FAILED if self.crashes >= self._max_crashes else Verdict.RETRY
