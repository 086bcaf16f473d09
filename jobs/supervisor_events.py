"""Reads the supervisor's events: the JSON of one line, from a job's log or from the run's durable record.

`jobs/payload/event_lines.py` has the kinds and their fields. Kinds and fields that are unknown here pass.
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from jobs.log_records import SupervisorEvent, UnreadableEvent
from jobs.payload.event_lines import EVENT_VERSION

_MAX_NESTING = 100
_MAX_SHOWN = 500


def _finite_float(text: str) -> float:
    """Read a JSON number; NaN and the infinities are none."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text[:_MAX_SHOWN])
    return value


def read_event(text: str, *, line: int) -> SupervisorEvent | UnreadableEvent:
    """Read one event's JSON; what is cut, or of a version unknown here, is told as such and never raised.

    Args:
        text: the JSON.
        line: number of its line.
    """
    unreadable = UnreadableEvent(line=line)
    if text.count("[") + text.count("{") > _MAX_NESTING:
        return unreadable
    try:
        value: Any = json.loads(text, parse_constant=_finite_float, parse_float=_finite_float)
    except ValueError:
        return unreadable
    if not isinstance(value, dict) or value.pop("v", None) != EVENT_VERSION:
        return unreadable
    event, at = value.pop("event", None), value.pop("at", None)
    if not isinstance(event, str) or isinstance(at, bool) or not isinstance(at, int | float):
        return unreadable
    return SupervisorEvent(line=line, event=event, at=at, fields=value)


def read_event_file(lines: Iterable[bytes]) -> Iterator[SupervisorEvent]:
    """Yield the events of a durable record, `<run_dir>/supervisor/events.jsonl`; cut lines are passed over."""
    for number, line in enumerate(lines, start=1):
        event = read_event(line.decode("utf-8", "replace"), line=number)
        if isinstance(event, SupervisorEvent):
            yield event
