"""Lustre as Kubernetes sees it: a volume and a claim that are pinned to each other.

No storage class and no provisioner are involved: the volume names the one instance, the claim names the one volume.
Deleting either touches no data.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import Output, ResourceOptions

from components.managed_lustre import ManagedLustre
from components.placement import Placement

DRIVER = "lustre.csi.storage.gke.io"


@dataclass(frozen=True, kw_only=True)
class LustreVolumeArgs:
    """Inputs of `LustreVolume`.

    Attributes:
        place: where it lies and what it is called.
        namespace: namespace of the claim.
        lustre: the instance.
    """

    place: Placement
    namespace: str
    lustre: ManagedLustre

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {
            "place": vars(self.place),
            "namespace": self.namespace,
            "instance_id": self.lustre.instance_id,
        }


class LustreVolume(pulumi.ComponentResource):
    """A volume and its claim.

    Attributes:
        claim_name: what pods name to mount Lustre.
    """

    claim_name: Output[str]

    def __init__(self, name: str, args: LustreVolumeArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:lustre_volume:LustreVolume", name, args.as_inputs(), opts)
        # The driver wants the volume exactly as large as the instance.
        capacity = Output.format("{}Gi", args.lustre.capacity_gib)
        volume = kubernetes.core.v1.PersistentVolume(
            f"{name}-volume",
            metadata={"name": args.place.stack_name},
            spec=volume_spec(args, capacity),
            opts=ResourceOptions(parent=self),
        )
        claim = kubernetes.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            metadata={"name": args.place.stack_name, "namespace": args.namespace},
            spec=claim_spec(volume.metadata["name"], capacity),
            opts=ResourceOptions(
                parent=self,
                # Kubernetes refuses to resize the claim of a volume that no provisioner made. When the instance
                # grows, the volume does too, and the claim keeps the size that it was bound with; pods see the whole
                # instance.
                ignore_changes=["spec.resources"],
            ),
        )
        self.claim_name = claim.metadata["name"]
        self.register_outputs({"claim_name": self.claim_name})


def volume_spec(args: LustreVolumeArgs, capacity: pulumi.Input[str]) -> dict[str, Any]:
    """Build the spec of the volume."""
    return {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": capacity},
        "claimRef": {"namespace": args.namespace, "name": args.place.stack_name},
        "csi": {
            "driver": DRIVER,
            "volumeHandle": Output.format("{}/{}/{}", args.place.project_id, args.place.zone, args.lustre.instance_id),
            "volumeAttributes": {"ip": args.lustre.address, "filesystem": args.lustre.filesystem},
        },
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
    }


def claim_spec(volume_name: pulumi.Input[str], capacity: pulumi.Input[str]) -> dict[str, Any]:
    """Build the spec of the claim."""
    return {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": capacity}},
        "storageClassName": "",
        "volumeName": volume_name,
    }
