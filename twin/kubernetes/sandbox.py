"""The namespaces in which the pods of one RayCluster live, and the way from this machine into them."""

import os
import select
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobs.errors import TwinError
from twin.kubernetes.processes import spawn

START_TIMEOUT_S = 10.0

_HERE = Path(__file__).parent
_ISOLATED_PYTHON = (sys.executable, "-I", "-S")
_POD_NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
_ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}


def namespace_problem() -> str | None:
    """Try what pods need; None when this machine allows it, else a sentence that says what it forbids."""
    probe = [*_POD_NAMESPACES, "--net", "sh", "-c", "mount -t tmpfs none /mnt && mount -t proc proc /proc"]
    try:
        tried = subprocess.run(probe, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"pods cannot run here: {error}. Install util-linux (unshare, nsenter)"
    if tried.returncode == 0:
        return None
    return (
        "pods cannot run here: this machine forbids the namespaces that keep them on loopback "
        f"({tried.stderr.strip()}). Allow unprivileged user namespaces (sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; a container needs --privileged), or run as root"
    )


@dataclass
class Sandbox:
    """A network namespace with one relay in it.

    Attributes:
        port: port on this machine's 127.0.0.1 that leads to 127.0.0.1:8265 inside.
    """

    relay: subprocess.Popen[bytes]
    port: int

    @classmethod
    def open(cls, log: IO[bytes]) -> "Sandbox":
        """Make the namespace.

        Raises:
            TwinError: the relay did not come up within 10 s.
        """
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ready, said = os.pipe()
            command = ["unshare", "--net", "--", *_ISOLATED_PYTHON, str(_HERE / "relay.py")]
            relay = spawn(
                [*command, str(listener.fileno()), str(said)],
                environment=_ENVIRONMENT,
                log=log,
                pass_fds=(listener.fileno(), said),
            )
            os.close(said)
            try:
                came = select.select([ready], [], [], START_TIMEOUT_S)[0] and os.read(ready, 1)
            finally:
                os.close(ready)
            if not came:
                relay.kill()
                relay.wait()
                raise TwinError(
                    f"the relay of a pod network did not start within {START_TIMEOUT_S:.0f} s. Read {log.name}"
                )
            return cls(relay=relay, port=listener.getsockname()[1])

    def launch(self, plan: bytes, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a container in this network and in namespaces of its own; killing what is returned ends all of it.

        Args:
            plan: what launch.py reads, JSON; may hold secrets and goes through a pipe.
            log: where its output goes.
        """
        network = f"--net=/proc/{self.relay.pid}/ns/net"
        command = ["nsenter", network, "--", *_POD_NAMESPACES, *_ISOLATED_PYTHON, str(_HERE / "launch.py")]
        container = spawn(command, environment=_ENVIRONMENT, log=log, stdin=subprocess.PIPE)
        if container.stdin:
            try:
                container.stdin.write(plan)
                container.stdin.close()
            except BrokenPipeError:
                pass  # It is gone already; its exit code and its log say why.
        return container

    @property
    def alive(self) -> bool:
        """Whether the relay runs; the namespace without it has no door."""
        return self.relay.poll() is None

    def close(self) -> None:
        """End the relay; the namespace goes with the last process in it."""
        self.relay.kill()
        self.relay.wait()
