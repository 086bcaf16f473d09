"""The Lustre file systems as the agent holds them for its pods, and what makes one full.

The agent has a mount namespace of its own, in which each file system is a shared mount. The containers' namespaces
follow it, so that what is mounted there later appears in containers that run already. A full file system is an overlay:
everything that was there below, and above it a tmpfs with no room. The kernel itself then answers "No space left on
device" to whoever writes into a file that he opens; what is there stays readable, and can be removed. When there is
room again, what was done meanwhile is done to the file system itself.

Three things differ from a real full Lustre: a file that was open before can still grow, removing files makes no room,
and what changes an older file's times, as the heartbeat of a run's lease does, takes room for a copy of it.
"""

import ctypes
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import TwinError
from twin.kubernetes.launch import MS_REC, mount

CLONE_NEWNS = 0x20000  # <sched.h>
MS_PRIVATE = 0x40000  # <sys/mount.h>
COMMAND_TIMEOUT_S = 10.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_MOUNT_AGAIN = 'umount --lazy --no-canonicalize "$1" && mount --no-canonicalize --rbind "$2" "$1"'

_libc = ctypes.CDLL(None, use_errno=True)


def enter_own_namespace() -> None:
    """Give this process, and the children that it starts from now on, a mount namespace of its own.

    Raises:
        OSError: the machine forbids it.
    """
    if _libc.unshare(CLONE_NEWNS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    mount("none", Path("/"), "", MS_REC | MS_PRIVATE)


@dataclass
class LustreMounts:
    """The file systems of one cluster's pods.

    Attributes:
        scratch: a directory for the tmpfs of each full file system.
        doors: each file system's directory to a descriptor of it, which says when it was deleted.
        full: the directories of the full ones.
    """

    scratch: Path
    doors: dict[Path, int] = field(default_factory=dict)
    full: set[Path] = field(default_factory=set)

    def share(self, directory: Path) -> None:
        """Make a file system one that can become full under running containers.

        Raises:
            TwinError: the mount was refused.
        """
        self._forget_deleted()
        if directory not in self.doors:
            _run("mount", "--bind", str(directory), str(directory))
            _run("mount", "--make-shared", str(directory))
            self.doors[directory] = os.open(directory, os.O_PATH | os.O_DIRECTORY)

    def reconcile(self, left_bytes: int | None) -> None:
        """Make every file system full but for `left_bytes`, or give all of them room again (None).

        Raises:
            TwinError: this kernel lets nobody but root mount an overlay, or a mount was refused.
        """
        self._forget_deleted()
        for directory in self.doors:
            if left_bytes is not None and directory not in self.full:
                self._fill(directory, left_bytes)
            elif left_bytes is None and directory in self.full:
                self._drain(directory)

    def _layer(self, directory: Path) -> Path:
        return self.scratch / directory.name

    def _fill(self, directory: Path, left_bytes: int) -> None:
        layer = self._layer(directory)
        layer.mkdir(parents=True, exist_ok=True)
        # A tmpfs of size 0 has no limit: it gets one page more, which is filled at once.
        _run("mount", "-t", "tmpfs", "-o", f"mode=755,size={left_bytes + PAGE_BYTES}", "full-lustre", str(layer))
        try:
            for name in ("upper", "work"):
                (layer / name).mkdir()
            shutil.copystat(directory, layer / "upper")
            (layer / "filler").write_bytes(bytes(PAGE_BYTES))
            # A directory's name may hold commas and colons, which are separators here: none stands in the options.
            below = f"/proc/{os.getpid()}/fd/{self.doors[directory]}"
            options = f"lowerdir={below},upperdir=upper,workdir=work,userxattr"
            _run("mount", "-t", "overlay", "-o", options, str(layer), str(directory), cwd=layer)
        except (TwinError, OSError):
            _run("umount", "--lazy", str(layer))
            raise
        self.full.add(directory)

    def _drain(self, directory: Path) -> None:
        layer = self._layer(directory)
        _run("umount", "--lazy", str(directory))
        self.full.discard(directory)
        apply_layer(layer / "upper", directory)
        for pid, target in _mounted_meanwhile(layer):
            path = f"/proc/{pid}/root{target}"
            words = ("sh", "-c", _MOUNT_AGAIN, "sh", path, str(directory))
            try:
                _run("nsenter", f"--target={pid}", "--mount", "--", *words)
            except TwinError:
                if Path(f"/proc/{pid}").exists():
                    raise
        _run("umount", "--lazy", str(layer))
        layer.rmdir()

    def _forget_deleted(self) -> None:
        """Let go of the file systems of deleted instances; the kernel has unmounted them."""
        for directory in [directory for directory, door in self.doors.items() if os.fstat(door).st_nlink == 0]:
            os.close(self.doors.pop(directory))
            if directory in self.full:
                self.full.discard(directory)
                _run("umount", "--lazy", str(self._layer(directory)))


def _mounted_meanwhile(layer: Path) -> Iterator[tuple[int, str]]:
    """Containers that were started on the full file system, by the pid of a process in them, and where they have it.

    They mounted the overlay itself, not the file system below it, so it did not go with the agent's.
    """
    seen = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            namespace = (entry / "ns" / "mnt").readlink()
            for line in (entry / "mountinfo").read_text().splitlines():
                fields = line.split()
                target = _unescaped(fields[4])
                if _unescaped(fields[-2]) == str(layer) and fields[-3] == "overlay" and (namespace, target) not in seen:
                    seen.add((namespace, target))
                    yield int(entry.name), target


def _unescaped(field: str) -> str:
    """A field of /proc/<pid>/mountinfo, in which spaces and the like stand as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def apply_layer(layer: Path, below: Path) -> None:
    """Do to `below` what an overlay's upper layer says: what was removed, and what was written."""
    for entry in sorted(layer.iterdir()):
        target = below / entry.name
        status = entry.lstat()
        whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
        if whiteout or (target.is_dir() and (not stat.S_ISDIR(status.st_mode) or _is_opaque(entry))):
            _remove(target)
        if whiteout:
            continue
        if stat.S_ISDIR(status.st_mode):
            target.mkdir(exist_ok=True)
            apply_layer(entry, target)
        else:
            if target.is_symlink():
                target.unlink()
            shutil.copy2(entry, target, follow_symlinks=False)


def _is_opaque(directory: Path) -> bool:
    """Whether a directory of an upper layer hides the one below instead of adding to it."""
    with suppress(OSError):
        return os.getxattr(directory, "user.overlay.opaque") == b"y"
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run(*command: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired as expired:
        raise TwinError(f"{' '.join(command)} did not end within {expired.timeout:.0f} s") from expired
    if done.returncode:
        raise TwinError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
