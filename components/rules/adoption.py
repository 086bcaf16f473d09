"""What exists already: which of it can be adopted together, and what must not be taken from it."""

from components.sections import (
    ClusterSection,
    CreateLustre,
    CreateNetwork,
    CreatePrivateServiceAccess,
    ExistingCluster,
    ExistingLustre,
    ExistingNetwork,
    ExistingPrivateServiceAccess,
    LustreSection,
    NetworkSection,
    PrivateServiceAccessSection,
)
from jobs.problems import Problem


def peering_is_ours(network: NetworkSection, private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """Removing the peering of a shared network cuts off everybody's databases and file systems there."""
    if isinstance(network, CreateNetwork) or not isinstance(private_service_access, CreatePrivateServiceAccess):
        return []
    if private_service_access.deletion_policy != "REMOVE_PEERING":
        return []
    return [
        Problem(
            key="private_service_access.deletion_policy",
            value="REMOVE_PEERING",
            reason=f"the network {network.network_name} is not the stack's own, and others may use its peering",
            remedy="Remove the key: the connection is then left alone",
        )
    ]


def adopted_parts_share_a_network(
    network: NetworkSection,
    private_service_access: PrivateServiceAccessSection,
    cluster: ClusterSection,
    lustre: LustreSection,
) -> list[Problem]:
    """The network of a connection, a cluster or an instance is fixed for its life, so theirs must be the stack's."""
    if isinstance(network, ExistingNetwork):
        return []
    adopted = {
        "private_service_access": isinstance(private_service_access, ExistingPrivateServiceAccess),
        "cluster": isinstance(cluster, ExistingCluster),
        "lustre": isinstance(lustre, ExistingLustre),
    }
    return [
        Problem(
            key=f"{section}.source",
            value="existing",
            reason="what exists lies in a network of its own, and a network that the stack makes cannot reach it",
            remedy="Set network.source to existing and name that network",
        )
        for section, is_adopted in adopted.items()
        if is_adopted
    ]


def one_connection(lustre: LustreSection, private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """A network has one connection to Google's services, and an instance on it proves that it is there."""
    if isinstance(lustre, CreateLustre) or isinstance(private_service_access, ExistingPrivateServiceAccess):
        return []
    return [
        Problem(
            key="private_service_access.source",
            value="create",
            reason=f"the network of Lustre instance {lustre.instance_id} has its connection, and takes no second one",
            remedy="Write existing",
        )
    ]
