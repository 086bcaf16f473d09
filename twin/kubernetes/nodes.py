"""Node pools of the simulated project, and the Node objects that stand for their machines.

A node carries what GKE puts on it: labels, taints and allocatable of its machine type. KWOK plays its kubelet.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.machines import MACHINES
from jobs.errors import TwinError
from twin.cloud.store import Resource, ResourceState
from twin.kubernetes.api import Manifest
from twin.kubernetes.quantities import Amounts

GIB = 1024**3
POOL_LABEL = "cloud.google.com/gke-nodepool"
SPOT_LABEL = "cloud.google.com/gke-spot"
TERMINATES_AT = "rlstack.twin/terminates-at"
"""Annotation of a node whose machine is about to be taken away: when, Unix seconds; see shutdown.py."""
PODS_PER_NODE = 110

_TAINT_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}
_GENERAL_MACHINE = re.compile(r"[a-z0-9]+-(standard|highmem|highcpu)-(\d+)")
_MEMORY_GIB_PER_CPU = {"standard": 4, "highmem": 8, "highcpu": 1}
# GKE's published reservation of memory: share of each slice of the machine's GiB, and 0.1 GiB for eviction.
_RESERVED_MEMORY = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (float("inf"), 0.02))
_RESERVED_CPU = ((1, 0.06), (1, 0.01), (2, 0.005), (float("inf"), 0.0025))
# GKE keeps 100 GiB of three or more local SSDs (375 GB each); of a boot disk 10 %, and 6 GiB and 35 % up to 100 GiB.
_LOCAL_SSD_BYTES = 375_000_000_000
_DEFAULT_DISK_GB = 100


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One node pool.

    Attributes:
        minimum: fewest nodes.
        maximum: most nodes; equal to `minimum` in a pool of fixed size.
        gpus: GPUs per node; `gpu_type` is Google's name of them, empty without.
        ephemeral_bytes: ephemeral storage left to pods.
    """

    name: str
    cluster: str
    machine_type: str
    zones: tuple[str, ...]
    minimum: int
    maximum: int
    spot: bool
    gpus: int
    gpu_type: str
    labels: dict[str, str]
    taints: tuple[tuple[str, str, str], ...]
    ephemeral_bytes: int

    @property
    def allocatable(self) -> Amounts:
        """What one node leaves to pods."""
        cpu, memory_gib = _allocatable(self.machine_type)
        gpus = {"nvidia.com/gpu": float(self.gpus)} if self.gpus else {}
        storage = {"ephemeral-storage": float(self.ephemeral_bytes), "pods": float(PODS_PER_NODE)}
        return {"cpu": cpu, "memory": memory_gib * GIB, **storage, **gpus}

    @property
    def node_taints(self) -> list[Manifest]:
        """The taints of its nodes; GKE adds the GPU taint itself where nobody named it."""
        named = [{"key": key, "value": value, "effect": effect} for key, value, effect in self.taints]
        if self.gpus and not any(taint["key"] == "nvidia.com/gpu" for taint in named):
            named.append({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"})
        return named

    def node_labels(self, zone: str) -> dict[str, str]:
        """The labels of a node in `zone`."""
        region = zone.rpartition("-")[0]
        spot = {SPOT_LABEL: "true", "cloud.google.com/gke-provisioning": "spot"} if self.spot else {}
        gpu = {"cloud.google.com/gke-accelerator": self.gpu_type} if self.gpus else {}
        return {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": self.machine_type,
            "topology.kubernetes.io/region": region,
            "topology.kubernetes.io/zone": zone,
            "cloud.google.com/machine-family": self.machine_type.partition("-")[0],
            POOL_LABEL: self.name,
            **spot,
            **gpu,
            **self.labels,
        }


def read_pool(row: Resource, cluster: Resource) -> Pool:
    """Read a node pool of the store.

    Raises:
        TwinError: its machine type is unknown.
    """
    given = row.properties
    config = given.get("nodeConfig") or {}
    autoscaling = given.get("autoscaling") or {}
    zones = _zones(given, cluster.properties)
    accelerators = config.get("guestAccelerators") or []
    machine_type = config.get("machineType") or "e2-medium"
    _allocatable(machine_type)
    row_gpus = MACHINES[machine_type].accelerators if machine_type in MACHINES else None
    # GKE counts nodes per zone, but for the limits that say `total`.
    fixed = int(given.get("nodeCount") or given.get("initialNodeCount") or 0) * len(zones)
    minimum, maximum = fixed, fixed
    if autoscaling:
        minimum = int(autoscaling.get("totalMinNodeCount") or len(zones) * (autoscaling.get("minNodeCount") or 0))
        maximum = int(autoscaling.get("totalMaxNodeCount") or len(zones) * (autoscaling.get("maxNodeCount") or 0))
    return Pool(
        name=row.name,
        cluster=cluster.name,
        machine_type=machine_type,
        zones=zones,
        minimum=minimum,
        maximum=maximum,
        spot=bool(config.get("spot")),
        gpus=int(accelerators[0].get("count") or 0) if accelerators else (row_gpus.count if row_gpus else 0),
        gpu_type=accelerators[0]["type"] if accelerators else (row_gpus.type if row_gpus else ""),
        labels=dict(config.get("labels") or {}),
        taints=tuple((t["key"], t["value"], _TAINT_EFFECTS[t["effect"]]) for t in config.get("taints") or []),
        ephemeral_bytes=_ephemeral_bytes(config),
    )


def pools_of(cluster: Resource, rows: Sequence[Resource]) -> list[Resource]:
    """Keep the node pools of `cluster` that have machines: not those being deleted, nor those that ended in ERROR."""
    gone = {ResourceState.DELETING, ResourceState.ERROR}
    return [row for row in rows if cluster_of(row) == cluster.name and row.state not in gone]


def cluster_of(row: Resource) -> str:
    """Name of a node pool's cluster; Pulumi takes the cluster's name or its full id."""
    return str(row.properties["cluster"]).rpartition("/")[2]


def node_manifest(pool: Pool, *, name: str, zone: str) -> Manifest:
    """Build the Node object of one machine of `pool`."""
    capacity = {resource: f"{value:.3f}".rstrip("0").rstrip(".") for resource, value in pool.allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**pool.node_labels(zone), "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"providerID": f"gce://twin/{zone}/{name}", "taints": pool.node_taints},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def node_name(pool: Pool, suffix: str) -> str:
    """Name a node as GKE does: gke-<cluster>-<pool>-<suffix>, at most 63 characters."""
    return f"gke-{pool.cluster[:24]}-{pool.name[:24]}-{suffix}"


def _zones(pool: dict[str, Any], cluster: dict[str, Any]) -> tuple[str, ...]:
    named = pool.get("nodeLocations") or cluster.get("nodeLocations")
    if named:
        return tuple(named)
    location = str(pool.get("location") or cluster.get("location"))
    return (location,) if re.fullmatch(r".+-[a-z]", location) else tuple(f"{location}-{zone}" for zone in "abc")


def _allocatable(machine_type: str) -> tuple[float, float]:
    """CPUs and GiB that GKE leaves to pods."""
    if machine_type in MACHINES:
        return MACHINES[machine_type].allocatable_cpu, MACHINES[machine_type].allocatable_memory_gib
    if machine_type == "e2-medium":
        return 0.94, 2.8
    general = _GENERAL_MACHINE.fullmatch(machine_type)
    if general is None:
        known = ", ".join(sorted(MACHINES))
        raise TwinError(
            f"the twin does not know machine type {machine_type}, so it cannot say what fits on its nodes. "
            f"Use a general-purpose type, or one of {known}, or add a row to components/machines.py"
        )
    cpu = int(general[2])
    memory_gib = cpu * _MEMORY_GIB_PER_CPU[general[1]]
    return cpu - _reserved(cpu, _RESERVED_CPU), memory_gib - _reserved(memory_gib, _RESERVED_MEMORY) - 0.1


def _reserved(size: float, slices: Sequence[tuple[float, float]]) -> float:
    reserved = 0.0
    for width, share in slices:
        reserved += min(size, width) * share
        size = max(0.0, size - width)
    return reserved


def _ephemeral_bytes(config: dict[str, Any]) -> int:
    ssds = (config.get("ephemeralStorageLocalSsdConfig") or {}).get("localSsdCount") or 0
    if ssds:
        return int(ssds) * _LOCAL_SSD_BYTES - 100 * GIB
    disk = int(config.get("diskSizeGb") or _DEFAULT_DISK_GB) * GIB
    return int(disk * 0.9 - min(disk * 0.5, 6 * GIB + disk * 0.35, 100 * GIB))
