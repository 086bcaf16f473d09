"""Machine types as data: one row says all that the program, its rules and the twin need to know about one.

A new machine type is a new row. Allocatable is what GKE leaves to pods; the rows stay below what its published
reservation leaves, so that a pod that fits the row fits the node. It keeps, of CPU, 6 % of the first core, 1 % of
the next, 0.5 % of the next two and 0.25 % of the rest; of memory, 25 % of the first 4 GiB, 20 % of the next 4, 10 % of
the next 8, 6 % of the next 112 and 2 % of the rest, and 100 MiB.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

# What GKE's DaemonSets (driver, device plugin, DCGM, CSI drivers, logging) may ask for on a GPU node. 222 - 16 = 206
# CPUs is what Google's own A4 recipe gives a NeMo-RL worker (AI-Hypercomputer/gpu-recipes, RL/a4/recipes).
_DAEMON_SET_CPU = 16
_DAEMON_SET_MEMORY_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Accelerators:
    """The GPUs of a machine type.

    Attributes:
        type: Google's name.
        count: GPUs per machine.
        quota_family: the GPU in the names of quotas: without the memory size that `type` may carry.
        rdma_nics: NICs for RDMA over RoCE beside the gVNIC ones.
        nccl_tuner_config: file of gIB's tuning for the machine type; empty without RDMA.
    """

    type: str
    count: int
    quota_family: str
    rdma_nics: int = 0
    nccl_tuner_config: str = ""

    def uses_rdma(self, *, wanted: bool | None) -> bool:
        """Whether the RDMA NICs are used: as a config wants, else where there are any."""
        return self.rdma_nics > 0 if wanted is None else wanted

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels that GKE gives a node for its GPUs."""
        return {"cloud.google.com/gke-accelerator": self.type}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine type.

    Attributes:
        cpu: vCPUs.
        memory_gib: memory, GiB.
        allocatable_cpu: vCPUs left to pods.
        allocatable_memory_gib: memory left to pods, GiB.
        boot_disk_type: the only boot disk type that it is used with here.
        gvnics: ordinary NICs.
        local_ssd_count: local SSDs of 375 GB.
        accelerators: its GPUs, if any.
        zones: zones that offer it; empty where nobody has read them.
        zones_read_on: the day on which the zones were read.
        oldest_gke: the oldest GKE version that has it, one for each minor, ascending; empty where nobody has read it.
        unverified: fields taken from general knowledge, not from a source that was read.
    """

    cpu: int
    memory_gib: int
    allocatable_cpu: int
    allocatable_memory_gib: int
    boot_disk_type: Literal["pd-balanced", "hyperdisk-balanced"]
    gvnics: int = 1
    local_ssd_count: int = 0
    accelerators: Accelerators | None = None
    zones: frozenset[str] = frozenset()
    zones_read_on: date | None = None
    oldest_gke: tuple[str, ...] = ()
    unverified: frozenset[str] = frozenset()

    @property
    def pod_cpu(self) -> int:
        """CPUs that one pod with the node to itself may request."""
        return self.allocatable_cpu - _DAEMON_SET_CPU

    @property
    def pod_memory_gib(self) -> int:
        """Memory that one pod with the node to itself may request, GiB."""
        return int(self.allocatable_memory_gib * (1 - _DAEMON_SET_MEMORY_SHARE))


# Sources: SkyPilot's catalog v8/gcp/vms.csv at 006059e (CPUs, memory, zones of A4), cluster-toolkit's examples/gke-a4
# and examples/gke-a3-ultragpu (accelerator, NICs, disks; B200 machines boot from hyperdisk-balanced only: PR 3704),
# Google's guide to Ray on A4 and A3 Ultra (gIB's tuning), AI-Hypercomputer/gpu-recipes (the oldest GKE that A4 was
# tried with).
MACHINES: Mapping[str, Machine] = {
    "a4-highgpu-8g": Machine(
        cpu=224,
        memory_gib=3968,
        allocatable_cpu=222,
        allocatable_memory_gib=3700,
        boot_disk_type="hyperdisk-balanced",
        gvnics=2,
        local_ssd_count=32,
        accelerators=Accelerators(
            type="nvidia-b200",
            count=8,
            rdma_nics=8,
            nccl_tuner_config="tuner_config_a4.txtpb",
            quota_family="NVIDIA_B200",
        ),
        zones=frozenset(
            {
                "asia-northeast1-b",
                "asia-southeast1-b",
                "europe-north1-b",
                "europe-west4-b",
                "us-central1-b",
                "us-east1-b",
                "us-east4-b",
                "us-south1-b",
                "us-west2-c",
                "us-west3-b",
                "us-west3-c",
            }
        ),
        zones_read_on=date(2026, 11, 30),
        oldest_gke=("1.31.7-gke.1265000",),
    ),
    "a3-ultragpu-8g": Machine(
        cpu=224,
        memory_gib=2952,
        allocatable_cpu=222,
        allocatable_memory_gib=2750,
        boot_disk_type="hyperdisk-balanced",
        gvnics=2,
        local_ssd_count=32,
        accelerators=Accelerators(
            type="nvidia-h200-141gb",
            count=8,
            rdma_nics=8,
            nccl_tuner_config="tuner_config_a3u.txtpb",
            quota_family="NVIDIA_H200",
        ),
        unverified=frozenset({"cpu", "memory_gib", "allocatable_cpu", "allocatable_memory_gib", "local_ssd_count"}),
    ),
    "n2d-standard-8": Machine(
        cpu=8, memory_gib=32, allocatable_cpu=7, allocatable_memory_gib=28, boot_disk_type="pd-balanced"
    ),
    "n2d-highmem-16": Machine(
        cpu=16, memory_gib=128, allocatable_cpu=15, allocatable_memory_gib=118, boot_disk_type="pd-balanced"
    ),
}

GPU_MACHINES: Mapping[str, Machine] = {name: row for name, row in MACHINES.items() if row.accelerators is not None}
SYSTEM_MACHINES: Mapping[str, Machine] = {name: row for name, row in MACHINES.items() if row.accelerators is None}
