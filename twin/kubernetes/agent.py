"""The agent of one cluster: `python -m twin.kubernetes.agent --cluster NAME`, started by cluster.py.

Twice a second it reads the store and the API server, and takes one step towards what they say: node pools become
nodes, the RayOperator add-on becomes KubeRay's operator, Ray pods become processes. It keeps nothing of its own: a new
agent goes on from the same two sources. Its children die with it.
"""

import argparse
import os
import signal
import sys
import time
import traceback
from types import FrameType

from jobs.errors import RlstackError, TwinError
from twin.cloud.durations import Clock
from twin.cloud.faults import BUCKET_DENIED, LUSTRE_FULL
from twin.cloud.rules import gpu_problem
from twin.cloud.storage import CloudStorage
from twin.cloud.store import Resource, ResourceType, Store
from twin.kubernetes import multi_networking
from twin.kubernetes.api import NODES, PODS, Manifest
from twin.kubernetes.cluster import AGENT, ClusterFiles, client, process_name
from twin.kubernetes.exec_endpoint import ExecEndpoint
from twin.kubernetes.kubelet import Kubelet
from twin.kubernetes.lustre_mounts import LustreMounts, enter_own_namespace
from twin.kubernetes.nodes import Pool, pools_of, read_pool
from twin.kubernetes.operator import Operator, addon_enabled
from twin.kubernetes.pod_sources import SourceFinder
from twin.kubernetes.pools import Pools
from twin.kubernetes.sandbox import namespace_problem
from twin.kubernetes.shutdown import end_due
from twin.kubernetes.simulated_heads import SimulatedHeads
from twin.state import TwinState

PERIOD_S = 0.5
LUSTRE_OBJECT = "Lustre"


class Agent:
    """What one cluster's agent holds; see the module."""

    def __init__(self, state: TwinState, name: str) -> None:
        self.state = state
        self.name = name
        self.store = Store.open(state)
        self.api = client(state, name)
        files = ClusterFiles(state.cluster(name))
        self.directory = files.root
        self.operator = Operator(
            api=self.api, kubeconfig=files.kubeconfig, log=files.root / "kuberay-operator.log", say=say
        )
        self.pools = Pools(api=self.api, clock=Clock.from_environment())
        self.heads = SimulatedHeads(api=self.api) if state.without_ray.exists() else None
        forbidden = None if self.heads else namespace_problem()
        if forbidden:
            self.store.add_event("NoNamespaces", f"cluster {name}", forbidden)
        self.cloud_storage = CloudStorage(state.buckets)
        self.kubelet = Kubelet(
            state=state,
            store=self.store,
            api=self.api,
            log=say,
            agent_log=files.agent_log,
            namespaces_forbidden=forbidden,
            cloud_storage=self.cloud_storage,
        )
        self.exec_endpoint = ExecEndpoint(
            api=self.api,
            kwokctl=files.kwokctl,
            pods=state.pods,
            log=files.root / "kubelet-exec.log",
            path=os.environ.get("PATH", os.defpath),
            say=say,
        )
        self.lustre = LustreMounts(scratch=files.root / "full-lustre")
        if not self.heads and not forbidden:
            enter_own_namespace()
        self._told: dict[str, str] = {}
        self._multi_networking = False

    def step(self) -> None:
        """Take one step, then say up to which generation of the store the cluster follows it."""
        generation = self.store.generation()
        cluster = next((row for row in self.store.list(ResourceType.CLUSTER) if row.name == self.name), None)
        if cluster is not None:
            self.operator.reconcile(enabled=addon_enabled(cluster))
            if multi_networking.enabled(cluster) and not self._multi_networking:
                multi_networking.install(self.api)
                self._multi_networking = True
            pods = self.api.list(PODS)
            pools = self._read_pools(cluster)
            end_due(self.api, self.api.list(NODES))
            self._fit_nodes(cluster, pools, pods)
            nodes = self.api.list(NODES)
            sources = SourceFinder(
                state=self.state, store=self.store, api=self.api, cluster=cluster, lustre=self.lustre
            )
            if self.heads:
                names = [node["metadata"]["name"] for node in nodes]
                for pod, missing in self.heads.reconcile(pods, names, sources.obstacles).items():
                    self._tell("FailedMount", f"pod {pod}", missing)
            else:
                self._fill_lustre()
                self.cloud_storage.project = cluster.project
                self.cloud_storage.denied = BUCKET_DENIED in self.store.faults()
                self.kubelet.reconcile(sources, pods, nodes)
                self.exec_endpoint.reconcile(nodes)
        self.store.observe(self.name, generation)

    def close(self) -> None:
        """End all children."""
        self.exec_endpoint.close()
        self.kubelet.close()
        if self.heads:
            self.heads.close()
        self.operator.close()

    def _fit_nodes(self, cluster: Resource, pools: list[Pool], pods: list[Manifest]) -> None:
        """Let nodes come and go, within what Google would give; say once what keeps a pool from what it wants."""
        rows = {row.name: row for row in pools_of(cluster, self.store.list(ResourceType.NODE_POOL))}
        limits: dict[str, int] = {}
        reasons: dict[str, str] = {}
        for pool in pools:
            row = rows[pool.name]
            held, of = self.store.held_back(row.id)
            most = next(n for n in range(pool.maximum, -1, -1) if gpu_problem(self.store, row, n) is None)
            limits[pool.name] = min(most, of - held) if held else most
            taken = f"Spot machines that were preempted are not to be had yet: {held} of {of}"
            reasons[pool.name] = gpu_problem(self.store, row, most + 1) or taken
        waiting = self.pools.reconcile(pools, self.api.list(NODES), pods, limits)
        for name in waiting:
            self._tell("FailedScaleUp", f"node pool {name}", reasons[name])
        for name in limits.keys() - set(waiting):
            self._told.pop(f"node pool {name}", None)

    def _fill_lustre(self) -> None:
        left = self.store.faults().get(LUSTRE_FULL)
        try:
            self.lustre.reconcile(None if left is None else int(left or 0))
            self._told.pop(LUSTRE_OBJECT, None)
        except TwinError as error:
            self._tell("LustreNotFilled", LUSTRE_OBJECT, str(error))

    def _tell(self, kind: str, object_: str, text: str) -> None:
        """Keep an event, once as long as it says the same."""
        if self._told.get(object_) != text:
            self._told[object_] = text
            self.store.add_event(kind, object_, text)

    def _read_pools(self, cluster: Resource) -> list[Pool]:
        pools = []
        for row in pools_of(cluster, self.store.list(ResourceType.NODE_POOL)):
            try:
                pools.append(read_pool(row, cluster))
            except RlstackError as error:
                self._tell("PoolRefused", f"node pool {row.name}", str(error))
        return pools


def say(text: str) -> None:
    """Write a line to the agent's log."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def _on_term(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    """Run until asked to end, or until the cluster's directory is gone."""
    parser = argparse.ArgumentParser(prog="python -m twin.kubernetes.agent", description=__doc__)
    parser.add_argument("--cluster", required=True, help="name of the GKE cluster")
    name = parser.parse_args().cluster
    signal.signal(signal.SIGTERM, _on_term)
    state = TwinState.from_environment()
    Store.open(state).record_process(process_name(name, AGENT), os.getpid())
    agent = Agent(state, name)
    say(f"agent of cluster {name} started")
    try:
        while agent.directory.exists():
            try:
                agent.step()
            except Exception:  # noqa: BLE001 - whatever one pass met, the next one starts from the sources again
                say(traceback.format_exc())
            time.sleep(PERIOD_S)
    finally:
        agent.close()


if __name__ == "__main__":
    main()
