"""Requests to a running supervisor, by a file in the run directory: each is obeyed once."""

import contextlib
import json
from enum import StrEnum
from pathlib import Path


class Action(StrEnum):
    """What can be asked for; a hand-over is a stop after the next checkpoint that leaves the workers to a successor."""

    STOP_AFTER_CHECKPOINT = "stop_after_checkpoint"
    HAND_OVER = "hand_over"
    STOP_NOW = "stop_now"


class Control:
    """The request file; what has been read is renamed, so that it can be looked at and is not read again.

    A request names the Ray job that it is meant for: one that came too late for that job must not stop its successor.
    """

    def __init__(self, path: Path, *, submission_id: str | None) -> None:
        self._path = path
        self._submission_id = submission_id

    def take(self) -> Action | None:
        """Return a new request; one that is meant for another job, or cannot be understood, is put away."""
        taken = self._path.with_suffix(".taken")
        try:
            self._path.replace(taken)  # before it is read: what comes now is another request
            text = taken.read_text(encoding="utf-8")
        except OSError:  # no request; or a file system that stumbles, which is no reason to end a run
            return None
        try:
            request = json.loads(text)
            action, meant_for = Action(request["action"]), request["submission_id"]
        except (ValueError, LookupError, TypeError):
            self._put_away(taken, ".unreadable")
            return None
        if meant_for != self._submission_id:
            self._put_away(taken, ".ignored")
            return None
        return action

    @staticmethod
    def _put_away(taken: Path, suffix: str) -> None:
        with contextlib.suppress(OSError):
            taken.replace(taken.with_suffix(suffix))
