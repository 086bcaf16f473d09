"""The way from the network to Google's services: an address range and the connection (a peering) that uses it.

Lustre lives at the other end. Google refuses to delete a connection while a service uses it, and for minutes after the
last one has gone, so on a network of the stack's own the peering is removed instead: plain `pulumi destroy` then ends.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import CustomTimeouts, ResourceOptions

from components.network import Network
from components.placement import Placement
from components.sections import CreatePrivateServiceAccess, ExistingPrivateServiceAccess, PrivateServiceAccessSection


@dataclass(frozen=True, kw_only=True)
class PrivateServiceAccessArgs:
    """Inputs of `PrivateServiceAccess`.

    Attributes:
        place: where it lies and what it is called.
        config: the section.
        network: the network.
    """

    place: Placement
    config: PrivateServiceAccessSection
    network: Network

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {
            "place": vars(self.place),
            "config": self.config.model_dump(mode="json"),
            "network_id": self.network.network_id,
        }


class PrivateServiceAccess(pulumi.ComponentResource):
    """A range of addresses and the connection that gives it to Google's services.

    Attributes:
        cidr: the range.
        connection: what must be there before a service instance, and go after it; none where the network has its own.
    """

    connection: gcp.servicenetworking.Connection | None

    def __init__(self, name: str, args: PrivateServiceAccessArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:private_service_access:PrivateServiceAccess", name, args.as_inputs(), opts)
        self.cidr = str(args.config.cidr)
        match args.config:
            case CreatePrivateServiceAccess():
                self.connection = self._create(name, args, args.config)
            case ExistingPrivateServiceAccess():
                self.connection = None
        self.register_outputs({"connection_id": self.connection and self.connection.id})

    def _create(
        self, name: str, args: PrivateServiceAccessArgs, config: CreatePrivateServiceAccess
    ) -> gcp.servicenetworking.Connection:
        policy = config.deletion_policy or ("REMOVE_PEERING" if args.network.is_ours else "ABANDON")
        addresses = gcp.compute.GlobalAddress(
            f"{name}-range",
            name=f"{args.place.stack_name}-services",
            project=args.place.project_id,
            network=args.network.network_id,
            purpose="VPC_PEERING",
            address_type="INTERNAL",
            address=str(config.cidr.network_address),
            prefix_length=config.prefix_length,
            # A connection that stays must not point at a range that is gone.
            deletion_policy="ABANDON" if policy == "ABANDON" else "DELETE",
            opts=ResourceOptions(parent=self),
        )
        return gcp.servicenetworking.Connection(
            f"{name}-connection",
            network=args.network.network_id,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[addresses.name],
            deletion_policy=policy,
            opts=ResourceOptions(parent=self, custom_timeouts=CustomTimeouts(create="20m", update="20m", delete="30m")),
        )
