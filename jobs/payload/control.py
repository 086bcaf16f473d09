"""Requests to a running supervisor, by a file in the run directory: each is obeyed once."""

import json
from enum import StrEnum
from pathlib import Path


class Action(StrEnum):
    """What can be asked for; a hand-over is a stop after the next checkpoint that leaves the workers to a successor."""

    STOP_AFTER_CHECKPOINT = "stop_after_checkpoint"
    HAND_OVER = "hand_over"
    STOP_NOW = "stop_now"


class Control:
    """The request file; what has been read is renamed, so that it can be looked at and is not read again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def discard(self) -> None:
        """Put away a request that was meant for a run which has ended."""
        if self._path.exists():
            self._path.replace(self._path.with_suffix(".ignored"))

    def take(self) -> Action | None:
        """Return a new request; one that cannot be understood is put away as unreadable."""
        try:
            action = Action(json.loads(self._path.read_text(encoding="utf-8"))["action"])
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError):
            self._path.replace(self._path.with_suffix(".unreadable"))
            return None
        self._path.replace(self._path.with_suffix(".taken"))
        return action
