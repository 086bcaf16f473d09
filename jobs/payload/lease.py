"""Who may train in a run directory: one supervisor at a time, whatever was killed how.

Leases are files `lease-<generation>.json`; the highest generation is the owner's. Taking a lease is creating the next
generation with `link`, which succeeds for exactly one taker and works on Lustre as on any POSIX file system. Nothing
is ever renamed away from an owner, so two takers cannot undo each other.

A lease is free when its owner released it, when its owner was a process of this very machine that is gone (what is
left of its trainer is killed first), or when its heartbeat has not changed for the time to live. That is measured by
the taker's clock alone. A heartbeat sets the file's times, which a full file system still takes. An owner that has not
managed one for half the time to live has to stop its trainer by itself.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"lease-(\d+)\.json")
_BEATS_PER_LIFE = 6


def process_start(pid: int) -> str | None:
    """Return when a process was started, in the kernel's ticks; with its pid, that names it for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # Fields 3 and 22 of proc(5): a zombie has ended.
    return None if fields[0] == "Z" else fields[19]


def machine() -> str:
    """Name what a pid has a meaning in: the host and its process namespace."""
    return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"


@dataclass(frozen=True, kw_only=True)
class _Claim:
    owner: str
    machine: str
    pid: int
    started: str | None
    trainer_pid: int | None = None
    trainer_started: str | None = None
    released: bool = False


def _read_claim(path: Path) -> _Claim:
    """Read a claim; of one that its machine did not live to write, the heartbeat alone says whether it is free."""
    try:
        return _Claim(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        return _Claim(owner=f"whoever made {path.name}, which cannot be read,", machine="", pid=0, started=None)


def _write_whole(path: Path, claim: _Claim) -> None:
    with path.open("w", encoding="utf-8") as draft:
        draft.write(json.dumps(dataclasses.asdict(claim)))
        draft.flush()
        os.fsync(draft.fileno())


def _is_alive(pid: int | None, started: str | None) -> bool:
    return pid is not None and started is not None and process_start(pid) == started


class Lease:
    """One supervisor's claim on a run directory.

    Attributes:
        is_taken_over: whether another supervisor has the run.
        problem: why the last heartbeat failed; none if it did not.
    """

    def __init__(self, directory: Path, *, owner: str, ttl_s: float) -> None:
        """Prepare a claim; nothing is taken yet.

        Args:
            directory: where the leases lie.
            owner: shown to whoever has to wait.
            ttl_s: seconds without a heartbeat after which others may take over.
        """
        self._directory = directory
        self._ttl_s = ttl_s
        self._claim = _Claim(owner=owner, machine=machine(), pid=os.getpid(), started=process_start(os.getpid()))
        self._generation = 0
        self._seen: tuple[int, int] | None = None  # the owner's generation and heartbeat, and since when they are so
        self._seen_at = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._beaten_at = 0.0
        self.is_taken_over = False
        self.problem: str | None = None

    def try_take(self, now: float) -> str | None:
        """Take the lease if it is free; returns the present owner if it is not. Ask again every few seconds.

        Args:
            now: reading of a clock that never goes back.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        generation = self._highest()
        if generation:
            path = self._path(generation)
            if self._seen != (seen := (generation, path.stat().st_mtime_ns)):
                self._seen, self._seen_at = seen, now
            holder = _read_claim(path)
            if not (holder.released or self._is_gone(holder) or now - self._seen_at > self._ttl_s):
                return holder.owner
        if not self._create(generation + 1):
            return "another supervisor that was quicker"
        self._generation = generation + 1
        self._beaten_at = time.monotonic()
        threading.Thread(target=self._beat_until_stopped, daemon=True).start()
        return None

    @property
    def is_lost(self) -> bool:
        """Whether the owner has to end its trainer: somebody took over, or could soon, as its heartbeat is old."""
        old = time.monotonic() - self._beaten_at > self._ttl_s / 2
        return bool(self._generation) and (self.is_taken_over or old)

    def record_trainer(self, pid: int | None) -> None:
        """Write down the trainer's process group, for whoever has to clear it after this supervisor's sudden end."""
        self._rewrite(trainer_pid=pid, trainer_started=process_start(pid) if pid else None)

    def beat(self) -> None:
        """Show that the owner lives, or find out that it has been taken for dead."""
        if self._highest() != self._generation:
            self.is_taken_over = True
            return
        with self._lock:
            os.utime(self._path(self._generation))
        self._beaten_at = time.monotonic()

    def release(self) -> None:
        """Let the next supervisor begin at once."""
        self._stop.set()
        if self._generation and not self.is_taken_over:
            self._rewrite(released=True)

    def _is_gone(self, holder: _Claim) -> bool:
        if holder.machine != self._claim.machine or _is_alive(holder.pid, holder.started):
            return False
        if _is_alive(holder.trainer_pid, holder.trainer_started) and holder.trainer_pid:
            os.killpg(holder.trainer_pid, signal.SIGKILL)
            return False  # gone the next time
        return True

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(self._ttl_s / _BEATS_PER_LIFE):
            try:
                self.beat()
            except OSError as error:
                self.problem = f"no heartbeat: {error}"  # `is_lost` turns true when this lasts
            else:
                self.problem = None

    def _highest(self) -> int:
        names = (_NAME.fullmatch(path.name) for path in self._directory.iterdir())
        return max((int(match[1]) for match in names if match), default=0)

    def _path(self, generation: int) -> Path:
        return self._directory / f"lease-{generation}.json"

    def _create(self, generation: int) -> bool:
        draft = self._directory / f"draft-{os.getpid()}-{generation}"
        _write_whole(draft, self._claim)
        try:
            self._path(generation).hardlink_to(draft)
        except FileExistsError:
            return False
        else:
            return True
        finally:
            draft.unlink()

    def _rewrite(self, **changes: str | int | bool | None) -> None:
        """Change the claim; a full file system keeps the old one, which costs the next owner a wait and no more."""
        with self._lock, contextlib.suppress(OSError):
            self._claim = dataclasses.replace(self._claim, **changes)  # type: ignore[arg-type]
            draft = self._directory / f"draft-{os.getpid()}"
            _write_whole(draft, self._claim)
            draft.replace(self._path(self._generation))
