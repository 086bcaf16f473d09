"""Becomes the first process of a container: builds its root from a plan on standard input, enters it, runs the command.

Runs as `python -I -S launch.py` in network, mount, pid, ipc and uts namespaces of its own, as root of (at least) the
user namespace that owns them. Standard library only: nothing of the agent's is imported. The plan comes over a pipe
because it holds the secrets of the pod: they end in a tmpfs that only this mount namespace sees.
"""

import base64
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# <sys/mount.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
MS_NOATIME, MS_BIND, MS_REC, MS_RELATIME = 0x400, 0x1000, 0x4000, 0x200000
# A user namespace may add read-only to a mount, but not drop what the mount already forbids: those flags are repeated.
_KEPT = {
    os.ST_NOSUID: MS_NOSUID,
    os.ST_NODEV: MS_NODEV,
    os.ST_NOEXEC: MS_NOEXEC,
    os.ST_NOATIME: MS_NOATIME,
    os.ST_RELATIME: MS_RELATIME,
}
CANNOT_START = 125
"""Exit code when the root could not be built, as container runtimes use it."""

_ASIDE = Path("run/aside")

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    """Ask the kernel for a mount."""
    done = _libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode())
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source or kind} at {target}: {os.strerror(number)}")


def make_read_only(target: Path) -> None:
    """Forbid writing through a bind mount."""
    has = os.statvfs(target).f_flag
    kept = sum(flag for bit, flag in _KEPT.items() if has & bit)
    mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def bind(root: Path, source: Path, target: Path) -> None:
    """Show a directory, file or link of this machine at a path of the container."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        make_directory(root, target)
    else:
        make_directory(root, target.parent)
        target.touch()
    mount(str(source), target, "", MS_BIND | MS_REC)


def make_directory(root: Path, target: Path) -> None:
    """Make a directory; where its parent is read-only, put a tmpfs with the same entries in the parent's place."""
    with contextlib.suppress(OSError):
        target.mkdir(parents=True, exist_ok=True)
        return
    parent = next(path for path in target.parents if path.is_dir())
    aside = Path(tempfile.mkdtemp(dir=root / _ASIDE))
    mount(str(parent), aside, "", MS_BIND | MS_REC)
    mount("tmpfs", parent, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for child in aside.iterdir():
        bind(root, child, parent / child.name)
    target.mkdir(parents=True)


def place(root: Path, entry: dict[str, Any]) -> None:
    """Make one path of the table be there; a source that this machine lacks is left out."""
    target = root / entry["target"].lstrip("/")
    source = Path(entry["source"])
    if entry["kind"] == "bind":
        if not (source.exists() or source.is_symlink()):
            return
        bind(root, source, target)
        if source.is_symlink():
            return
    else:
        make_directory(root, target)
        size = f",size={entry['size_bytes']}" if entry["size_bytes"] else ""
        mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777{size}")
        for name, content in entry["files"].items():
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(content))
            file.chmod(entry["mode"])
    if entry["read_only"]:
        make_read_only(target)


def build(plan: dict[str, Any]) -> Path:
    """Build the container's root and return it."""
    root = Path(plan["root"])
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    (root / _ASIDE).mkdir(parents=True)
    for entry in plan["mounts"]:
        place(root, entry)
    (root / "proc").mkdir()
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    hosts = root / "run" / "hosts"
    hosts.parent.mkdir(exist_ok=True)
    hosts.write_text(plan["hosts"])
    # A machine without the file has nothing to hide; one name service or another then answers as it does there.
    with contextlib.suppress(FileNotFoundError):
        mount(str(hosts), root / "etc" / "hosts", "", MS_BIND)
    return root


def main() -> None:
    """Read the plan, enter the container, become its command."""
    plan = json.load(sys.stdin)
    try:
        socket.sethostname(plan["hostname"])
        subprocess.run(["ip", "address", "replace", f"{plan['address']}/32", "dev", "lo"], check=True)
        root = build(plan)
        os.chroot(root)
        os.chdir("/")
        with contextlib.suppress(FileNotFoundError):
            os.chdir(plan["workdir"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.environ.clear()
        os.environ.update(plan["environment"])
        os.execvpe(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - this is what a container is
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"the container cannot start: {error}\n")
        sys.exit(CANNOT_START)


if __name__ == "__main__":
    main()
