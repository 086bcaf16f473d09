"""Accounts for every second of a run, from the supervisor's events alone: what was kept, lost, waited for, saved.

Pure folding of events in order. Every second between the first event and the last goes to one part of the account, so
that the parts add up to the wall time. Steps count as lost when training went on, or would go on, from an older
checkpoint. What happened after a supervisor's last word is not known: it counts as time without a supervisor, the step
under way included.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from jobs.log_records import SupervisorEvent
from jobs.payload.endings import END_EVENTS


class InterruptionKind(StrEnum):
    """What ended a start of the trainer before the run was done."""

    NODE_LOSS = "node loss"
    CRASH = "crash"
    STALL = "stall"
    STOP = "stop"
    FAILURE = "failure"
    SUPERVISOR_LOSS = "supervisor lost"


@dataclass(kw_only=True)
class Interruption:
    """One interruption and what it cost.

    Attributes:
        kind: what it was; a supervisor is lost with its head, its job or by a kill, and says nothing.
        at: seconds since 1970.
        step: the last complete step before it.
        reason: a stop's reason in the supervisor's words, else none.
        steps_lost: complete steps that have to be done again.
        lost_s: seconds of these, and of the step under way.
        waited_s: seconds of waiting for nodes until the next start.
        setup_s: seconds of set-up until the next step began.
        unsupervised_s: seconds until a supervisor was there again.
    """

    kind: InterruptionKind
    at: float
    step: int
    reason: str | None = None
    steps_lost: int = 0
    lost_s: float = 0.0
    waited_s: float = 0.0
    setup_s: float = 0.0
    unsupervised_s: float = 0.0


class _Phase(StrEnum):
    """What the time from the last event on is spent on; the values name the fields of the account."""

    WAITING = "waited_s"
    LEASE = "lease_s"
    SETUP = "setup_s"
    TRAINING = "training_s"
    UNSUPERVISED = "unsupervised_s"


@dataclass(frozen=True, kw_only=True)
class _Step:
    step: int
    seconds: float


_INTERRUPTIONS = {
    "lost_node": InterruptionKind.NODE_LOSS,
    "crashed": InterruptionKind.CRASH,
    "stalled": InterruptionKind.STALL,
    "stopped": InterruptionKind.STOP,
    "failed": InterruptionKind.FAILURE,
}
_BEGINNINGS = frozenset({"waiting", "resumed", "started"})
_WAITING_PHASES = {"lease": _Phase.LEASE, "prefetch": _Phase.SETUP}


@dataclass(kw_only=True)
class RunAccount:
    """The account of a run after the events so far.

    Attributes:
        wall_s: seconds from the first event to the last.
        waited_s: seconds of waiting for nodes, and for them to settle.
        lease_s: seconds of waiting for another supervisor's lease to end.
        setup_s: seconds of the trainer's starts and ends: no step was under way.
        unsupervised_s: seconds without a supervisor.
        lost_s: seconds of steps that were lost.
        starts: starts of the trainer.
        submissions: Ray jobs that wrote events.
        interruptions: each of them, in order.
        outcome: `done`, `stopped` or `failed` if that was the last word, else none.
    """

    wall_s: float = 0.0
    waited_s: float = 0.0
    lease_s: float = 0.0
    setup_s: float = 0.0
    unsupervised_s: float = 0.0
    lost_s: float = 0.0
    starts: int = 0
    submissions: int = 0
    interruptions: list[Interruption] = field(default_factory=list)
    outcome: str | None = None
    _phase: _Phase = _Phase.UNSUPERVISED
    _at: float | None = None
    _submission_id: object = None
    _open_s: float = 0.0  # since the last step, or since the trainer's start
    _has_stepped: bool = False
    _kept: list[_Step] = field(default_factory=list)
    _kept_s: float = 0.0  # of these
    _undone: list[_Step] = field(default_factory=list)  # of the open interruption
    _saves: dict[int, float] = field(default_factory=dict)
    _saving_s: float = 0.0  # of these
    _newest_checkpoint: int = 0
    _open: Interruption | None = None

    @property
    def saving_s(self) -> float:
        """Seconds for which saves held kept steps up."""
        return self._saving_s

    @property
    def training_s(self) -> float:
        """Seconds in steps that were kept, the one under way included, saving not."""
        under_way = self._open_s if self._phase is _Phase.TRAINING and self._has_stepped else 0.0
        return self._kept_s + under_way - self._saving_s

    @property
    def goodput(self) -> float | None:
        """Share of the wall time spent in steps that were kept, saving not counted; none without any time."""
        return self.training_s / self.wall_s if self.wall_s else None

    @property
    def steps_kept(self) -> int:
        """Complete steps that were kept."""
        return len(self._kept)

    @property
    def steps_lost(self) -> int:
        """Complete steps that were lost."""
        return sum(interruption.steps_lost for interruption in self.interruptions)

    @property
    def saves_s(self) -> list[float]:
        """Seconds for which each save of a kept step held training up, where it was measured."""
        return list(self._saves.values())

    @property
    def steps_s(self) -> list[float]:
        """Seconds of each kept step, saving not counted."""
        return [step.seconds - self._saves.get(step.step, 0.0) for step in self._kept]

    @property
    def on_nodes_s(self) -> float:
        """Seconds in which the run had its nodes, and could lose one."""
        return self.wall_s - self.waited_s - self.lease_s - self.unsupervised_s

    def add(self, event: SupervisorEvent) -> None:
        """Take the next event into account."""
        submission_id = event.fields.get("submission_id", self._submission_id)
        is_new = submission_id != self._submission_id
        # A new head gives ids of the old one's again, so that an id alone does not tell two supervisors apart.
        begins = event.event in _BEGINNINGS or (event.event == "scaled" and bool(event.fields.get("workers")))
        is_lost = self._phase is _Phase.TRAINING and (begins or (is_new and bool(self._submission_id)))
        if is_lost:
            self._interrupt(event, InterruptionKind.SUPERVISOR_LOSS)
        if is_lost or (is_new and self._submission_id):
            self._phase = _Phase.UNSUPERVISED
        self.submissions += is_new or is_lost
        self._submission_id = submission_id
        self._spend(max(0.0, event.at - (event.at if self._at is None else self._at)))
        self._at = event.at if self._at is None else max(self._at, event.at)
        self._turn(event)

    def _spend(self, seconds: float) -> None:
        """Give the time since the last event to what it was spent on."""
        self.wall_s += seconds
        if self._phase is _Phase.TRAINING:
            self._open_s += seconds
            if not self._has_stepped:
                self._charge(_Phase.SETUP, seconds)
            return
        self._charge(self._phase, seconds)

    def _charge(self, phase: _Phase, seconds: float) -> None:
        setattr(self, phase, getattr(self, phase) + seconds)
        if self._open and phase is not _Phase.LEASE:
            setattr(self._open, phase, getattr(self._open, phase) + seconds)

    def _turn(self, event: SupervisorEvent) -> None:
        """Act upon an event, once the time before it is spent."""
        match event.event, event.fields:
            case "step", fields if event.step is not None:
                self._step(event.step, fields.get("step_time_s"))
            case "checkpoint", fields if event.step is not None:
                self._newest_checkpoint = max(self._newest_checkpoint, event.step)
                if isinstance(held := fields.get("blocking_s"), int | float):
                    self._saving_s += float(held) - self._saves.get(event.step, 0.0)
                    self._saves[event.step] = float(held)
            case "waiting", fields:
                self._phase = _WAITING_PHASES.get(str(fields.get("reason")), _Phase.WAITING)
                self.outcome = None
            case ("resumed" | "started") as kind, _:
                self._resume(event.step or 0)
                self.outcome = None
                if kind == "started":
                    self.starts += 1
                    self._phase, self._open_s, self._has_stepped = _Phase.TRAINING, 0.0, False
            case kind, fields if kind in _INTERRUPTIONS or kind in END_EVENTS:
                self._stop(event, fields)

    def _step(self, step: int, step_time_s: object) -> None:
        seconds = self._open_s
        if not self._has_stepped:
            # The set-up so far has the first step in it.
            seconds = min(self._open_s, float(step_time_s)) if isinstance(step_time_s, int | float) else 0.0
            self._charge(_Phase.SETUP, -seconds)
            self._open = None
        self._kept.append(_Step(step=step, seconds=seconds))
        self._kept_s += seconds
        self._open_s, self._has_stepped = 0.0, True

    def _resume(self, step: int) -> None:
        """Settle the last interruption: what is lost are the steps after the checkpoint that training goes on from."""
        self._newest_checkpoint = step
        back = [undone for undone in self._undone if undone.step <= step]  # its save was not seen
        self._undone = []
        self._kept += back
        self._kept_s += sum(step.seconds for step in back)
        self._lose(back, sign=-1)
        self._lose(self._cut_back(), sign=1)
        self._phase = _Phase.SETUP

    def _stop(self, event: SupervisorEvent, fields: dict[str, object]) -> None:
        if event.event == "done":
            self._charge(_Phase.SETUP, self._open_s if self._has_stepped else 0.0)
        elif self._phase is _Phase.TRAINING:
            self._interrupt(event, _INTERRUPTIONS[event.event])
        elif self._open and event.event == "lost_node":
            self._open.kind = InterruptionKind.NODE_LOSS  # a trainer that stood still, or crashed, for want of a node
        self._open_s, self._has_stepped = 0.0, False
        self._phase = _Phase.SETUP
        if event.event in END_EVENTS:
            self._phase = _Phase.UNSUPERVISED
            self.outcome = event.event
            if self._open and isinstance(reason := fields.get("reason"), str):
                self._open.reason = reason

    def _interrupt(self, event: SupervisorEvent, kind: InterruptionKind) -> None:
        """Open an interruption, with the steps after the newest checkpoint lost until a start says otherwise."""
        last = self._kept[-1].step if self._kept else self._newest_checkpoint
        self._open = Interruption(kind=kind, at=event.at, step=last)
        self.interruptions.append(self._open)
        self._undone = self._cut_back()
        self._lose(self._undone, sign=1)
        if self._has_stepped:
            self._open.lost_s += self._open_s
            self.lost_s += self._open_s
        self._open_s, self._has_stepped = 0.0, False

    def _cut_back(self) -> list[_Step]:
        """Take the steps after the newest checkpoint out of those kept."""
        undone = [step for step in self._kept if step.step > self._newest_checkpoint]
        self._kept = [step for step in self._kept if step.step <= self._newest_checkpoint]
        for step in undone:
            self._kept_s -= step.seconds
            self._saving_s -= self._saves.pop(step.step, 0.0)
        return undone

    def _lose(self, steps: list[_Step], *, sign: int) -> None:
        seconds = sign * sum(step.seconds for step in steps)
        self.lost_s += seconds
        if self._open:
            self._open.steps_lost += sign * len(steps)
            self._open.lost_s += seconds


def account_for(events: Iterable[SupervisorEvent]) -> RunAccount:
    """Fold a run's events, in order, into its account."""
    account = RunAccount()
    for event in events:
        account.add(event)
    return account
