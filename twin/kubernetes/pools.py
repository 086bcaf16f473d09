"""Keeps the cluster's Node objects in step with its node pools: GKE's node pools and its cluster autoscaler.

A fixed pool holds its size. An elastic one (maximum above minimum) grows by what unschedulable pods need and gives a
node back once nothing but DaemonSets has run on it for a while. What a machine takes to come is simulated; a machine
that somebody deletes (a preemption) is missing, and is brought back the same way.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twin.cloud.durations import Clock, Duration
from twin.kubernetes.api import NODES, ApiClient, Manifest
from twin.kubernetes.nodes import POOL_LABEL, Pool, node_manifest, node_name
from twin.kubernetes.quantities import amounts
from twin.kubernetes.scheduling import PoolSize, Room, nodes_to_add, unschedulable

NODE_START = Duration(seconds=150)
"""From the decision to add a machine to its Node object."""
NODE_IDLE = Duration(seconds=600)
"""How long a node must be idle before GKE's autoscaler gives it back; its documentation says 10 minutes."""
SHORTEST_IDLE_S = 10.0
"""Real seconds below which no clock brings that: the scheduler must have the time to use a node that has just come."""


@dataclass
class Pools:
    """The node pools of one cluster.

    Attributes:
        coming: pool name to the times, on the monotonic clock, at which ordered machines arrive.
        idle_since: node name to when it was first seen without pods.
    """

    api: ApiClient
    clock: Clock
    now: Callable[[], float] = time.monotonic
    coming: dict[str, list[float]] = field(default_factory=dict)
    idle_since: dict[str, float] = field(default_factory=dict)

    def reconcile(
        self, pools: Sequence[Pool], nodes: Sequence[Manifest], pods: Sequence[Manifest], limits: Mapping[str, int]
    ) -> list[str]:
        """Add and remove nodes once.

        Args:
            pools: the cluster's node pools.
            nodes: its nodes.
            pods: its pods.
            limits: pool name to the most machines that Google would give it now.

        Returns:
            names of the pools that wait for machines because of that.
        """
        known = {pool.name: pool for pool in pools}
        members: dict[str, list[Manifest]] = {pool.name: [] for pool in pools}
        for node in nodes:
            pool_name = node["metadata"]["labels"].get(POOL_LABEL, "")
            if pool_name in known:
                members[pool_name].append(node)
            else:
                self.api.delete(NODES, node["metadata"]["name"])
        for name in [name for name in self.coming if name not in known]:
            del self.coming[name]
        self._order(pools, members, pods)
        waiting = []
        for pool in pools:
            if self._arrive(pool, members[pool.name], limits[pool.name]):
                waiting.append(pool.name)
            self._leave(pool, members[pool.name], pods)
        return waiting

    def _order(self, pools: Sequence[Pool], members: dict[str, list[Manifest]], pods: Sequence[Manifest]) -> None:
        start_s = self.clock.real_s(NODE_START)
        for pool in pools:
            # The first machines of a pool come with it: the time that takes is in the pool's own creation.
            missing = pool.minimum - self._size(pool, members)
            due = self.now() + (start_s if pool.name in self.coming else 0.0)
            self.coming.setdefault(pool.name, []).extend([due] * missing)
        rooms = [_room_of(node, pods) for pool in pools for node in members[pool.name]]
        rooms += [Room.of(pool) for pool in pools for _ in self.coming[pool.name]]
        elastic = [PoolSize(pool=p, nodes=self._size(p, members)) for p in pools if p.maximum > p.minimum]
        waiting = [pod for pod in pods if unschedulable(pod) and "deletionTimestamp" not in pod["metadata"]]
        for name, count in nodes_to_add(elastic, waiting, rooms).items():
            self.coming[name].extend([self.now() + start_s] * count)

    def _arrive(self, pool: Pool, members: Sequence[Manifest], limit: int) -> bool:
        """Let the machines come that are due; whether some may not."""
        due = [at for at in self.coming[pool.name] if at <= self.now()]
        come = due[: max(0, limit - len(members))]
        for at in come:
            self.coming[pool.name].remove(at)
        for index, _ in enumerate(come, start=len(members)):
            name = node_name(pool, f"{secrets.token_hex(4)}-{secrets.token_hex(2)}")
            zone = pool.zones[index % len(pool.zones)]
            self.api.create(NODES, node_manifest(pool, name=name, zone=zone))
        return len(come) < len(due)

    def _leave(self, pool: Pool, members: Sequence[Manifest], pods: Sequence[Manifest]) -> None:
        busy = {pod["spec"].get("nodeName") for pod in pods if not _of_daemon_set(pod)}
        spare = len(members) - pool.minimum
        for name in sorted(node["metadata"]["name"] for node in members):
            if name in busy:
                self.idle_since.pop(name, None)
                continue
            idle_s = self.now() - self.idle_since.setdefault(name, self.now())
            # A fixed pool shrinks only because its size was lowered, and then at once.
            patience_s = max(SHORTEST_IDLE_S, self.clock.real_s(NODE_IDLE)) if pool.maximum > pool.minimum else 0.0
            if spare > 0 and idle_s >= patience_s:
                self.api.delete(NODES, name)
                self.idle_since.pop(name, None)
                spare -= 1

    def _size(self, pool: Pool, members: dict[str, list[Manifest]]) -> int:
        return len(members[pool.name]) + len(self.coming.get(pool.name, []))


def _of_daemon_set(pod: Manifest) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))


def _room_of(node: Manifest, pods: Sequence[Manifest]) -> Room:
    room = Room(
        labels=node["metadata"]["labels"],
        # Kubernetes' own taints pass: a machine that is not ready yet will be.
        taints=[t for t in node["spec"].get("taints", []) if not t["key"].startswith("node.kubernetes.io/")],
        free=amounts(node["status"].get("allocatable")),
    )
    for pod in pods:
        finished = pod["status"].get("phase") in {"Succeeded", "Failed"}
        if pod["spec"].get("nodeName") == node["metadata"]["name"] and not finished:
            room.place(pod["spec"])
    return room
