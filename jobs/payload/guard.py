"""Runs a command so that it cannot outlive the supervisor: `python guard.py FD command...`.

A process of its own, as the command may start further ones (`uv run` does) that a parent-death signal would not
reach. It leads a process group and kills all of it when the pipe FD, whose other end the supervisor holds, ends:
that happens whatever ended the supervisor. If the guard itself is killed, its child dies with it and the supervisor
clears the group.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NOT_STARTED = 127


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group_at_end_of(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command; returns its exit code, 128 + N for one that signal N ended."""
    pipe, command = int(sys.argv[1]), sys.argv[2:]
    # A handler and not SIG_IGN, which the command would inherit. Whoever stops the group leaves the end to the command.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        child = subprocess.Popen(command, preexec_fn=_die_with_parent)  # noqa: PLW1509 - no thread runs yet
    except OSError as error:
        print(f"{command[0]} cannot be started: {error}", flush=True)
        return _NOT_STARTED
    threading.Thread(target=_kill_group_at_end_of, args=(pipe,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
