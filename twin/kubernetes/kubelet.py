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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import TwinError
from twin.cloud.storage import CloudStorage
from twin.cloud.store import Store
from twin.kubernetes.api import EVENTS, PODS, ApiClient, Manifest
from twin.kubernetes.kwok import RAY_CLUSTER_LABEL
from twin.kubernetes.pod_run import PodRun
from twin.kubernetes.pod_sources import Obstacle, SourceFinder
from twin.kubernetes.pod_status import ContainerState, Waiting, pod_status, shut_down, timestamp
from twin.kubernetes.projected import ProjectedVolumes
from twin.kubernetes.ray_nodes import alive_addresses
from twin.kubernetes.ray_pods import forward_dashboard, is_head, is_ray, ray_cluster_of
from twin.kubernetes.sandbox import Sandbox
from twin.kubernetes.shutdown import ending
from twin.state import TwinState

LONGEST_GRACE_S = 10.0
"""Pods may ask for minutes; on the twin nothing that they would save is lost after this."""
FINISHED = frozenset({"Succeeded", "Failed"})
POD_NETWORK_PREFIX = "10.4"
"""The pod range of Google's own A4 blueprint is 10.4.0.0/14."""


@dataclass
class Kubelet:
    """The pods of one cluster.

    Attributes:
        namespaces_forbidden: why this machine can run no pod, if it cannot.
        cloud_storage: what pods reach as Google's services.
        runs: pod uid to its processes.
        sandboxes: uid of a RayCluster to the namespaces of its pods.
    """

    state: TwinState
    store: Store
    api: ApiClient
    log: Callable[[str], None]
    agent_log: Path
    namespaces_forbidden: str | None
    cloud_storage: CloudStorage
    runs: dict[str, PodRun] = field(default_factory=dict)
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    _addresses: "itertools.count[int]" = field(default_factory=lambda: itertools.count(2))
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def reconcile(self, sources: SourceFinder, pods: Sequence[Manifest], nodes: Sequence[Manifest]) -> None:
        """Do one step for every Ray pod."""
        machines = {node["metadata"]["name"] for node in nodes}
        ends_at = ending(nodes)
        mine = {p["metadata"]["uid"]: p for p in pods if is_ray(p) and p["spec"].get("nodeName")}
        for uid in [uid for uid in self.runs if uid not in mine]:
            self._kill(uid)
        for cluster in [cluster for cluster, sandbox in self.sandboxes.items() if not sandbox.alive]:
            self._abandon(cluster)
        alive = self._alive_nodes(mine)
        # Heads first: a worker looks for its head's run.
        for pod in sorted(mine.values(), key=lambda pod: not is_head(pod)):
            try:
                node = pod["spec"]["nodeName"]
                if node in ends_at and node in machines:
                    self._shut_down(pod, ends_at[node])
                else:
                    self._step(sources, pod, alive, lost=node not in machines)
            except TwinError as error:
                self.log(f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {error}")
        used = {ray_cluster_of(pod) for pod in pods if is_ray(pod)} | {
            ray_cluster_of(r.pod) for r in self.runs.values()
        }
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
        elif pod.get("status", {}).get("phase") not in FINISHED:
            if run is None:
                run = self._try_start(sources, pod)
            if run is not None:
                run.keep_running()
                self._write_status(pod, run, alive)

    def _shut_down(self, pod: Manifest, ends_at: float) -> None:
        """End a pod whose machine goes at `ends_at`, Unix seconds, as the kubelet's graceful node shutdown does."""
        run = self.runs.get(pod["metadata"]["uid"])
        if run is None or pod["status"].get("phase") in FINISHED:
            return
        run.ask_to_end(grace_s=max(0.0, ends_at - time.time()))
        if run.ended():
            status = pod_status(pod, run.states(), address=run.address, initialized=True, now=time.time())
            self._write(pod, shut_down(status))

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
        """Give up a sandbox without one of its relays: its pods are started again in a new one."""
        self.log(f"a relay of RayCluster {cluster} ended; its pods start again")
        for uid in [uid for uid, run in self.runs.items() if ray_cluster_of(run.pod) == cluster]:
            self._kill(uid)
        self.sandboxes.pop(cluster).close()

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
            self._require_namespaces()
            found = sources.find(pod, directory)
            head = self._head_of(pod)
            if not is_head(pod) and not (head and head.ready):
                self._write_waiting(pod, Waiting(reason="PodInitializing"))
                return None
            address = self._next_address()
            hosts = _hosts(pod, address, head.address if head else address)
            sandbox = self._sandbox(pod)
            run = PodRun(
                pod=pod,
                sandbox=sandbox,
                address=address,
                directory=directory,
                hosts=hosts,
                sources=found,
                projected=ProjectedVolumes(api=self.api, pod=pod, sources=found, address=address),
            )
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
        if is_head(pod):
            forward_dashboard(self.api, pod, run.sandbox.port)
        self._report(pod, "Started", f"Started the pod's containers at {address}")
        return run

    def _head_of(self, pod: Manifest) -> PodRun | None:
        cluster = ray_cluster_of(pod)
        return next((r for r in self.runs.values() if is_head(r.pod) and ray_cluster_of(r.pod) == cluster), None)

    def _require_namespaces(self) -> None:
        if self.namespaces_forbidden:
            message = self.namespaces_forbidden
            raise Obstacle(waiting="ContainerCreating", event="FailedCreatePodSandBox", message=message)

    def _sandbox(self, pod: Manifest) -> Sandbox:
        cluster = ray_cluster_of(pod)
        sandbox = self.sandboxes.get(cluster)
        if sandbox is None:
            with self.agent_log.open("ab") as log:
                sandbox = self.sandboxes[cluster] = Sandbox.open(
                    log, api_server=self.api.server, cloud_storage=self.cloud_storage
                )
        return sandbox

    def _next_address(self) -> str:
        number = next(self._addresses)
        return f"{POD_NETWORK_PREFIX}.{number // 256 % 256}.{number % 256}"

    def _alive_nodes(self, mine: dict[str, Manifest]) -> dict[str, frozenset[str]]:
        """Ask the dashboards of those RayClusters in which a pod is not Ready yet."""
        unready = {ray_cluster_of(run.pod) for uid, run in self.runs.items() if uid in mine and not run.ready}
        return {cluster: alive_addresses(self.sandboxes[cluster].port) for cluster in unready}

    def _write_status(self, pod: Manifest, run: PodRun, alive: dict[str, frozenset[str]]) -> None:
        run.pod = pod
        run.ready = run.ready or run.address in alive.get(ray_cluster_of(pod), frozenset())
        self._write(pod, pod_status(pod, run.states(), address=run.address, initialized=True, now=time.time()))

    def _write_waiting(self, pod: Manifest, waiting: Waiting) -> None:
        states = [ContainerState(name=c["name"], image=c["image"], waiting=waiting) for c in pod["spec"]["containers"]]
        self._write(pod, pod_status(pod, states, address="", initialized=False, now=time.time()))

    def _write(self, pod: Manifest, status: Manifest) -> None:
        metadata = pod["metadata"]
        if any(pod.get("status", {}).get(key) != value for key, value in status.items()):
            self.api.patch_status(PODS, metadata["name"], status, metadata["namespace"])

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


def _hosts(pod: Manifest, address: str, head_address: str) -> str:
    """The pod's /etc/hosts: itself, and the head behind every name that its service has in the cluster's DNS."""
    metadata = pod["metadata"]
    service = f"{metadata['labels'][RAY_CLUSTER_LABEL]}-head-svc"
    domains = ("", f".{metadata['namespace']}", f".{metadata['namespace']}.svc")
    names = [service + domain for domain in (*domains, f"{domains[-1]}.cluster.local")]
    lines = ["127.0.0.1 localhost", f"{address} {metadata['name']}", f"{head_address} {' '.join(names)}"]
    return "\n".join(lines) + "\n"
