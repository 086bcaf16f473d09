"""The further networks as Kubernetes knows them: GKE's own objects, by which a pod asks for NICs beside its first.

GKE wants a `GKENetworkParamSet` (which VPC and subnet, and how a pod gets the NIC) and a `Network` that points at it,
for each NIC. A pod that names a `Network` that is not there is refused, so they come before the RayCluster. Both kinds
are cluster-scoped and come with a cluster that has multi-networking on, and with no other.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

from components.fast_network import GVNIC, NodeNetwork, rdma_name
from components.machines import Accelerators

GROUP = "networking.gke.io"
API_VERSION = f"{GROUP}/v1"
DEFAULT_INTERFACE = "eth0"


@dataclass(frozen=True, kw_only=True)
class GkeNetworksArgs:
    """Inputs of `GkeNetworks`.

    Attributes:
        node_networks: what the further NICs of the GPU nodes are attached to.
    """

    node_networks: Sequence[NodeNetwork]

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {"networks": [each.name for each in self.node_networks]}


class GkeNetworks(pulumi.ComponentResource):
    """A `GKENetworkParamSet` and a `Network` for each further NIC."""

    def __init__(self, name: str, args: GkeNetworksArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:gke_networks:GkeNetworks", name, args.as_inputs(), opts)
        for node_network in args.node_networks:
            parameters = kubernetes.apiextensions.CustomResource(
                f"{name}-{node_network.name}-parameters",
                api_version=API_VERSION,
                kind="GKENetworkParamSet",
                metadata={"name": node_network.name},
                spec=parameters_spec(node_network),
                opts=ResourceOptions(parent=self),
            )
            kubernetes.apiextensions.CustomResource(
                f"{name}-{node_network.name}",
                api_version=API_VERSION,
                kind="Network",
                metadata={"name": node_network.name},
                spec=network_spec(parameters.metadata["name"]),
                opts=ResourceOptions(parent=self),
            )
        self.register_outputs({})


def parameters_spec(node_network: NodeNetwork) -> dict[str, Any]:
    """Build the spec of a `GKENetworkParamSet`."""
    return {
        "vpc": node_network.network,
        "vpcSubnet": node_network.subnet,
        "deviceMode": node_network.device_mode,
    }


def network_spec(parameters_name: pulumi.Input[str]) -> dict[str, Any]:
    """Build the spec of a `Network` of whole NICs, which points at its parameters."""
    return {"type": "Device", "parametersRef": {"group": GROUP, "kind": "GKENetworkParamSet", "name": parameters_name}}


def interface_annotations(accelerators: Accelerators) -> dict[str, str]:
    """Build the annotations that give a pod all NICs of its node: the first stays the default, RDMA starts at eth2."""
    networks = ["default", GVNIC, *map(rdma_name, range(accelerators.rdma_nics))]
    interfaces = [{"interfaceName": f"eth{index}", "network": network} for index, network in enumerate(networks)]
    return {f"{GROUP}/default-interface": DEFAULT_INTERFACE, f"{GROUP}/interfaces": json.dumps(interfaces)}
