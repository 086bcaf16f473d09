"""Writes the supervisor's events between the trainer's own lines; docs/architecture.md has the format.

| event | fields besides `v`, `event`, `at` (all optional where a value is unknown) |
|---|---|
| waiting | `reason` (lease, prefetch, gpus, settling), `gpus_alive`, `gpus_needed`, `nodes_alive`, `waited_s` |
| prefetched | `seconds`, `bytes`: what the model cache grew by |
| scaled | `workers`: how many the RayCluster was told to have |
| set_aside | `told`: a sentence for each leftover that was moved, renamed or deleted |
| resumed | `step`: the checkpoint from which training goes on; `kept`; comes before `started` |
| started | `attempt` (counts in the run directory), `step`, `max_steps`, `nodes`, `gpus`, `submission_id` |
| step | `step`, `max_steps`, `reward`, `step_time_s` |
| checkpoint | `step`, `bytes`, `files`, `blocking_s` |
| lost_node | `step`, `nodes` (their addresses), `nodes_alive`, `gpus_alive`, `exit_code` |
| crashed | `step`, `exit_code`, `cause`, `crashes`, `max_crashes`; `phase` is prefetch where it was not training |
| stalled | `step`, `phase` (prefetch, setup, step, save, node_loss), `limit_s` |
| stopped | `step`, `reason` (`endings.StopReason`), `cause`, `kept` |
| done | `step`, `kept` |
| failed | `step`, `cause`, `kept` |

A `step` is the run's, as checkpoints count it; it is the last complete one where the event is not about a step itself.
`limit_s` is the limit of the wait or phase that the event is about. `kept` maps the step of each checkpoint on disk to
its bytes. The last three are a supervisor's last words.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from jobs.payload.allowance import Usage
from jobs.payload.event_record import EventRecord

EVENT_PREFIX = "rlstack-event "
EVENT_VERSION = 1

_LINE_END_TIMEOUT_S = 1.0

Field = str | int | float | list[str] | dict[str, int] | None


class EventWriter:
    """Shares one output between the trainer's bytes, which pass unchanged, and event lines.

    Attributes:
        usage: what the run has used by its events, those of earlier supervisors included.
        now: seconds since 1970, as events are stamped.
    """

    def __init__(
        self, output: BinaryIO, *, record: EventRecord | None = None, now: Callable[[], float] = time.time
    ) -> None:
        """Write to an output, and to the run's durable record if there is one."""
        self.usage = Usage()
        self.now = now
        self._output = output
        self._record = record
        for event in record.read() if record else ():
            self.usage.add(event)
        self.usage.pause()
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
        line = {"v": EVENT_VERSION, "event": event, "at": round(self.now(), 3), **values}
        self.usage.add(line)
        self.say(EVENT_PREFIX + json.dumps(line))
        if self._record and (failure := self._record.append(line)):
            self.say(failure)

    def say(self, text: str) -> None:
        """Write a line of the supervisor's own."""
        with self._changed:
            # An unbuffered trainer writes a line in pieces. One that does not end, such as a progress bar, is cut: an
            # event inside it would be found by nobody.
            self._changed.wait_for(lambda: not self._in_line, timeout=_LINE_END_TIMEOUT_S)
            start = "\n" if self._in_line else ""
            self._output.write(f"{start}{text}\n".encode())
            self._output.flush()
            self._in_line = False
