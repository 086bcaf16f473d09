"""One Ray pod as processes: starts its containers, sees them end, starts them again, ends them."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from jobs.errors import TwinError
from twin.cloud.store import ProcessIdentity
from twin.kubernetes import images
from twin.kubernetes.api import Manifest
from twin.kubernetes.containers import GENERATED_COMMAND, command, environment
from twin.kubernetes.enter import INIT_FILE
from twin.kubernetes.mounts import Sources, container_mounts, shm_bytes
from twin.kubernetes.pod_status import ContainerState, Exit, Waiting
from twin.kubernetes.processes import members_of, send
from twin.kubernetes.projected import ProjectedVolumes
from twin.kubernetes.quantities import amount
from twin.kubernetes.ray_start import object_store_bytes, rewrite
from twin.kubernetes.sandbox import Sandbox

# The kubelet starts a container that ended again at once, then after 10 s, doubled each time up to 300 s.
FIRST_BACKOFF_S = 10.0
LONGEST_BACKOFF_S = 300.0


@dataclass
class RunningContainer:
    """One container's processes; everything else of it is in the pod's spec."""

    spec: dict[str, Any]
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    namespace: str = ""
    started_at: float = 0.0
    ended: Exit | None = None
    restarts: int = 0

    @property
    def log(self) -> Path:
        """Its standard output and standard error."""
        return self.directory / "log"

    def observe(self) -> None:
        """Notice the end of the process."""
        if self.process is None:
            return
        code = self.process.poll()
        if code is not None:
            self.process = None
            # A negative code is the signal that killed it; shells and kubelets count from 128.
            exit_code = code if code >= 0 else 128 - code
            self.ended = Exit(code=exit_code, started_at=self.started_at, finished_at=time.time())

    def backoff_s(self) -> float:
        """How long the kubelet would wait before the next start."""
        return 0.0 if self.restarts == 0 else min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self.restarts - 1))

    def due(self, *, restartable: bool) -> bool:
        """Whether it ended and is to be started now."""
        if self.process or not self.ended or not restartable:
            return False
        return time.time() - self.ended.finished_at >= self.backoff_s()

    def state(self, *, ready: bool, restartable: bool) -> ContainerState:
        """Describe it for the pod's status."""
        waiting = None
        if self.ended and restartable:
            waiting = Waiting(reason="CrashLoopBackOff", message=f"back-off {self.backoff_s():.0f}s")
        return ContainerState(
            name=self.spec["name"],
            image=self.spec["image"],
            waiting=waiting,
            running_since=self.started_at if self.process else None,
            ended=self.ended if not waiting and not self.process else None,
            last_exit=self.ended,
            restarts=self.restarts,
            ready=ready and self.process is not None,
        )


@dataclass
class PodRun:
    """A pod that was started.

    Attributes:
        address: its address in the pod network.
        directory: all that it keeps on this machine; goes with it.
        hosts: its /etc/hosts.
        ready: whether its Ray node was seen alive since its containers last started.
        end_by: when its processes are killed, on the monotonic clock; None while it may live.
    """

    pod: Manifest
    sandbox: Sandbox
    address: str
    directory: Path
    hosts: str
    sources: Sources
    projected: ProjectedVolumes
    containers: list[RunningContainer] = field(default_factory=list)
    ready: bool = False
    end_by: float | None = None

    def start(self) -> None:
        """Start every container for the first time.

        Raises:
            TwinError: the spec asks for what the twin cannot give.
        """
        self.projected.write()
        for spec in self.pod["spec"]["containers"]:
            restarts = _restarts_before(self.pod, spec["name"])
            container = RunningContainer(spec=spec, directory=self.directory / spec["name"], restarts=restarts)
            self.containers.append(container)
            try:
                self._start(container)
            except TwinError:
                self.kill()
                raise

    def keep_running(self) -> None:
        """Start ended containers again, as the restart policy says, and keep the pod's tokens fresh."""
        self.projected.renew()
        for container in self.containers:
            container.observe()
            if container.due(restartable=self._restartable(container)):
                container.restarts += 1
                self._start(container)

    def states(self) -> list[ContainerState]:
        """Describe its containers."""
        return [c.state(ready=self.ready, restartable=self._restartable(c)) for c in self.containers]

    def ask_to_end(self, *, grace_s: float) -> None:
        """Ask every process of the pod to end, once; `ended` kills what is left after `grace_s`.

        KubeRay's image runs `ray stop` before a pod stops; asking all processes is what that comes to.
        """
        if self.end_by is None:
            self.end_by = time.monotonic() + grace_s
            for container in self.containers:
                for pid in members_of(container.namespace):
                    if identity := ProcessIdentity.of(pid):
                        send(identity, signal.SIGTERM)

    def ended(self) -> bool:
        """Whether every process is gone; past the grace period they are killed first."""
        for container in self.containers:
            container.observe()
        if self.end_by is not None and time.monotonic() >= self.end_by:
            self.kill()
        return all(c.process is None and not members_of(c.namespace) for c in self.containers)

    def kill(self) -> None:
        """Kill all of the pod at once: the kernel ends a pid namespace with its first process."""
        for container in self.containers:
            if container.process:
                container.process.kill()
                container.process.wait()
                container.observe()

    def remove(self) -> None:
        """Remove what it kept; what its processes wrote may belong to nobody else."""
        shutil.rmtree(self.directory, ignore_errors=True)
        with suppress(OSError):
            self.directory.parent.rmdir()

    def _restartable(self, container: RunningContainer) -> bool:
        if self.end_by is not None:
            return False
        policy = self.pod["spec"].get("restartPolicy", "Always")
        failed = container.ended is not None and container.ended.code != 0
        return policy == "Always" or (policy == "OnFailure" and failed)

    def _start(self, container: RunningContainer) -> None:
        container.directory.mkdir(parents=True, exist_ok=True)
        with container.log.open("ab") as log:
            container.process = self._launch(container, log)
        container.namespace = _child_namespace(container.process)
        if identity := ProcessIdentity.of(container.process.pid):
            (container.directory / INIT_FILE).write_text(f"{identity.pid} {identity.started}")
        container.started_at = time.time()
        self.ready = False

    def _launch(self, container: RunningContainer, log: IO[bytes]) -> subprocess.Popen[bytes]:
        spec = container.spec
        image = images.find(spec["image"])
        if image is None:
            raise TwinError(images.not_found(spec["image"]))
        mounts = container_mounts(self.pod["spec"], spec, image, self.sources)
        for directory in (container.directory / "tmp", container.directory / "home", self.directory / "root"):
            directory.mkdir(parents=True, exist_ok=True)
        for volume in self.pod["spec"].get("volumes", []):
            self.sources.volume(volume["name"]).mkdir(parents=True, exist_ok=True)
        memory = spec.get("resources", {}).get("limits", {}).get("memory")
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        store_bytes = object_store_bytes(
            memory_bytes=amount(memory) if memory else float("inf"),
            shm_bytes=shm_bytes(mounts),
            machine_bytes=machine_bytes,
        )
        variables = environment(self.pod, spec, image, self.sources, self.address)
        if GENERATED_COMMAND in variables:
            variables[GENERATED_COMMAND] = rewrite(
                variables[GENERATED_COMMAND], address=self.address, store_bytes=store_bytes
            )
        words = [rewrite(w, address=self.address, store_bytes=store_bytes) for w in command(spec, variables)]
        plan = {
            "root": str(self.directory / "root"),
            "mounts": [mount.as_plan() for mount in mounts],
            "hosts": self.hosts,
            "hostname": self.pod["metadata"]["name"],
            "address": self.address,
            "workdir": spec.get("workingDir") or image.workdir,
            "environment": variables,
            "command": words,
        }
        return self.sandbox.launch(json.dumps(plan).encode(), log)


def _restarts_before(pod: Manifest, container: str) -> int:
    """Count the starts under an agent that is gone: its containers went with it, as at a reboot of the node."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    status: Manifest = next((each for each in statuses if each["name"] == container), {})
    ran = "running" in status.get("state", {})
    return int(status.get("restartCount", 0)) + ran


def _child_namespace(wrapper: subprocess.Popen[bytes]) -> str:
    """Wait until `unshare` has made the pid namespace of its children, and name it."""
    own = str(Path("/proc/self/ns/pid").readlink())
    link = Path(f"/proc/{wrapper.pid}/ns/pid_for_children")
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        with suppress(OSError):
            if (target := str(link.readlink())) not in {own, ""}:
                return target
        if wrapper.poll() is not None:
            break
        time.sleep(0.01)
    return "none"
