"""One start of a command: its processes, its output as bytes to pass on and lines to read, and its end."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from jobs.payload.clock import Clock
from jobs.payload.endings import StopReason, StopRequested
from jobs.payload.interrupts import TICK_S

STOP_GRACE_S = 30.0

_GRACE_S = {StopReason.SIGNAL: 1.5, StopReason.LEASE: 0.0}  # Ray kills 3 s after SIGTERM (RAY_JOB_STOP_WAIT_TIME_S)
_GUARD = Path(__file__).with_name("guard.py")
_CHUNK_BYTES = 65_536
_MAX_LINE_BYTES = 8_192  # a longer line holds nothing for the supervisor; it is passed on whole all the same
_DRAIN_TIMEOUT_S = 5.0


class RunningCommand(Protocol):
    """What the supervisor needs of a command that it has started; `Trainer` is one."""

    @property
    def pid(self) -> int:
        """The process that leads its group."""
        ...

    def lines(self) -> list[str]:
        """Return the lines since the last call."""
        ...

    def exit_code(self) -> int | None:
        """Return the exit code once it has ended."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> int:
        """End it at once; returns the exit code."""
        ...


class StartCommand(Protocol):
    """Starts a command; `Trainer` itself, or what a simulation has in its place."""

    def __call__(
        self,
        command: Sequence[str],
        /,
        *,
        workdir: Path,
        environment: Mapping[str, str],
        pass_through: Callable[[bytes], None],
    ) -> RunningCommand:
        """Start it; see `Trainer`."""
        ...


def end(command: RunningCommand, *, grace_s: float, clock: Clock) -> int:
    """Ask a command to end, then make it; returns its exit code."""
    deadline = clock.monotonic() + grace_s
    if grace_s:
        command.terminate()
    while (code := command.exit_code()) is None and clock.monotonic() < deadline:
        clock.sleep(TICK_S)
    return command.kill() if code is None else code


@contextmanager
def ended_at_exit(command: RunningCommand, *, clock: Clock) -> Iterator[None]:
    """Leave nothing of a command behind, whatever ends its supervision."""
    try:
        yield
    except StopRequested as stop:
        end(command, grace_s=_GRACE_S.get(stop.reason, STOP_GRACE_S), clock=clock)
        raise
    finally:
        command.kill()


class Trainer:
    """A running training command, in a process group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        workdir: Path,
        environment: Mapping[str, str],
        pass_through: Callable[[bytes], None],
    ) -> None:
        """Start the command.

        Args:
            command: as arguments.
            workdir: where it runs.
            environment: all its variables.
            pass_through: given every byte that it writes, as it comes, from another thread.

        Raises:
            OSError: the directory is not there.
        """
        watched, lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_GUARD), str(watched), *command],
                cwd=workdir,
                env=dict(environment),
                pass_fds=(watched,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            os.close(lifeline)
            raise
        finally:
            os.close(watched)
        self._lifeline: int | None = lifeline
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(pass_through,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process that leads the group."""
        return self._process.pid

    def lines(self) -> list[str]:
        """Return the lines since the last call, long ones cut."""
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]

    def exit_code(self) -> int | None:
        """Return the command's exit code once it has ended; whatever is left of its group is killed then."""
        return None if self._process.poll() is None else self.kill()

    def terminate(self) -> None:
        """Ask the whole group to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> int:
        """End the whole group at once; returns the exit code."""
        if self._lifeline is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._reader.join(_DRAIN_TIMEOUT_S)
            os.close(self._lifeline)
            self._lifeline = None
        return self._process.returncode

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self, pass_through: Callable[[bytes], None]) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        tail = b""
        with self._process.stdout as output:
            while chunk := os.read(output.fileno(), _CHUNK_BYTES):
                pass_through(chunk)
                *whole, rest = (tail + chunk).replace(b"\r", b"\n").split(b"\n")
                tail = rest[:_MAX_LINE_BYTES]
                for line in whole:
                    self._lines.put(line[:_MAX_LINE_BYTES].decode("utf-8", "replace"))
        if tail:
            self._lines.put(tail.decode("utf-8", "replace"))
