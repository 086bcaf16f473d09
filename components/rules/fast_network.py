"""The fast network: the machine must have the NICs, and their addresses must be free and enough."""

from ipaddress import IPv4Network

from components.machines import GPU_MACHINES, Accelerators
from components.rules.addresses import RESERVED_ADDRESSES, taken_ranges
from components.sections import GpuPoolSection, NetworkSection, PrivateServiceAccessSection
from jobs.problems import Problem

# Compute Engine makes no smaller subnet.
SMALLEST_SUBNET_PREFIX = 29


def _rdma_nodes(gpu_pool: GpuPoolSection) -> Accelerators | None:
    """Return the GPUs of a node where the fast network is on and the machine type is known."""
    machine = GPU_MACHINES.get(gpu_pool.machine_type)
    accelerators = machine.accelerators if machine else None
    return accelerators if accelerators and accelerators.uses_rdma(wanted=gpu_pool.fast_network) else None


def fast_network_has_nics(gpu_pool: GpuPoolSection) -> list[Problem]:
    """GKE attaches a pool to RoCE networks only where the machine type has RDMA NICs."""
    accelerators = _rdma_nodes(gpu_pool)
    if accelerators is None or accelerators.rdma_nics:
        return []
    return [
        Problem(
            key="gpu_pool.fast_network",
            value="true",
            reason=f"a {gpu_pool.machine_type} has no RDMA NIC, so no node of the pool could be made",
            remedy="Remove the key, or choose a machine type with RDMA",
        )
    ]


def fast_network_addresses_free(
    network: NetworkSection, private_service_access: PrivateServiceAccessSection, gpu_pool: GpuPoolSection
) -> list[Problem]:
    """A node has one address in each of its networks and one routing table (cluster-toolkit: gke-a4's four ranges)."""
    if _rdma_nodes(gpu_pool) is None:
        return []
    taken = taken_ranges(network, private_service_access)
    problems = []
    for key in ("gvnic_cidr", "rdma_cidr"):
        cidr: IPv4Network = getattr(gpu_pool, key)
        problems += [
            Problem(
                key=f"gpu_pool.{key}",
                value=str(cidr),
                reason=f"it overlaps {other}={range_}, and a node that lies in both could not tell them apart",
                remedy="Move one of them to a free range",
            )
            for other, range_ in taken.items()
            if cidr.overlaps(range_)
        ]
        taken[f"gpu_pool.{key}"] = cidr
    return problems


def fast_network_addresses_enough(gpu_pool: GpuPoolSection) -> list[Problem]:
    """Every NIC of every node has an address of its own; each RDMA NIC of a node lies in another subnet."""
    accelerators = _rdma_nodes(gpu_pool)
    if accelerators is None or not accelerators.rdma_nics:
        return []
    needed_bits = (gpu_pool.node_count + RESERVED_ADDRESSES - 1).bit_length()
    longest = min(SMALLEST_SUBNET_PREFIX, 32 - needed_bits)
    subnets = {"gvnic_cidr": 1, "rdma_cidr": accelerators.rdma_nics}
    problems = []
    for key, count in subnets.items():
        cidr: IPv4Network = getattr(gpu_pool, key)
        largest_prefix = longest - (count - 1).bit_length()
        if cidr.prefixlen > largest_prefix:
            problems.append(
                Problem(
                    key=f"gpu_pool.{key}",
                    value=str(cidr),
                    reason=f"it does not hold {count} subnets, each with {gpu_pool.node_count} addresses for nodes and "
                    f"{RESERVED_ADDRESSES} for Google",
                    remedy=f"Write a /{largest_prefix} or larger",
                )
            )
    return problems
