"""The Lustre instance and the firewall for its port.

The instance holds what no other part of the stack can bring back: checkpoints. Destroying the stack deletes it; no
change of config does (`lustre_guard.py`). An existing instance is read and left as it is, with its firewall.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import CustomTimeouts, Output, ResourceOptions

from components.lustre_guard import LustreGuard
from components.network import Network
from components.placement import Placement
from components.private_service_access import PrivateServiceAccess
from components.sections import CreateLustre, ExistingLustre, LustreSection


@dataclass(frozen=True, kw_only=True)
class ManagedLustreArgs:
    """Inputs of `ManagedLustre`.

    Attributes:
        place: where it lies and what it is called.
        config: the section.
        network: its network.
        access: the connection that it is reached through, and the addresses of its servers.
    """

    place: Placement
    config: LustreSection
    network: Network
    access: PrivateServiceAccess

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {
            "place": vars(self.place),
            "config": self.config.model_dump(mode="json"),
            "network_id": self.network.network_id,
        }


class ManagedLustre(pulumi.ComponentResource):
    """A Lustre instance.

    Attributes:
        instance: what no node may outlive, or be made before.
        instance_id: its id in the zone.
        mount_point: `IP@tcp:/FILESYSTEM`.
        address: the IP of the mount point.
        filesystem: the file system of the mount point.
        capacity_gib: its size, GiB.
        summary: what the stack shows of it.
    """

    instance: gcp.lustre.Instance
    instance_id: Output[str]
    mount_point: Output[str]
    address: Output[str]
    filesystem: Output[str]
    capacity_gib: Output[int]
    summary: dict[str, Output[Any]]

    def __init__(self, name: str, args: ManagedLustreArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:managed_lustre:ManagedLustre", name, args.as_inputs(), opts)
        match args.config:
            case CreateLustre():
                self.instance = self._create(name, args, args.config)
            case ExistingLustre():
                self.instance = self._adopt(name, args, args.config)
        self.instance_id = self.instance.instance_id
        self.mount_point = self.instance.mount_point
        self.address = self.instance.mount_point.apply(lambda mount_point: mount_point.partition("@")[0])
        self.filesystem = self.instance.mount_point.apply(lambda mount_point: mount_point.rpartition("/")[2])
        self.capacity_gib = self.instance.capacity_gib.apply(int)
        self.summary = {
            "instance_id": self.instance_id,
            "mount_point": self.mount_point,
            "capacity_gib": self.capacity_gib,
        }
        self.register_outputs(self.summary)

    def _adopt(self, name: str, args: ManagedLustreArgs, config: ExistingLustre) -> gcp.lustre.Instance:
        place = {"project": args.place.project_id, "location": args.place.zone, "instance_id": config.instance_id}
        LustreGuard(f"{name}-guard", {**place, "is_ours": False}, ResourceOptions(parent=self))
        return gcp.lustre.Instance.get(
            f"{name}-instance",
            f"projects/{args.place.project_id}/locations/{args.place.zone}/instances/{config.instance_id}",
            opts=ResourceOptions(parent=self),
        )

    def _create(self, name: str, args: ManagedLustreArgs, config: CreateLustre) -> gcp.lustre.Instance:
        guard = LustreGuard(
            f"{name}-guard",
            {
                **config.model_dump(),
                "project": args.place.project_id,
                "location": args.place.zone,
                "instance_id": args.place.stack_name,
                "network": args.network.network_id,
                "is_ours": True,
            },
            ResourceOptions(parent=self),
        )
        gcp.compute.Firewall(
            f"{name}-port",
            name=f"{args.place.stack_name}-lustre",
            project=args.place.project_id,
            network=args.network.network_id,
            direction="INGRESS",
            source_ranges=[args.access.cidr],
            allows=[{"protocol": "tcp", "ports": [str(config.port)]}],
            opts=ResourceOptions(parent=self),
        )
        return gcp.lustre.Instance(
            f"{name}-instance",
            instance_id=args.place.stack_name,
            project=args.place.project_id,
            location=args.place.zone,
            network=args.network.network_id,
            filesystem=config.filesystem,
            capacity_gib=str(config.capacity_gib),
            per_unit_storage_throughput=str(config.throughput_mbps_per_tib),
            gke_support_enabled=config.legacy_port,
            labels=args.place.labels,
            opts=ResourceOptions(
                parent=self,
                # The network's id alone would let the instance be made before the connection, which fails, and be
                # deleted after it, which fails too.
                depends_on=[guard] if args.access.connection is None else [guard, args.access.connection],
                # The guard refuses replacements. Should one get through, the new instance collides with the old one's
                # id before the old one is touched.
                delete_before_replace=False,
                custom_timeouts=CustomTimeouts(create="120m", update="120m", delete="60m"),
            ),
        )
