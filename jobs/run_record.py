"""Fetches a run's durable record, `<run_dir>/supervisor/events.jsonl`: it outlives heads and jobs, as logs do not."""

from jobs.log_records import SupervisorEvent
from jobs.run_on_head import RunOnHead
from jobs.supervisor_events import read_event_file

_TIMEOUT_S = 60.0
# A run that has not begun has no record, which is no failure.
_SCRIPT = 'test ! -e "$1" || cat "$1"'


def fetch_run_record(run: RunOnHead) -> list[SupervisorEvent]:
    """Return all events of a run, oldest first; none before it has begun.

    Raises:
        HeadExecError: no way to the head.
    """
    path = f"{run.run_dir}/supervisor/events.jsonl"
    record = run.execute(["sh", "-c", _SCRIPT, "sh", path], timeout_s=_TIMEOUT_S)
    return list(read_event_file(record.splitlines()))
