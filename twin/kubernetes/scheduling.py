"""What the cluster autoscaler asks: on which nodes would the pods fit that the scheduler could not place?

Pure functions. The real kube-scheduler places pods; this only foresees it, by node selector, required node affinity,
taints and requests. Pod affinity and spread are not foreseen: no pod here uses them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from twin.kubernetes.api import Manifest
from twin.kubernetes.nodes import Pool
from twin.kubernetes.quantities import Amounts, pod_requests


@dataclass
class Room:
    """What is left of one node, there or yet to come."""

    labels: dict[str, str]
    taints: list[Manifest]
    free: Amounts

    @classmethod
    def of(cls, pool: Pool) -> "Room":
        """An empty node of a pool."""
        return cls(labels=pool.node_labels(pool.zones[0]), taints=pool.node_taints, free=dict(pool.allocatable))

    def takes(self, spec: Manifest) -> bool:
        """Whether a pod of this spec would be placed here."""
        requests = pod_requests(spec)
        return (
            all(self.labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
            and _affine(spec, self.labels)
            and all(_tolerated(taint, spec.get("tolerations", [])) for taint in self.taints)
            and all(self.free.get(name, 0.0) >= value for name, value in requests.items())
        )

    def place(self, spec: Manifest) -> None:
        """Take a pod's requests away."""
        for name, value in pod_requests(spec).items():
            self.free[name] = self.free.get(name, 0.0) - value


@dataclass(frozen=True, kw_only=True)
class PoolSize:
    """A pool and how many machines of it there are or are on their way."""

    pool: Pool
    nodes: int


def unschedulable(pod: Manifest) -> bool:
    """Whether the scheduler tried to place a pod and could not."""
    conditions = pod.get("status", {}).get("conditions", [])
    return not pod["spec"].get("nodeName") and any(
        condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable" for condition in conditions
    )


def nodes_to_add(pools: Sequence[PoolSize], pods: Iterable[Manifest], rooms: Sequence[Room]) -> dict[str, int]:
    """Say how many nodes each pool needs so that the pods fit: as few as possible, never beyond a pool's maximum.

    Args:
        pools: the pools that may grow, in the order in which they are tried.
        pods: the pods that could not be placed.
        rooms: what is left of the nodes that are there or on their way; filled up in passing.
    """
    rooms = list(rooms)
    added: dict[str, int] = {}
    for spec in (pod["spec"] for pod in pods):
        room = next((room for room in rooms if room.takes(spec)), None)
        if room is None:
            size = next((s for s in pools if _may_grow(s, added) and Room.of(s.pool).takes(spec)), None)
            if size is None:
                continue
            added[size.pool.name] = added.get(size.pool.name, 0) + 1
            room = Room.of(size.pool)
            rooms.append(room)
        room.place(spec)
    return added


def _may_grow(size: PoolSize, added: dict[str, int]) -> bool:
    return size.nodes + added.get(size.pool.name, 0) < size.pool.maximum


def _affine(spec: Manifest, labels: dict[str, str]) -> bool:
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = required["nodeSelectorTerms"] if required else [{}]
    return any(all(_matches(e, labels) for e in term.get("matchExpressions", [])) for term in terms)


def _matches(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = expression.get("values", [])
    outcomes = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return outcomes.get(expression["operator"], False)


def _tolerated(taint: Manifest, tolerations: Iterable[Manifest]) -> bool:
    if taint["effect"] == "PreferNoSchedule":
        return True
    return any(
        toleration.get("key") in {None, taint["key"]}
        and toleration.get("effect") in {None, taint["effect"]}
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in tolerations
    )
