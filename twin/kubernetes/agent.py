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

from jobs.errors import RlstackError
from twin.cloud.durations import Clock
from twin.cloud.faults import STOCKOUT
from twin.cloud.store import Resource, ResourceType, Store
from twin.kubernetes.api import NODES, PODS
from twin.kubernetes.cluster import AGENT, ClusterFiles, client, process_name
from twin.kubernetes.kubelet import Kubelet
from twin.kubernetes.nodes import Pool, pools_of, read_pool
from twin.kubernetes.operator import Operator, addon_enabled
from twin.kubernetes.pod_sources import SourceFinder
from twin.kubernetes.pools import Pools
from twin.kubernetes.sandbox import namespace_problem
from twin.state import TwinState

PERIOD_S = 0.5


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
        forbidden = namespace_problem()
        if forbidden:
            self.store.add_event("NoNamespaces", f"cluster {name}", forbidden)
        self.kubelet = Kubelet(
            state=state,
            store=self.store,
            api=self.api,
            log=say,
            agent_log=files.agent_log,
            namespaces_forbidden=forbidden,
        )
        self._refused: set[str] = set()

    def step(self) -> None:
        """Take one step, then say up to which generation of the store the cluster follows it."""
        generation = self.store.generation()
        cluster = next((row for row in self.store.list(ResourceType.CLUSTER) if row.name == self.name), None)
        if cluster is not None:
            self.operator.reconcile(enabled=addon_enabled(cluster))
            pods = self.api.list(PODS)
            pools = self._read_pools(cluster)
            self.pools.reconcile(pools, self.api.list(NODES), pods, stockout=STOCKOUT in self.store.faults())
            sources = SourceFinder(state=self.state, store=self.store, api=self.api, cluster=cluster)
            names = [node["metadata"]["name"] for node in self.api.list(NODES)]
            self.kubelet.reconcile(sources, pods, names)
        self.store.observe(self.name, generation)

    def close(self) -> None:
        """End all children."""
        self.kubelet.close()
        self.operator.close()

    def _read_pools(self, cluster: Resource) -> list[Pool]:
        pools = []
        for row in pools_of(cluster, self.store.list(ResourceType.NODE_POOL)):
            try:
                pools.append(read_pool(row, cluster))
            except RlstackError as error:
                if row.name not in self._refused:
                    self._refused.add(row.name)
                    self.store.add_event("PoolRefused", f"node pool {row.name}", str(error))
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
