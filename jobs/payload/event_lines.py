"""Writes the supervisor's events between the trainer's own lines; docs/architecture.md has the format.

| event | fields besides `v`, `event`, `at` (all optional where a value is unknown) |
|---|---|
| waiting | `reason` (lease, gpus, settling), `gpus_alive`, `gpus_needed`, `nodes_alive`, `waited_s`, `limit_s` |
| resumed | `step`: the checkpoint from which training goes on; `kept`; comes before `started` |
| started | `attempt` (counts in the run directory), `step`, `max_steps`, `nodes`, `gpus`, `submission_id` |
| step | `step`, `max_steps`, `reward`, `step_time_s` |
| checkpoint | `step`, `bytes`, `files`, `blocking_s` |
| lost_node | `step`, `nodes` (their addresses), `nodes_alive`, `gpus_alive`, `exit_code` |
| crashed | `step`, `exit_code`, `cause`, `crashes`, `max_crashes` |
| stalled | `step`, `phase` (setup, step, save, node_loss), `limit_s` |
| stopped | `step`, `reason` (signal, control, lease, time, early_exit), `kept` |
| done | `step`, `kept` |
| failed | `step`, `cause`, `kept` |

A `step` is the run's, as checkpoints count it; it is the last complete one where the event is not about a step itself.
`kept` maps the step of each checkpoint on disk to its bytes.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

EVENT_PREFIX = "rlstack-event "
EVENT_VERSION = 1

_LINE_END_TIMEOUT_S = 1.0

Field = str | int | float | list[str] | dict[str, int] | None


class EventWriter:
    """Shares one output between the trainer's bytes, which pass unchanged, and event lines."""

    def __init__(self, output: BinaryIO, *, now: Callable[[], float] = time.time) -> None:
        self._output = output
        self._now = now
        self._changed = threading.Condition()
        self._in_line = False

    def pass_through(self, chunk: bytes) -> None:
        """Write what the trainer wrote."""
        with self._changed:
            self._output.write(chunk)
            self._output.flush()
            self._in_line = not chunk.endswith(b"\n")
            self._changed.notify_all()

    def emit(self, event: str, **fields: Field) -> None:
        """Write one event on a line of its own; a field of None is left out."""
        values = {key: value for key, value in fields.items() if value is not None}
        text = json.dumps({"v": EVENT_VERSION, "event": event, "at": round(self._now(), 3), **values})
        with self._changed:
            # An unbuffered trainer writes a line in pieces. One that does not end, such as a progress bar, is cut: an
            # event inside it would be found by nobody.
            self._changed.wait_for(lambda: not self._in_line, timeout=_LINE_END_TIMEOUT_S)
            start = "\n" if self._in_line else ""
            self._output.write(f"{start}{EVENT_PREFIX}{text}\n".encode())
            self._output.flush()
            self._in_line = False
