"""How a run stands, folded from its log's records: steps, rewards, checkpoints, starts.

Steps are those of the supervisor's events: it counts from the checkpoint that training resumed from, which the
trainer's banner does not.
"""

from dataclasses import dataclass, field
from statistics import fmean

from jobs.log_records import CheckpointRemoved, Record, SupervisorEvent

WINDOW_STEPS = 5
"""Rewards of single steps jump; the first and last few, averaged, tell whether training learns."""


@dataclass(kw_only=True)
class RunProgress:
    """The state of a run after the records so far.

    Attributes:
        step: the last complete step.
        max_steps: the step at which the run is done; none before the first start.
        attempt: starts of the trainer in the run's directory.
        kept: bytes of each checkpoint, by step.
        rewards: mean reward of each step; a step done twice counts as it was done last.
        cause: why the run failed, if it did.
    """

    step: int = 0
    max_steps: int | None = None
    attempt: int = 0
    kept: dict[int, int] = field(default_factory=dict)
    rewards: dict[int, float] = field(default_factory=dict)
    cause: str | None = None

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        match record:
            case CheckpointRemoved(step=step):
                self.kept.pop(step, None)
            case SupervisorEvent(event=event, fields=fields):
                self._add_event(event, record.step, fields)

    def _add_event(self, event: str, step: int | None, fields: dict[str, object]) -> None:
        match fields:
            case {"kept": dict(kept)}:
                self.kept = {int(key): size for key, size in kept.items() if isinstance(size, int)}
        match fields:
            case {"max_steps": int(max_steps)}:
                self.max_steps = max_steps
        match event, fields:
            case "started", {"attempt": int(attempt)}:
                self.attempt = attempt
            case "checkpoint", {"bytes": int(size)} if step is not None:
                self.kept[step] = size
            case "step", {"reward": int() | float() as reward} if step is not None:
                self.rewards[step] = float(reward)
            case "failed", {"cause": str(cause)}:
                self.cause = cause
        if step is not None and event != "checkpoint":
            self.step = step

    @property
    def first_reward(self) -> float | None:
        """Mean reward of the first steps seen."""
        return self._mean(list(self.rewards.values())[:WINDOW_STEPS])

    @property
    def last_reward(self) -> float | None:
        """Mean reward of the last steps seen."""
        return self._mean(list(self.rewards.values())[-WINDOW_STEPS:])

    @staticmethod
    def _mean(values: list[float]) -> float | None:
        return fmean(values) if values else None


def format_bytes(count: int) -> str:
    """Write a size in the decimal units that storage is sold in."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004 - a kilo
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


def format_reward(reward: float | None) -> str:
    """Write a reward, or that there is none yet."""
    return "-" if reward is None else f"{reward:.3f}"


def format_kept(kept: dict[int, int]) -> str:
    """Write checkpoints with their sizes, oldest first."""
    return ", ".join(f"step_{step} {format_bytes(size)}" for step, size in sorted(kept.items())) or "none"
