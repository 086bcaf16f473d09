from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.twin.kubernetes import rows
from twin.cloud.durations import Clock
from twin.kubernetes.api import ApiClient, Manifest, Resource
from twin.kubernetes.nodes import read_pool
from twin.kubernetes.pools import NODE_IDLE, NODE_START, Pools

SYSTEM = read_pool(rows.system_pool(2), rows.cluster())
SPOT = read_pool(rows.spot_pool(), rows.cluster())


@dataclass
class Nodes:
    """An API server that knows nodes only."""

    nodes: dict[str, Manifest] = field(default_factory=dict)

    def create(self, _kind: Resource, manifest: Manifest) -> Manifest:
        self.nodes[manifest["metadata"]["name"]] = manifest
        return manifest

    def delete(self, _kind: Resource, name: str) -> None:
        self.nodes.pop(name, None)


@dataclass
class World:
    """One cluster's nodes on a clock that tests move."""

    api: Nodes = field(default_factory=Nodes)
    now: float = 0.0
    waiting: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pools = Pools(api=cast("ApiClient", self.api), clock=Clock(1.0), now=lambda: self.now)

    def step(self, *pods: Manifest, after_s: float = 0.0, gpu_limit: int = 2) -> int:
        """Reconcile once, `after_s` later; how many GPU nodes there are then."""
        self.now += after_s
        limits = {"system": 2, "gpu": gpu_limit}
        self.waiting = self.pools.reconcile([SYSTEM, SPOT], list(self.api.nodes.values()), pods, limits)
        return len(self.names("gpu"))

    def names(self, pool: str) -> list[str]:
        return [name for name in self.api.nodes if name.startswith(f"gke-c-{pool}-")]


@pytest.fixture
def world() -> World:
    return World()


def placed(pod: Manifest, node: str) -> Manifest:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def test_a_fixed_pool_has_its_nodes_at_once_and_gets_a_lost_one_back(world: World) -> None:
    world.step()
    assert len(world.names("system")) == 2
    world.api.delete(cast("Resource", None), world.names("system")[0])
    world.step()
    assert len(world.names("system")) == 1
    world.step(after_s=NODE_START.seconds)
    assert len(world.names("system")) == 2


def test_an_elastic_pool_grows_for_waiting_pods_after_the_machines_start(world: World) -> None:
    waiting = [rows.gpu_pod("a"), rows.gpu_pod("b")]
    assert world.step(*waiting) == 0
    assert world.step(*waiting, after_s=NODE_START.seconds / 2) == 0
    assert world.step(*waiting, after_s=NODE_START.seconds) == 2
    assert world.step(*waiting, after_s=NODE_START.seconds) == 2


def test_an_idle_node_goes_and_a_busy_one_stays(world: World) -> None:
    waiting = [rows.gpu_pod("a"), rows.gpu_pod("b")]
    world.step(*waiting)
    world.step(*waiting, after_s=NODE_START.seconds)
    busy = world.names("gpu")[0]
    running = placed(rows.gpu_pod("a"), busy)
    assert world.step(running) == 2
    world.step(running, after_s=NODE_IDLE.seconds)
    assert world.names("gpu") == [busy]


def test_a_daemon_set_keeps_no_node(world: World) -> None:
    world.step(rows.gpu_pod("a"))
    world.step(rows.gpu_pod("a"), after_s=NODE_START.seconds)
    daemon = placed(rows.pod("d", {"cpu": 1}), world.names("gpu")[0])
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "uid": "1"}]
    world.step(daemon)
    assert world.step(daemon, after_s=NODE_IDLE.seconds) == 0


def test_no_more_machines_come_than_google_gives_until_it_gives_more(world: World) -> None:
    both = (rows.gpu_pod("a"), rows.gpu_pod("b"))
    world.step(*both)
    assert world.step(*both, after_s=10 * NODE_START.seconds, gpu_limit=0) == 0
    assert world.waiting == ["gpu"]
    assert len(world.names("system")) == 2
    assert world.step(*both, gpu_limit=1) == 1
    assert world.step(*both) == 2
    assert world.waiting == []


def test_nodes_of_a_pool_that_is_gone_go(world: World) -> None:
    world.step()
    world.pools.reconcile([SPOT], list(world.api.nodes.values()), [], {"gpu": 2})
    assert world.api.nodes == {}
