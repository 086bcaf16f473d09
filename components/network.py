"""The network of nodes and pods: VPC, subnet with pod and service ranges, way out, internal firewall.

Nodes have no public addresses; images and models come in through NAT. An existing network is read and left as it is.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import Output, ResourceOptions

from components.placement import Placement
from components.sections import CreateNetwork, ExistingNetwork, NetworkSection

PODS_RANGE = "pods"
SERVICES_RANGE = "services"


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """Inputs of `Network`.

    Attributes:
        place: where it lies and what it is called.
        config: the network's section.
    """

    place: Placement
    config: NetworkSection

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {**vars(self), "place": vars(self.place), "config": self.config.model_dump(mode="json")}


class Network(pulumi.ComponentResource):
    """A network and one subnet of it.

    Attributes:
        is_ours: whether the stack made it.
        network_id: `projects/P/global/networks/N`.
        subnet_id: the subnet.
        pods_range: name of the subnet's range for pods.
        services_range: name of the subnet's range for services.
    """

    network_id: Output[str]
    subnet_id: Output[str]
    pods_range: Output[str]
    services_range: Output[str]

    def __init__(self, name: str, args: NetworkArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:network:Network", name, args.as_inputs(), opts)
        self.is_ours = isinstance(args.config, CreateNetwork)
        match args.config:
            case CreateNetwork():
                self._create(name, args, args.config)
            case ExistingNetwork():
                self._adopt(name, args, args.config)
        self.register_outputs({"network_id": self.network_id, "subnet_id": self.subnet_id})

    def _create(self, name: str, args: NetworkArgs, config: CreateNetwork) -> None:
        child = ResourceOptions(parent=self)
        vpc = gcp.compute.Network(
            f"{name}-vpc",
            name=args.place.stack_name,
            project=args.place.project_id,
            auto_create_subnetworks=False,
            mtu=config.mtu,
            routing_mode="GLOBAL",
            opts=child,
        )
        subnet = gcp.compute.Subnetwork(
            f"{name}-subnet",
            name=args.place.stack_name,
            project=args.place.project_id,
            region=args.place.region,
            network=vpc.id,
            ip_cidr_range=str(config.subnet_cidr),
            private_ip_google_access=True,
            secondary_ip_ranges=[
                {"range_name": PODS_RANGE, "ip_cidr_range": str(config.pods_cidr)},
                {"range_name": SERVICES_RANGE, "ip_cidr_range": str(config.services_cidr)},
            ],
            opts=child,
        )
        router = gcp.compute.Router(
            f"{name}-router",
            name=args.place.stack_name,
            project=args.place.project_id,
            region=args.place.region,
            network=vpc.id,
            opts=child,
        )
        nat = gcp.compute.RouterNat(
            f"{name}-nat",
            name=args.place.stack_name,
            project=args.place.project_id,
            region=args.place.region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            opts=child,
        )
        gcp.compute.Firewall(
            f"{name}-internal",
            name=f"{args.place.stack_name}-internal",
            project=args.place.project_id,
            network=vpc.id,
            direction="INGRESS",
            source_ranges=[str(config.subnet_cidr), str(config.pods_cidr)],
            allows=[{"protocol": "tcp"}, {"protocol": "udp"}, {"protocol": "icmp"}],
            opts=child,
        )
        self.network_id = vpc.id
        # Nodes that start before NAT is there cannot pull images: whoever uses the subnet waits for NAT too.
        self.subnet_id = Output.all(subnet.id, nat.id).apply(lambda ids: str(ids[0]))
        self.pods_range = Output.from_input(PODS_RANGE)
        self.services_range = Output.from_input(SERVICES_RANGE)

    def _adopt(self, name: str, args: NetworkArgs, config: ExistingNetwork) -> None:
        child = ResourceOptions(parent=self)
        vpc = gcp.compute.Network.get(
            f"{name}-vpc", f"projects/{args.place.project_id}/global/networks/{config.network_name}", opts=child
        )
        subnet = gcp.compute.Subnetwork.get(
            f"{name}-subnet",
            f"projects/{args.place.project_id}/regions/{args.place.region}/subnetworks/{config.subnet_name}",
            opts=child,
        )
        self.network_id = vpc.id
        self.subnet_id = subnet.id
        self.pods_range = Output.from_input(config.pods_range_name)
        self.services_range = Output.from_input(config.services_range_name)
