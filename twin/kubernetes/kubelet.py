"""Runs the Ray pods that the scheduler bound to the cluster's nodes, as the kubelets of those nodes would.

A pod's phase, readiness and exit come from its processes: a head is Ready when its dashboard counts its own Ray node
among the living, a worker when the head's does. KubeRay's init container `wait-gcs-ready` is honoured in effect: a
worker starts once its head is Ready. Other init containers are passed over: they fetch what only GPUs use. Probes and
preStop hooks are not run either; what they find out is read from Ray and from the processes.

All pods of one RayCluster share a sandbox. A replaced RayCluster has a new uid and with it a new sandbox, so the old
one's dying processes meet nothing of the new.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import TwinError
from twin.cloud.store import Store
from twin.kubernetes.api import EVENTS, KWOK_PORT_FORWARDS, PODS, ApiClient, Manifest
from twin.kubernetes.kwok import RAY_CLUSTER_LABEL
from twin.kubernetes.pod_run import PodRun
from twin.kubernetes.pod_sources import Obstacle, SourceFinder
from twin.kubernetes.pod_status import ContainerState, Waiting, pod_status, timestamp
from twin.kubernetes.ray_nodes import alive_addresses
from twin.kubernetes.relay import DASHBOARD_PORT
from twin.kubernetes.sandbox import Sandbox
from twin.state import TwinState

LONGEST_GRACE_S = 10.0
"""Pods may ask for minutes; on the twin nothing that they would save is lost after this."""
POD_NETWORK_PREFIX = "10.4"
"""The pod range of Google's own A4 blueprint is 10.4.0.0/14."""

_HEAD = "head"


@dataclass
class Kubelet:
    """The pods of one cluster.

    Attributes:
        namespaces_forbidden: why this machine can run no pod, if it cannot.
        runs: pod uid to its processes.
        sandboxes: uid of a RayCluster to the namespaces of its pods.
    """

    state: TwinState
    store: Store
    api: ApiClient
    log: Callable[[str], None]
    agent_log: Path
    namespaces_forbidden: str | None
    runs: dict[str, PodRun] = field(default_factory=dict)
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    _addresses: "itertools.count[int]" = field(default_factory=lambda: itertools.count(2))
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def reconcile(self, sources: SourceFinder, pods: Sequence[Manifest], node_names: Iterable[str]) -> None:
        """Do one step for every Ray pod."""
        machines = set(node_names)
        mine = {p["metadata"]["uid"]: p for p in pods if _is_ray(p) and p["spec"].get("nodeName")}
        for uid in [uid for uid in self.runs if uid not in mine]:
            self._kill(uid)
        for cluster in [cluster for cluster, sandbox in self.sandboxes.items() if not sandbox.alive]:
            self._abandon(cluster)
        alive = self._alive_nodes(mine)
        # Heads first: a worker looks for its head's run.
        for pod in sorted(mine.values(), key=lambda pod: not _is_head(pod)):
            try:
                self._step(sources, pod, alive, lost=pod["spec"]["nodeName"] not in machines)
            except TwinError as error:
                self.log(f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {error}")
        used = {_ray_cluster(pod) for pod in pods if _is_ray(pod)} | {_ray_cluster(r.pod) for r in self.runs.values()}
        for uid in [uid for uid in self.sandboxes if uid not in used]:
            self.sandboxes.pop(uid).close()

    def close(self) -> None:
        """End every pod's processes; their objects stay, for the next agent to run again."""
        for uid in list(self.runs):
            self._kill(uid)
        for sandbox in self.sandboxes.values():
            sandbox.close()

    def _step(self, sources: SourceFinder, pod: Manifest, alive: dict[str, frozenset[str]], *, lost: bool) -> None:
        metadata = pod["metadata"]
        run = self.runs.get(metadata["uid"])
        if lost:
            self._kill(metadata["uid"])
            self.api.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        elif "deletionTimestamp" in metadata:
            self._end(pod, run)
        elif pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            if run is None:
                run = self._try_start(sources, pod)
            if run is not None:
                run.keep_running()
                self._write_status(pod, run, alive)

    def _end(self, pod: Manifest, run: PodRun | None) -> None:
        metadata = pod["metadata"]
        if run is not None:
            run.ask_to_end(grace_s=min(LONGEST_GRACE_S, float(metadata.get("deletionGracePeriodSeconds") or 0)))
            if not run.ended():
                return
            run.remove()
            del self.runs[metadata["uid"]]
        self.api.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    def _abandon(self, cluster: str) -> None:
        """Give up a sandbox without its relay: its pods are started again in a new one."""
        self.log(f"the relay of RayCluster {cluster} ended; its pods start again")
        for uid in [uid for uid, run in self.runs.items() if _ray_cluster(run.pod) == cluster]:
            self._kill(uid)
        del self.sandboxes[cluster]

    def _kill(self, uid: str) -> None:
        run = self.runs.pop(uid, None)
        if run is not None:
            run.kill()
            run.remove()

    def _try_start(self, sources: SourceFinder, pod: Manifest) -> PodRun | None:
        """Start a pod, or write down what it waits for."""
        metadata = pod["metadata"]
        directory = self.state.pod(metadata["namespace"], metadata["name"])
        try:
            found = sources.find(pod, directory)
            head = self._head_of(pod)
            if not _is_head(pod) and not (head and head.ready):
                self._write_waiting(pod, Waiting(reason="PodInitializing"))
                return None
            address = self._next_address()
            hosts = _hosts(pod, address, head.address if head else address)
            sandbox = self._sandbox(pod)
            run = PodRun(pod=pod, sandbox=sandbox, address=address, directory=directory, hosts=hosts, sources=found)
            run.remove()
            run.start()
        except Obstacle as obstacle:
            self._write_waiting(pod, Waiting(reason=obstacle.waiting, message=obstacle.message))
            self._report(pod, obstacle.event, obstacle.message)
            return None
        except TwinError as error:
            self._write_waiting(pod, Waiting(reason="RunContainerError", message=str(error)))
            self._report(pod, "Failed", str(error))
            return None
        self.runs[metadata["uid"]] = run
        if _is_head(pod):
            self._forward_dashboard(pod, run)
        self._report(pod, "Started", f"Started the pod's containers at {address}")
        return run

    def _head_of(self, pod: Manifest) -> PodRun | None:
        cluster = _ray_cluster(pod)
        return next((r for r in self.runs.values() if _is_head(r.pod) and _ray_cluster(r.pod) == cluster), None)

    def _sandbox(self, pod: Manifest) -> Sandbox:
        if self.namespaces_forbidden:
            message = self.namespaces_forbidden
            raise Obstacle(waiting="ContainerCreating", event="FailedCreatePodSandBox", message=message)
        cluster = _ray_cluster(pod)
        sandbox = self.sandboxes.get(cluster)
        if sandbox is None:
            with self.agent_log.open("ab") as log:
                sandbox = self.sandboxes[cluster] = Sandbox.open(log)
        return sandbox

    def _next_address(self) -> str:
        number = next(self._addresses)
        return f"{POD_NETWORK_PREFIX}.{number // 256 % 256}.{number % 256}"

    def _alive_nodes(self, mine: dict[str, Manifest]) -> dict[str, frozenset[str]]:
        """Ask the dashboards of those RayClusters in which a pod is not Ready yet."""
        unready = {_ray_cluster(run.pod) for uid, run in self.runs.items() if uid in mine and not run.ready}
        return {cluster: alive_addresses(self.sandboxes[cluster].port) for cluster in unready}

    def _write_status(self, pod: Manifest, run: PodRun, alive: dict[str, frozenset[str]]) -> None:
        run.pod = pod
        run.ready = run.ready or run.address in alive.get(_ray_cluster(pod), frozenset())
        self._write(pod, pod_status(pod, run.states(), address=run.address, initialized=True, now=time.time()))

    def _write_waiting(self, pod: Manifest, waiting: Waiting) -> None:
        states = [ContainerState(name=c["name"], image=c["image"], waiting=waiting) for c in pod["spec"]["containers"]]
        self._write(pod, pod_status(pod, states, address="", initialized=False, now=time.time()))

    def _write(self, pod: Manifest, status: Manifest) -> None:
        metadata = pod["metadata"]
        if any(pod.get("status", {}).get(key) != value for key, value in status.items()):
            self.api.patch_status(PODS, metadata["name"], status, metadata["namespace"])

    def _forward_dashboard(self, pod: Manifest, run: PodRun) -> None:
        """Let port-forwards through the API server find the head's dashboard."""
        metadata = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        target = {"address": "127.0.0.1", "port": run.sandbox.port}
        manifest = {
            "apiVersion": KWOK_PORT_FORWARDS.api_version,
            "kind": "PortForward",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner]},
            "spec": {"forwards": [{"ports": [DASHBOARD_PORT], "target": target}]},
        }
        self.api.apply(KWOK_PORT_FORWARDS, manifest)

    def _report(self, pod: Manifest, reason: str, message: str) -> None:
        """Write an event of the pod, once for each thing that there is to say."""
        metadata = pod["metadata"]
        if (metadata["uid"], message) in self._reported:
            return
        self._reported.add((metadata["uid"], message))
        now = timestamp(time.time())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": "Normal" if reason == "Started" else "Warning",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.api.create(EVENTS, event)
        if reason != "Started":
            self.store.add_event(reason, f"pod {metadata['namespace']}/{metadata['name']}", message)


def _is_ray(pod: Manifest) -> bool:
    return RAY_CLUSTER_LABEL in pod["metadata"].get("labels", {})


def _is_head(pod: Manifest) -> bool:
    return bool(pod["metadata"]["labels"].get("ray.io/node-type") == _HEAD)


def _ray_cluster(pod: Manifest) -> str:
    """Identity of the RayCluster that a pod belongs to."""
    owners = pod["metadata"].get("ownerReferences", [])
    return str(owners[0]["uid"]) if owners else str(pod["metadata"]["labels"][RAY_CLUSTER_LABEL])


def _hosts(pod: Manifest, address: str, head_address: str) -> str:
    """The pod's /etc/hosts: itself, and the head behind every name that its service has in the cluster's DNS."""
    metadata = pod["metadata"]
    service = f"{metadata['labels'][RAY_CLUSTER_LABEL]}-head-svc"
    domains = ("", f".{metadata['namespace']}", f".{metadata['namespace']}.svc")
    names = [service + domain for domain in (*domains, f"{domains[-1]}.cluster.local")]
    lines = ["127.0.0.1 localhost", f"{address} {metadata['name']}", f"{head_address} {' '.join(names)}"]
    return "\n".join(lines) + "\n"
