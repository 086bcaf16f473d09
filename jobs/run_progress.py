"""How a run stands, folded from its log's records: steps, rewards, checkpoints, nodes, starts, goodput.

Steps are those of the supervisor's events: it counts from the checkpoint that training resumed from, which the
trainer's banner does not.
"""

from dataclasses import dataclass, field
from statistics import fmean

from jobs.log_records import CheckpointRemoved, Record, SupervisorEvent
from jobs.run_account import RunAccount

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
        step_times_s: seconds of each step.
        last_save: the newest checkpoint, and the seconds for which it held training up where that is known.
        nodes_alive: Ray nodes, as the last event says that tells of them.
        gpus_alive: their GPUs.
        cause: why the run failed or was stopped, where its supervisor says.
        account: where the time went.
    """

    step: int = 0
    max_steps: int | None = None
    attempt: int = 0
    kept: dict[int, int] = field(default_factory=dict)
    rewards: dict[int, float] = field(default_factory=dict)
    step_times_s: dict[int, float] = field(default_factory=dict)
    last_save: tuple[int, float | None] | None = None
    nodes_alive: int | None = None
    gpus_alive: int | None = None
    cause: str | None = None
    account: RunAccount = field(default_factory=RunAccount)

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        match record:
            case CheckpointRemoved(step=step):
                self.kept.pop(step, None)
            case SupervisorEvent(event=event, fields=fields):
                self.account.add(record)
                self._add_event(event, record.step, fields)

    def _add_event(self, event: str, step: int | None, fields: dict[str, object]) -> None:
        match fields:
            case {"kept": dict(kept)}:
                self.kept = {int(key): size for key, size in kept.items() if isinstance(size, int)}
        match fields:
            case {"max_steps": int(max_steps)}:
                self.max_steps = max_steps
        for names in (("nodes_alive", "gpus_alive"), ("nodes", "gpus")):
            match [fields.get(name) for name in names]:
                case [int(nodes), int(gpus)]:
                    self.nodes_alive, self.gpus_alive = nodes, gpus
        match event, fields:
            case "started", {"attempt": int(attempt)}:
                self.attempt = attempt
            case "checkpoint", {"bytes": int(size)} if step is not None:
                self.kept[step] = size
                held = fields.get("blocking_s")
                self.last_save = step, float(held) if isinstance(held, int | float) else None
            case "step", _ if step is not None:
                if isinstance(reward := fields.get("reward"), int | float):
                    self.rewards[step] = float(reward)
                if isinstance(took := fields.get("step_time_s"), int | float):
                    self.step_times_s[step] = float(took)
            case (("failed" | "stopped"), {"cause": str(cause)}):
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

    @property
    def saving_share(self) -> float | None:
        """Share of its step's time for which the last save held training up; none where one of both is unknown."""
        step, held = self.last_save or (0, None)
        took = self.step_times_s.get(step)
        return held / took if held is not None and took else None

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


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units; a short one in tenths."""
    if 0 < seconds < 0.1:  # noqa: PLR2004
        return f"{seconds * 1000:.1f} ms"
    if 0 < seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small} {smaller}"
    return f"{whole} s"


def format_reward(reward: float | None) -> str:
    """Write a reward, or that there is none yet."""
    return "-" if reward is None else f"{reward:.3f}"


def format_kept(kept: dict[int, int]) -> str:
    """Write checkpoints with their sizes, oldest first."""
    return ", ".join(f"step_{step} {format_bytes(size)}" for step, size in sorted(kept.items())) or "none"
