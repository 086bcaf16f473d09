"""The namespaces in which the pods of one RayCluster live, and the ways into them and out to the API server."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobs.errors import TwinError
from twin.cloud.storage import CloudStorage, Server
from twin.kubernetes.processes import spawn
from twin.kubernetes.relay import DASHBOARD_PORT, LOOPBACK

START_TIMEOUT_S = 10.0

_HERE = Path(__file__).parent
_ISOLATED_PYTHON = (sys.executable, "-I", "-S")
# What the agent mounts over Lustre later must appear in running containers: their mounts follow the agent's.
_POD_NAMESPACES = ("unshare", "--mount", "--propagation", "slave", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
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
    """A network namespace and its two relays; relay.py says which is where.

    Attributes:
        way_in: holds the namespace.
        way_out: leads to the API server.
        port: port on this machine's 127.0.0.1 that leads to 127.0.0.1:8265 inside.
        google: what answers inside as Google's services.
    """

    way_in: subprocess.Popen[bytes]
    way_out: subprocess.Popen[bytes]
    port: int
    google: Server

    @classmethod
    def open(cls, log: IO[bytes], *, api_server: str, cloud_storage: CloudStorage) -> "Sandbox":
        """Make the namespace.

        Args:
            log: where the relays' errors go.
            api_server: `localhost:<port>`.
            cloud_storage: what pods reach as Google's services.

        Raises:
            TwinError: the relay that holds it did not come up within 10 s.
        """
        ours, theirs = socket.socketpair()
        with ours, socket.create_server((LOOPBACK, 0)) as listener:
            with theirs:
                way_in = _relay(
                    log, "unshare", "--net", "--", listener=listener.fileno(), port=DASHBOARD_PORT, hold=theirs.fileno()
                )
            ours.settimeout(START_TIMEOUT_S)
            try:
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 2)
            except TimeoutError:
                descriptors = []
            if not descriptors:
                way_in.kill()
                way_in.wait()
                raise TwinError(
                    f"the relay of a pod network did not start within {START_TIMEOUT_S:.0f} s. Read {log.name}"
                )
            with socket.socket(fileno=descriptors[0]) as inside:
                way_out = _relay(log, listener=inside.fileno(), port=int(api_server.rpartition(":")[2]))
            google = cloud_storage.serve(socket.socket(fileno=descriptors[1]))
            return cls(way_in=way_in, way_out=way_out, port=listener.getsockname()[1], google=google)

    def launch(self, plan: bytes, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a container in this network and in namespaces of its own; killing what is returned ends all of it.

        Args:
            plan: what launch.py reads, JSON; may hold secrets and goes through a pipe.
            log: where its output goes.
        """
        network = f"--net=/proc/{self.way_in.pid}/ns/net"
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
        """Whether both relays run; the namespace without them has no doors."""
        return self.way_in.poll() is None and self.way_out.poll() is None

    def close(self) -> None:
        """End the relays and Google's services; the namespace goes with the last process in it."""
        self.google.close()
        for relay in (self.way_in, self.way_out):
            relay.kill()
            relay.wait()


def _relay(
    log: IO[bytes], *namespace: str, listener: int, port: int, hold: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a relay; it gets its sockets as descriptors."""
    descriptors = [listener] if hold is None else [listener, hold]
    script = str(Path(__file__).with_name("relay.py"))
    words = [str(listener), str(port), *(str(each) for each in descriptors[1:])]
    command = [*namespace, *_ISOLATED_PYTHON, script, *words]
    return spawn(command, environment=_ENVIRONMENT, log=log, pass_fds=descriptors)
