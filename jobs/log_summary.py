"""Sums up a log's records: how far training came, what it left on Lustre, how and why it ended."""

from jobs.log_parser import classify
from jobs.log_records import (
    CheckpointRemoved,
    CheckpointSaved,
    CheckpointSaving,
    ErrorSeen,
    FailureClass,
    MaxSteps,
    Outcome,
    Record,
    SetupComplete,
    StepFinished,
    StepStarted,
    Summary,
    SupervisorEvent,
    TimeoutReached,
    UnreadableEvent,
)

_MAX_CHECKPOINTS = 10_000  # steps remembered; a run with more has pruned the oldest long ago
_EVENT_OUTCOMES = {"done": Outcome.DONE, "stopped": Outcome.STOPPED, "failed": Outcome.FAILED}


class LogSummary:
    """Folds records, in order, into a `Summary`."""

    def __init__(self) -> None:
        self._last_complete_step: int | None = None
        self._checkpoints: dict[int, None] = {}
        self._saving: int | None = None
        self._attempts = 0
        self._trainer_outcome: Outcome | None = None
        self._supervisor_outcome: Outcome | None = None
        self._error: ErrorSeen | None = None
        self._supervisor_failure: FailureClass | None = None
        self._failed_cause: str | None = None
        self._unreadable_events = 0

    def add(self, record: Record) -> None:
        """Take the next record into account."""
        match record:
            case SetupComplete():
                self._attempts += 1
                self._resume()
            case StepStarted():
                self._trainer_outcome = None
            case StepFinished():
                self._last_complete_step = record.step
                self._error = self._supervisor_failure = None
            case CheckpointSaving():
                self._saving = record.step
            case CheckpointSaved():
                self._saved(record.step)
            case CheckpointRemoved():
                self._checkpoints.pop(record.step, None)
            case MaxSteps():
                self._trainer_outcome = Outcome.DONE
            case TimeoutReached():
                self._trainer_outcome = Outcome.STOPPED
            case ErrorSeen():
                self._error = self._error or record
            case SupervisorEvent():
                self._add_event(record)
            case UnreadableEvent():
                self._unreadable_events += 1

    def _add_event(self, event: SupervisorEvent) -> None:
        self._supervisor_outcome = _EVENT_OUTCOMES.get(event.event)
        match event.event:
            case "checkpoint" if event.step is not None:
                self._saved(event.step)
            case "lost_node":
                self._supervisor_failure = FailureClass.NODE_LOSS
            case "stalled":
                self._supervisor_failure = self._supervisor_failure or FailureClass.STALL
            case "failed":
                cause = event.fields.get("cause")
                self._failed_cause = cause if isinstance(cause, str) else None
            case "started" | "resumed":
                self._resume()

    def _resume(self) -> None:
        """Forget how the attempt before this one ended."""
        self._trainer_outcome = None
        self._error = self._supervisor_failure = self._failed_cause = None

    def _saved(self, step: int) -> None:
        self._checkpoints.pop(step, None)
        self._checkpoints[step] = None
        if len(self._checkpoints) > _MAX_CHECKPOINTS:
            del self._checkpoints[next(iter(self._checkpoints))]
        if self._saving == step:
            self._saving = None

    def _outcome(self) -> Outcome:
        if self._supervisor_outcome or self._trainer_outcome:
            return self._supervisor_outcome or self._trainer_outcome or Outcome.UNFINISHED
        return Outcome.FAILED if self._error or self._supervisor_failure else Outcome.UNFINISHED

    def _failure(self) -> FailureClass:
        """Name the kind of failure: the supervisor's word first, then the first error, then the run's last words."""
        if self._supervisor_failure:
            return self._supervisor_failure
        return self._error.failure if self._error else classify(self._failed_cause or "")

    def summary(self, *, line: int) -> Summary:
        """State what the records so far amount to.

        Args:
            line: lines read so far.
        """
        outcome = self._outcome()
        failed = outcome is Outcome.FAILED
        cause = self._error.text if self._error else self._failed_cause
        return Summary(
            line=line,
            last_complete_step=self._last_complete_step,
            usable_checkpoints=tuple(sorted(self._checkpoints)),
            interrupted_save=self._saving,
            attempts=self._attempts,
            outcome=outcome,
            failure_class=self._failure() if failed else None,
            root_cause=cause if failed else None,
            unreadable_events=self._unreadable_events,
        )
