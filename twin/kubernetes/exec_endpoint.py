"""The kubelet's address of every node: `kubectl exec` enters the twin's pods, all else goes to KWOK's kubelet.

The program is kubelet-exec (twin/toolchain/modules/kubelet-exec), a child of the agent: what it starts must lie in the
user namespace that owns the pods'. It listens on a port of its own, which the agent writes into each node's status
once KWOK has made the node Ready.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from twin.kubernetes.api import NODES, ApiClient, Manifest
from twin.kubernetes.ports import free_ports
from twin.kubernetes.processes import spawn
from twin.toolchain import find_tool

PROGRAM = "kubelet-exec"


@dataclass
class ExecEndpoint:
    """The program of one cluster.

    Attributes:
        kwokctl: the directory that kwokctl keeps of the cluster, with its certificates and ports.
        pods: where the pods of the twin keep their files.
        path: PATH of what it starts.
    """

    api: ApiClient
    kwokctl: Path
    pods: Path
    log: Path
    path: str
    say: Callable[[str], None]
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    def reconcile(self, nodes: Sequence[Manifest]) -> None:
        """Start it, again if it ended, and let the API server find it on every node."""
        if self.process and self.process.poll() is not None:
            self.say(f"{PROGRAM} ended with exit code {self.process.returncode}; read {self.log}")
            self.process = None
        if self.process is None:
            self._start()
        endpoints = {"daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}}}
        for node in nodes:
            # Before KWOK has written its own, it would be written over.
            known = node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
            if self.process and known not in {None, self.port}:
                self.api.patch_status(NODES, node["metadata"]["name"], endpoints)

    def close(self) -> None:
        """Stop it."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _start(self) -> None:
        program = find_tool(PROGRAM)
        if program is None:
            return  # `up` may make the cluster before it is built.
        (self.port,) = free_ports(1)
        pki = self.kwokctl / "pki"
        command = [
            str(program),
            f"--port={self.port}",
            f"--cert={pki / 'admin.crt'}",
            f"--key={pki / 'admin.key'}",
            f"--client-ca={pki / 'ca.crt'}",
            f"--kwok-port={_kwok_port(self.kwokctl / 'kwok.yaml')}",
            "--",
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("enter.py")), str(self.pods)),
        ]
        with self.log.open("ab") as log:
            self.process = spawn(command, environment={"PATH": self.path}, log=log)


def _kwok_port(written: Path) -> int:
    """The port that kwokctl gave to KWOK's kubelet."""
    documents = yaml.safe_load_all(written.read_text())
    options = next(each["options"] for each in documents if each["kind"] == "KwokctlConfiguration")
    return int(options["kwokControllerPort"])
