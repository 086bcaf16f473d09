"""How far training is, from the trainer's own lines, and whether it has stood still for too long.

Only what the supervisor acts upon is read here; `jobs/log_parser.py` reads everything for people. The lines are
NeMo-RL's, v0.4.0 to v0.7.0. Its banner counts steps within an epoch, so the run's step is counted from the checkpoint
that training resumed from, one for each step's timing, and put right by each save, which names the run's step.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RAY_PREFIX = re.compile(r"\([^()]*\b(?:pid|ip)=[^()]*\) ?")
_STEP_BANNER = re.compile(r"=+ Step \d+/\d+ =+")
_SAVING = re.compile(r"Saving checkpoint for step (\d+)\.\.\.")
_STEP_TIME = re.compile(r"• Total step time: (\d+(?:\.\d+)?)s")
_BLOCKING = re.compile(r"• checkpointing: (\d+(?:\.\d+)?)s .*")
_REWARD = re.compile(r"• Avg (?:Total )?Reward: (-?\d+(?:\.\d+)?)")
_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:: .*)?")
_MAX_CAUSE_CHARACTERS = 500
_ERRORS_KEPT = 50


class Phase(StrEnum):
    """What training is doing; each has its own limit."""

    SETUP = "setup"
    STEP = "step"
    SAVE = "save"


@dataclass(frozen=True, kw_only=True)
class StepDone:
    """A step's results, as the trainer printed them."""

    step: int
    step_time_s: float
    reward: float | None


@dataclass(kw_only=True)
class Progress:
    """Progress of one start of the trainer.

    Attributes:
        step: the last complete step of the run; at first the one resumed from.
        since: clock reading at which the phase began.
        phase: what training is doing.
        saves_s: step to the seconds for which its save held training up.
        reached_last_step: the trainer said that its last step is done.
        ran_out_of_time: the trainer said that its own time limit (`checkpoint_must_save_by`) ended it.
    """

    step: int
    since: float
    phase: Phase = Phase.SETUP
    saves_s: dict[int, float] = field(default_factory=dict)
    reached_last_step: bool = False
    ran_out_of_time: bool = False
    _reward: float | None = None
    _errors: deque[str] = field(default_factory=lambda: deque(maxlen=_ERRORS_KEPT))

    def read(self, line: str, now: float) -> StepDone | None:
        """Take in one line; returns the step that it completes."""
        text = _ANSI.sub("", line).strip()
        own = _RAY_PREFIX.sub("", text, count=1)
        if _ERROR.fullmatch(own[:_MAX_CAUSE_CHARACTERS]) and "RayTaskError" not in own:
            self._errors.append(own[:_MAX_CAUSE_CHARACTERS])
        if own != text:
            return None  # a worker's line: the driver alone tells how far the run is
        if _STEP_BANNER.fullmatch(text):
            if self.phase is Phase.SETUP:
                self._enter(Phase.STEP, now)
        elif match := _SAVING.fullmatch(text):
            self.step = int(match[1]) - 1
            self._enter(Phase.SAVE, now)
        elif match := _REWARD.fullmatch(text):
            self._reward = float(match[1])
        elif match := _STEP_TIME.fullmatch(text):
            self.step += 1
            self._enter(Phase.STEP, now)
            self._errors.clear()
            reward, self._reward = self._reward, None
            return StepDone(step=self.step, step_time_s=float(match[1]), reward=reward)
        elif match := _BLOCKING.fullmatch(text):
            self.saves_s[self.step] = float(match[1])  # after the step's own time
        elif text.startswith("Max number of steps has been reached"):
            self.reached_last_step = True
        elif text.startswith("Timeout has been reached"):
            self.ran_out_of_time = True
        return None

    def stalled(self, now: float, limits: dict[Phase, float]) -> Phase | None:
        """Return the phase that has outlasted its limit. Lines that complete nothing are no progress."""
        return self.phase if now - self.since > limits[self.phase] else None

    @property
    def cause(self) -> str | None:
        """The first error since the last complete step: what follows it is mostly its echo."""
        return self._errors[0] if self._errors else None

    def _enter(self, phase: Phase, now: float) -> None:
        self.phase, self.since = phase, now
