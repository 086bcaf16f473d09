"""Child processes that cannot outlive their parent, and the end of processes that were only recorded.

A child asks the kernel for SIGKILL on its parent's death. The kernel means the parent's *thread*, so whoever spawns
children must do it from a thread that lives as long as they may: the agent does everything on its main thread.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from jobs.errors import WaitTimeout
from jobs.waiting import wait_until
from twin.cloud.store import ProcessIdentity

POLL_PERIOD_S = 0.1
_DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: IO[bytes],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own that is killed when the calling thread ends."""
    return subprocess.Popen(
        [*_DIES_WITH_PARENT, *command],
        env=dict(environment),
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
        cwd="/",
    )


def end(identities: Iterable[ProcessIdentity], *, timeout_s: float) -> None:
    """Ask processes to stop, then kill those that are still there; returns when none lives.

    Raises:
        WaitTimeout: one survived SIGKILL for `timeout_s`.
    """
    living = [identity for identity in identities if identity.alive]
    for asked in (signal.SIGTERM, signal.SIGKILL):
        for identity in living:
            send(identity, asked)
        with contextlib.suppress(WaitTimeout):
            wait_until(
                lambda: not any(identity.alive for identity in living),
                timeout_s=timeout_s,
                every_s=POLL_PERIOD_S,
                doing="processes to end",
            )
    survivors = [str(identity.pid) for identity in living if identity.alive]
    if survivors:
        raise WaitTimeout(
            f"processes {', '.join(survivors)} did not end within {timeout_s:.0f} s of SIGKILL: "
            "they hang in the kernel. See what they wait for: cat /proc/<pid>/stack"
        )


def send(identity: ProcessIdentity, number: signal.Signals) -> None:
    """Signal a process, unless it is gone or another one has its pid by now."""
    if identity.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, number)


def members_of(namespace: str) -> list[int]:
    """Pids of the processes in a pid namespace, by the target of their /proc/<pid>/ns/pid link."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str((entry / "ns" / "pid").readlink()) == namespace:
                    members.append(int(entry.name))
    return members
