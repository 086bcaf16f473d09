"""The networks of a node's further NICs: a VPC for the second gVNIC, and one with the zone's RoCE profile for RDMA.

NCCL's traffic between GPUs goes over these; everything else stays on the first NIC. Both are the stack's own even where
the cluster lies in an existing network. The layout is that of cluster-toolkit's examples/gke-a4 (network/vpc and
network/gpu-rdma-vpc): packets of 8896 bytes, one subnet for each RDMA NIC, and no firewall rule on the RoCE network,
which takes none. A network profile belongs to a zone: another zone replaces that network and all that lies on it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from components.machines import Accelerators
from components.placement import Placement
from components.sections import GpuPoolSection

MTU = 8896
GVNIC = "gvnic-1"


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """What one further NIC of a node is attached to.

    Attributes:
        name: what pods call it; `gvnic-1` and `rdma-0` to `rdma-7`, the names that Google's own manifests use.
        device_mode: how a pod gets the NIC.
        network: name of the VPC.
        subnet: name of the subnet, in the stack's region.
    """

    name: str
    device_mode: Literal["NetDevice", "RDMA"]
    network: pulumi.Input[str]
    subnet: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class FastNetworkArgs:
    """Inputs of `FastNetwork`.

    Attributes:
        place: where it lies and what it is called.
        config: the GPU pool's section; of it the addresses.
        accelerators: the GPUs of a node; of it the RDMA NICs.
    """

    place: Placement
    config: GpuPoolSection
    accelerators: Accelerators

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {
            "place": vars(self.place),
            "gvnic_cidr": str(self.config.gvnic_cidr),
            "rdma_cidr": str(self.config.rdma_cidr),
            "rdma_nics": self.accelerators.rdma_nics,
        }


class FastNetwork(pulumi.ComponentResource):
    """The networks of the second gVNIC and of the RDMA NICs.

    Attributes:
        node_networks: what each further NIC of a node is attached to, in the order of the NICs.
    """

    node_networks: tuple[NodeNetwork, ...]

    def __init__(self, name: str, args: FastNetworkArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:fast_network:FastNetwork", name, args.as_inputs(), opts)
        self.node_networks = (self._gvnic(name, args), *self._rdma(name, args))
        self.register_outputs({"networks": [each.name for each in self.node_networks]})

    def _gvnic(self, name: str, args: FastNetworkArgs) -> NodeNetwork:
        vpc = self._vpc(f"{name}-gvnic", f"{args.place.stack_name}-gvnic", args, routing_mode="GLOBAL")
        cidr = str(args.config.gvnic_cidr)
        subnet = self._subnet(f"{name}-gvnic-subnet", f"{args.place.stack_name}-gvnic", args, vpc=vpc.id, cidr=cidr)
        gcp.compute.Firewall(
            f"{name}-gvnic-internal",
            name=f"{args.place.stack_name}-gvnic-internal",
            project=args.place.project_id,
            network=vpc.id,
            direction="INGRESS",
            source_ranges=[cidr],
            allows=[{"protocol": "tcp"}, {"protocol": "udp"}, {"protocol": "icmp"}],
            opts=ResourceOptions(parent=self),
        )
        return NodeNetwork(name=GVNIC, device_mode="NetDevice", network=vpc.name, subnet=subnet.name)

    def _rdma(self, name: str, args: FastNetworkArgs) -> list[NodeNetwork]:
        vpc = self._vpc(
            f"{name}-rdma",
            f"{args.place.stack_name}-rdma",
            args,
            routing_mode="REGIONAL",
            network_profile=network_profile(args.place),
        )
        return [
            NodeNetwork(
                name=rdma_name(index),
                device_mode="RDMA",
                network=vpc.name,
                subnet=self._subnet(
                    f"{name}-rdma-subnet-{index}",
                    f"{args.place.stack_name}-rdma-{index}",
                    args,
                    vpc=vpc.id,
                    cidr=cidr,
                ).name,
            )
            for index, cidr in enumerate(rdma_subnet_cidrs(args.config, args.accelerators.rdma_nics))
        ]

    def _vpc(
        self, resource: str, name: str, args: FastNetworkArgs, *, routing_mode: str, network_profile: str | None = None
    ) -> gcp.compute.Network:
        return gcp.compute.Network(
            resource,
            name=name,
            project=args.place.project_id,
            auto_create_subnetworks=False,
            mtu=MTU,
            routing_mode=routing_mode,
            network_profile=network_profile,
            opts=ResourceOptions(parent=self),
        )

    def _subnet(
        self, resource: str, name: str, args: FastNetworkArgs, *, vpc: pulumi.Input[str], cidr: str
    ) -> gcp.compute.Subnetwork:
        return gcp.compute.Subnetwork(
            resource,
            name=name,
            project=args.place.project_id,
            region=args.place.region,
            network=vpc,
            ip_cidr_range=cidr,
            opts=ResourceOptions(parent=self),
        )


def rdma_name(index: int) -> str:
    """Name the network of an RDMA NIC, counted from 0."""
    return f"rdma-{index}"


def network_profile(place: Placement) -> str:
    """Name the RoCE profile of the stack's zone, in the form that cluster-toolkit hands to the provider."""
    profiles = f"https://www.googleapis.com/compute/beta/projects/{place.project_id}/global/networkProfiles"
    return f"{profiles}/{place.zone}-vpc-roce"


def rdma_subnet_cidrs(config: GpuPoolSection, rdma_nics: int) -> list[str]:
    """Cut the RDMA range into one equal subnet for each NIC."""
    spare_bits = (rdma_nics - 1).bit_length()
    return [str(cidr) for cidr in config.rdma_cidr.subnets(prefixlen_diff=spare_bits)][:rdma_nics]
