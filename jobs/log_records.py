"""What a job's log says, as typed records; `jobs/log_parser.py` makes them and `jobs/log_summary.py` sums them up."""

import dataclasses
import json
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FailureClass(StrEnum):
    """Why training ended, as far as one line of an error tells.

    `worker_loss` is a process that is gone; Ray says so before it knows whether the node is gone too.
    """

    NODE_LOSS = "node_loss"
    WORKER_LOSS = "worker_loss"
    CAPACITY = "capacity"
    GPU_MEMORY = "gpu_memory"
    HOST_MEMORY = "host_memory"
    STORAGE_FULL = "storage_full"
    ACCESS = "access"
    CONFIG = "config"
    COLLECTIVE = "collective"
    STALL = "stall"
    CRASH = "crash"


class Outcome(StrEnum):
    """How the log ends; `unfinished` is a run that still goes on or a log that was cut."""

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all records.

    Attributes:
        line: number of the log line that completed the record, from 1.
    """

    line: int


@dataclass(frozen=True, kw_only=True)
class CheckpointDirectory(Record):
    """The trainer named its checkpoint directory: a new attempt has begun to set up."""

    path: str


@dataclass(frozen=True, kw_only=True)
class SetupComplete(Record):
    """Models are loaded and placed; the first step follows."""


@dataclass(frozen=True, kw_only=True)
class Waiting(Record):
    """The trainer waits for something; this is no progress."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class StepStarted(Record):
    """A step began.

    Attributes:
        step: the run's step, as checkpoints count it.
        step_in_epoch: the step as the trainer prints it; it starts over in each epoch.
        steps_in_epoch: what the trainer prints after it.
    """

    step: int
    step_in_epoch: int
    steps_in_epoch: int


@dataclass(frozen=True, kw_only=True)
class StepFinished(Record):
    """A step's results.

    Attributes:
        step: the run's step, as checkpoints count it.
        reward: mean reward of the step's samples; before filtering under dynamic sampling.
        loss: the policy's loss.
        step_time_s: seconds of the whole step.
        checkpoint_blocking_s: seconds of it in which a save held training up; none if nothing was saved.
    """

    step: int
    reward: float | None
    loss: float | None
    step_time_s: float | None
    checkpoint_blocking_s: float | None


@dataclass(frozen=True, kw_only=True)
class CheckpointSaving(Record):
    """A save began; until `CheckpointSaved` there is only `tmp_step_N`."""

    step: int


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(Record):
    """`step_N` exists: the log shows something that NeMo-RL prints only after the rename."""

    step: int


@dataclass(frozen=True, kw_only=True)
class CheckpointRemoved(Record):
    """An older checkpoint made room."""

    step: int


@dataclass(frozen=True, kw_only=True)
class SaveFailed(Record):
    """A worker could not write its part; step is none where the path does not tell."""

    step: int | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Validation(Record):
    """Results of a validation.

    Attributes:
        step: the step before it; 0 is the start, none if its beginning is not in the log.
        accuracy: mean reward of the validation samples.
        duration_s: its seconds.
    """

    step: int | None
    accuracy: float
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class MaxSteps(Record):
    """The last step is done."""


@dataclass(frozen=True, kw_only=True)
class TimeoutReached(Record):
    """`checkpoint_must_save_by` ended the run, after a save and with exit code 0."""


@dataclass(frozen=True, kw_only=True)
class ErrorSeen(Record):
    """An error in a traceback, or one that Ray reports."""

    failure: FailureClass
    text: str


@dataclass(frozen=True, kw_only=True)
class SupervisorEvent(Record):
    """A line of the supervisor's own.

    Attributes:
        event: its kind; `jobs/payload/event_lines.py` has them all.
        at: seconds since 1970.
        fields: what else the event says.
    """

    event: str
    at: float
    fields: dict[str, Any]

    @property
    def step(self) -> int | None:
        """The step that the event speaks of."""
        step = self.fields.get("step")
        return step if isinstance(step, int) and not isinstance(step, bool) else None


@dataclass(frozen=True, kw_only=True)
class UnreadableEvent(Record):
    """A line of the supervisor's that is cut or of a version unknown here."""


@dataclass(frozen=True, kw_only=True)
class Summary(Record):
    """What a whole log amounts to; `line` is its last.

    Attributes:
        last_complete_step: step of the last results; none without any.
        usable_checkpoints: steps whose checkpoint exists, as far as the log shows.
        interrupted_save: step whose save began and is not known to have ended.
        attempts: how often the trainer came to the end of its set-up.
        outcome: how the log ends.
        failure_class: what kind of failure stands at its end.
        root_cause: the first error after the last progress.
        unreadable_events: events that could not be read.
    """

    last_complete_step: int | None
    usable_checkpoints: tuple[int, ...]
    interrupted_save: int | None
    attempts: int
    outcome: Outcome
    failure_class: FailureClass | None
    root_cause: str | None
    unreadable_events: int


@dataclass(frozen=True, kw_only=True)
class JobEnded(Record):
    """The job's fate as Ray tells it; the last record of a job that was watched.

    Attributes:
        submission_id: the Ray job.
        status: SUCCEEDED, FAILED or STOPPED.
        message: Ray's word on it.
        goodput: share of the time spent in steps that were kept; none where nothing is known of the time.
    """

    submission_id: str
    status: str
    message: str
    goodput: float | None


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity; a diverged loss is written as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_json(record: Record) -> str:
    """Write a record as one line of JSON in ASCII, its kind in snake case under `record`."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).lower()
    fields = {field.name: _finite(getattr(record, field.name)) for field in dataclasses.fields(record)}
    return json.dumps({"record": kind, **fields}, allow_nan=False)
