"""KubeRay's operator, GKE's RayOperator add-on: the real program, run while the add-on is on.

Turning the add-on off stops the operator and leaves KubeRay's definitions: removing a definition deletes every
RayCluster with it, which no operator's uninstallation does (KubeRay's own chart leaves them too). What GKE itself does
is not known here.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from twin.cloud.store import Resource
from twin.kubernetes.api import DEFINITIONS, ApiClient
from twin.kubernetes.ports import free_ports
from twin.kubernetes.processes import spawn
from twin.toolchain import find_tool, kuberay_crds, tool_path


def addon_enabled(cluster: Resource) -> bool:
    """Whether the RayOperator add-on is on."""
    configs = (cluster.properties.get("addonsConfig") or {}).get("rayOperatorConfigs") or []
    return any(config.get("enabled") for config in configs)


@dataclass
class Operator:
    """The operator of one cluster."""

    api: ApiClient
    kubeconfig: Path
    log: Path
    say: Callable[[str], None]
    process: subprocess.Popen[bytes] | None = None

    def reconcile(self, *, enabled: bool) -> None:
        """Start or stop it; one that ended by itself is started again."""
        if self.process and self.process.poll() is not None:
            self.say(f"the KubeRay operator ended with exit code {self.process.returncode}; read {self.log}")
            self.process = None
        # `up` builds the operator last, and may make the cluster before it is there.
        if enabled and self.process is None and find_tool("kuberay-operator"):
            for manifest in kuberay_crds():
                self.api.apply(DEFINITIONS, yaml.safe_load(manifest.read_text()))
            self.process = self._start()
        elif not enabled:
            self.close()

    def close(self) -> None:
        """Stop it."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _start(self) -> subprocess.Popen[bytes]:
        metrics, health = free_ports(2)
        command = [
            str(tool_path("kuberay-operator")),
            "--enable-leader-election=false",
            *("--metrics-addr", f"127.0.0.1:{metrics}"),
            *("--health-probe-bind-address", f"127.0.0.1:{health}"),
        ]
        environment = {"PATH": os.defpath, "HOME": str(self.log.parent), "KUBECONFIG": str(self.kubeconfig)}
        with self.log.open("ab") as log:
            return spawn(command, environment=environment, log=log)
