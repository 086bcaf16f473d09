"""Address ranges: those of the network, of Google's services, and those that may reach the control plane."""

from ipaddress import IPv4Network
from itertools import combinations

from components.sections import (
    ClusterSection,
    CreateCluster,
    CreateNetwork,
    GpuPoolSection,
    NetworkSection,
    PrivateServiceAccessSection,
)
from jobs.problems import Problem

LARGEST_PSA_PREFIX = 24
POD_ADDRESSES = 256
"""GKE gives each node of up to 110 pods a /24 of the range for pods."""
RESERVED_ADDRESSES = 4
"""Of a subnet's own range Google keeps the first two addresses and the last two."""


def taken_ranges(
    network: NetworkSection, private_service_access: PrivateServiceAccessSection
) -> dict[str, IPv4Network]:
    """Return the ranges that the stack's network has taken, by key."""
    ranges: dict[str, IPv4Network] = {"private_service_access.range_start": private_service_access.cidr}
    if isinstance(network, CreateNetwork):
        ranges |= {f"network.{key}": getattr(network, key) for key in ("subnet_cidr", "pods_cidr", "services_cidr")}
    return ranges


def addresses_disjoint(network: NetworkSection, private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """Subnet, pods, services and the range of Google's services share one routing table."""
    ranges = taken_ranges(network, private_service_access)
    return [
        Problem(
            key=later,
            value=str(ranges[later]),
            reason=f"it overlaps {earlier}={ranges[earlier]}, and one of the two would be unreachable",
            remedy="Move one of them to a free range",
        )
        for earlier, later in combinations(sorted(ranges), 2)
        if ranges[earlier].overlaps(ranges[later])
    ]


def range_holds_lustre(private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """Managed Lustre asks for a /24 or larger (cluster-toolkit's blueprint: /22; the devrel demo: /24)."""
    prefix = private_service_access.prefix_length
    if prefix <= LARGEST_PSA_PREFIX:
        return []
    return [
        Problem(
            key="private_service_access.prefix_length",
            value=str(prefix),
            reason=f"Lustre needs 256 addresses or more and a /{prefix} has {2 ** (32 - prefix)}",
            remedy=f"Write {LARGEST_PSA_PREFIX} or a smaller number",
        )
    ]


def control_plane_is_closed(cluster: ClusterSection) -> list[Problem]:
    """Authorized networks that hold every address authorize everybody (cluster-toolkit asks for one /32)."""
    if not isinstance(cluster, CreateCluster):
        return []
    return [
        Problem(
            key=f"cluster.authorized_networks.{index}.cidr",
            value=str(entry.cidr),
            reason="it opens the control plane's address to the whole internet",
            remedy="Name your own addresses, or remove the entry: the DNS endpoint needs none and IAM guards it",
        )
        for index, entry in enumerate(cluster.authorized_networks)
        if entry.cidr.prefixlen == 0
    ]


def ranges_hold_nodes(network: NetworkSection, cluster: ClusterSection, gpu_pool: GpuPoolSection) -> list[Problem]:
    """A node takes an address of the subnet and a /24 of the range for pods; without them it never joins.

    Source: Google's page on VPC-native clusters (110 pods a node, the default).
    """
    if not isinstance(network, CreateNetwork):
        return []
    nodes = gpu_pool.node_count + (cluster.system_pool.node_count if isinstance(cluster, CreateCluster) else 0)
    holds = {
        "subnet_cidr": network.subnet_cidr.num_addresses - RESERVED_ADDRESSES,
        "pods_cidr": network.pods_cidr.num_addresses // POD_ADDRESSES,
    }
    return [
        Problem(
            key=f"network.{key}",
            value=str(getattr(network, key)),
            reason=f"it has room for {max(0, room)} nodes, and the stack has up to {nodes}",
            remedy="Write a larger range",
        )
        for key, room in holds.items()
        if room < nodes
    ]
