"""The run's durable record: `<run_dir>/supervisor/events.jsonl`, every event of every Ray job of the run, one a line.

A job's log goes with its head; this file stays with the checkpoints. Each line is the event's JSON, the
`submission_id` of the Ray job that wrote it, and the `supervisor_id` of that very process. The file is for accounts,
not for training, so that a full file system costs lines of it and no more.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class EventRecord:
    """Appends events, and reads those of earlier supervisors back."""

    def __init__(self, path: Path, *, submission_id: str, supervisor_id: str) -> None:
        self._path = path
        self._writer = {"submission_id": submission_id, "supervisor_id": supervisor_id}
        self._failure_is_told = False

    def read(self) -> Iterator[Mapping[str, Any]]:
        """Yield the events so far, oldest first; lines that were cut are passed over."""
        if not self._path.exists():
            return
        with self._path.open("rb") as lines:
            for line in lines:
                try:
                    values = json.loads(line)
                except ValueError:
                    continue
                if isinstance(values, dict):
                    yield values

    def append(self, event: Mapping[str, Any]) -> str | None:
        """Append an event; returns what to say of a failure, the first time that there is one."""
        try:
            self._write(json.dumps({**event, **self._writer}).encode() + b"\n")
        except OSError as error:
            if self._failure_is_told:
                return None
            self._failure_is_told = True
            return (
                f"{self._path} cannot be written ({error.strerror}); the run goes on, and its events are missing there "
                "until there is room"
            )
        return None

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # what a full file system or a kill has cut stays a line of its own
            while line:
                line = line[os.write(descriptor, line) :]
        finally:
            os.close(descriptor)
