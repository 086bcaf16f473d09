"""The GPU nodes: one pool of one machine type in one zone, bought as the config says.

An elastic pool is empty until pods ask for GPUs and empties again after them, so a stack without a job costs no GPU
and a stockout delays a run instead of failing `pulumi up`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import Output, ResourceOptions

from components.fast_network import NodeNetwork
from components.gke_cluster import POOL_TIMEOUTS, GkeCluster, node_identity
from components.machines import GPU_MACHINES
from components.placement import Placement
from components.sections import Capacity, FlexStartCapacity, GpuPoolSection, ReservationCapacity, SpotCapacity

# GKE puts this taint on GPU nodes by itself only where no pool names it; it keeps everything but Ray workers off.
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}


@dataclass(frozen=True, kw_only=True)
class GpuNodePoolArgs:
    """Inputs of `GpuNodePool`.

    Attributes:
        place: where it lies and what it is called.
        config: the section.
        cluster: the cluster, and the account that its nodes run as.
        node_networks: what the nodes' further NICs are attached to.
    """

    place: Placement
    config: GpuPoolSection
    cluster: GkeCluster
    node_networks: Sequence[NodeNetwork]

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {
            "place": vars(self.place),
            "config": self.config.model_dump(mode="json"),
            "cluster_id": self.cluster.cluster_id,
            "node_networks": [each.name for each in self.node_networks],
        }


class GpuNodePool(pulumi.ComponentResource):
    """A pool of GPU nodes.

    Attributes:
        pool_name: its name; nodes carry it as the label `cloud.google.com/gke-nodepool`.
    """

    pool_name: Output[str]

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:gpu_node_pool:GpuNodePool", name, args.as_inputs(), opts)
        pool = gcp.container.NodePool(
            f"{name}-pool",
            name=f"{args.place.stack_name}-gpu",
            project=args.place.project_id,
            location=args.place.region,
            cluster=args.cluster.cluster_id,
            node_locations=[args.place.zone],
            network_config=network_config(args.node_networks),
            # GPUs have no spare machine to surge onto.
            upgrade_settings={"strategy": "SURGE", "max_surge": 0, "max_unavailable": 1},
            management={
                "auto_repair": not isinstance(args.config.capacity, FlexStartCapacity),
                "auto_upgrade": True,
            },
            **pool_size(args.config),
            **pool_placement(args.config.capacity),
            node_config=node_config(args),
            opts=ResourceOptions(parent=self, depends_on=args.cluster.before_nodes, custom_timeouts=POOL_TIMEOUTS),
        )
        self.pool_name = pool.name
        self.register_outputs({"pool_name": self.pool_name})


def network_config(node_networks: Sequence[NodeNetwork]) -> dict[str, Any]:
    """Build the arguments that say how nodes are attached; GKE gives a node its NICs in this order."""
    further = [{"network": each.network, "subnetwork": each.subnet} for each in node_networks]
    return {"enable_private_nodes": True, **({"additional_node_network_configs": further} if further else {})}


def pool_size(config: GpuPoolSection) -> dict[str, Any]:
    """Build the arguments that say how many nodes there are."""
    if config.scaling == "fixed":
        return {"node_count": config.node_count}
    return {
        "initial_node_count": 0,
        "autoscaling": {"min_node_count": 0, "max_node_count": config.node_count, "location_policy": "ANY"},
    }


def pool_placement(capacity: Capacity) -> dict[str, Any]:
    """Build the arguments that keep nodes close together; a reservation's blocks are close already."""
    return {"placement_policy": {"type": "COMPACT"}} if isinstance(capacity, SpotCapacity) else {}


def capacity_settings(capacity: Capacity) -> dict[str, Any]:
    """Build the part of a node's config that says how it is bought; GKE refuses a mixture of two kinds."""
    match capacity:
        case SpotCapacity():
            return {"spot": True, "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"}}
        case ReservationCapacity(reservation=reservation):
            return {
                "reservation_affinity": {
                    "consume_reservation_type": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": [reservation],
                }
            }
        case FlexStartCapacity(max_run_duration_s=seconds):
            return {
                "flex_start": True,
                "max_run_duration": f"{seconds}s",
                "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"},
            }


def node_config(args: GpuNodePoolArgs) -> dict[str, Any]:
    """Build the config of one GPU node."""
    machine = GPU_MACHINES[args.config.machine_type]
    accelerators = machine.accelerators
    assert accelerators is not None  # noqa: S101 - GPU_MACHINES holds rows with GPUs only
    return {
        "machine_type": args.config.machine_type,
        "disk_type": machine.boot_disk_type,
        "disk_size_gb": args.config.boot_disk_gib,
        "ephemeral_storage_local_ssd_config": {"local_ssd_count": machine.local_ssd_count},
        "guest_accelerators": [
            {
                "type": accelerators.type,
                "count": accelerators.count,
                # The default driver of a GKE version can be older than the GPU.
                "gpu_driver_installation_config": {"gpu_driver_version": "LATEST"},
            }
        ],
        "taints": [GPU_TAINT],
        "resource_labels": args.place.labels,
        **node_identity(args.cluster.node_service_account, image_streaming=args.cluster.features.image_streaming),
        **capacity_settings(args.config.capacity),
    }
