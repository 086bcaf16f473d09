"""The rules of Google's services that bite people: what they refuse, and when.

Only what cannot be read from the provider's schema. Each rule is a plain function of the store and the resource as it
would be; each raises a CloudRefusal with Google's words, and what to do where those leave it open.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from components.lustre_tiers import LUSTRE_TIERS
from twin.cloud import references
from twin.cloud.faults import GPU_QUOTA, PRODUCER_HELD, STOCKOUT
from twin.cloud.refusals import ApiRefusal, BrokenResource, CloudRefusal
from twin.cloud.store import Resource, ResourceState, ResourceType, Store

# Each API by the part of the type token that it serves, and by its name in Google's messages.
_APIS = {
    "gcp:compute/": ("compute.googleapis.com", "Compute Engine API"),
    "gcp:container/": ("container.googleapis.com", "Kubernetes Engine API"),
    "gcp:lustre/": ("lustre.googleapis.com", "Google Cloud Managed Lustre API"),
    "gcp:monitoring/": ("monitoring.googleapis.com", "Cloud Monitoring API"),
    "gcp:servicenetworking/": ("servicenetworking.googleapis.com", "Service Networking API"),
    "gcp:serviceaccount/": ("iam.googleapis.com", "Identity and Access Management (IAM) API"),
    "gcp:projects/iAM": ("cloudresourcemanager.googleapis.com", "Cloud Resource Manager API"),
}

SPOT_B200_QUOTA = 128
"""The simulated project's PREEMPTIBLE_NVIDIA_B200_GPUS: twice the codelab's stack."""

_GPUS_OF_MACHINE = {"a4-highgpu-8g": 8}

Rule = Callable[[Store, Resource], None]


def refuse_create(store: Store, resource: Resource) -> None:
    """Raise CloudRefusal where Google would not make this resource."""
    _api_enabled(store, resource)
    absent = references.missing(store, resource)
    if absent is not None:
        raise ApiRefusal(404, "notFound", f"The resource '{absent}' was not found")
    for rule in _CREATE_RULES.get(resource.type, ()):
        rule(store, resource)


def refuse_update(store: Store, old: Resource, new: Resource) -> None:
    """Raise CloudRefusal where Google would not change this resource so."""
    _api_enabled(store, new)
    if new.type == ResourceType.LUSTRE_INSTANCE:
        _lustre_capacity(store, new)
        _lustre_growth(old, new)


def refuse_delete(store: Store, resource: Resource) -> None:
    """Raise CloudRefusal where Google would not delete this resource; the connection's rule is `producer_holds`."""
    if resource.properties.get("deletionPolicy") == "PREVENT":
        raise CloudRefusal(
            f"{resource.id} cannot be destroyed: its deletionPolicy is PREVENT. Set it to DELETE, apply that, then "
            "destroy"
        )
    if resource.type == ResourceType.CLUSTER and resource.properties.get("deletionProtection"):
        raise CloudRefusal(
            f"cluster {resource.name}: Cannot destroy cluster because deletion_protection is set to true. Set it to "
            "false to proceed with cluster deletion, apply that, then destroy"
        )
    _api_enabled(store, resource)
    held_by = references.users(store, resource)
    if held_by:
        kind = resource.type.rpartition(":")[2].lower()
        listed = ", ".join(f"'{user.id}'" for user in held_by)
        text = f"The {kind} resource '{resource.id}' is already being used by {listed}"
        raise ApiRefusal(400, "resourceInUseByAnotherResource", text)


def producer_holds(store: Store, connection: Resource) -> bool:
    """Whether a service producer still uses a connection: while a Lustre instance lives, and for a while after.

    That while is over when its time has passed and one attempt was refused: on the scaled clock the engine's own pauses
    would count for minutes, and what everybody meets in the cloud would be met here only now and then.
    """
    if _lustre_on(store, connection.properties["network"]):
        return True
    hold = connection.hidden.get("producer")
    if hold is None:
        return False
    return PRODUCER_HELD in store.faults() or not hold["refused"] or time.time() < hold["released_at"]


def gpu_problem(store: Store, pool: Resource, nodes: int) -> str | None:
    """Say why Google would not give a node pool this many nodes in all, in the words of the instance group."""
    gpus_per_node = _gpus_per_node(pool)
    if not gpus_per_node or not nodes:
        return None
    if STOCKOUT in store.faults():
        zones = pool.properties.get("nodeLocations") or [pool.properties.get("location")]
        return (
            f"GCE_STOCKOUT: Instance creation failed: The zone 'projects/{pool.project}/zones/{zones[0]}' does not "
            "have enough resources available to fulfill the request. Try a different zone, or try again later"
        )
    limit = 0 if GPU_QUOTA in store.faults() else SPOT_B200_QUOTA
    if pool.properties.get("nodeConfig", {}).get("spot") and nodes * gpus_per_node > limit:
        return (
            f"GCE_QUOTA_EXCEEDED: Instance creation failed: Quota 'PREEMPTIBLE_NVIDIA_B200_GPUS' exceeded. "
            f"Limit: {limit:.1f}, asked for {nodes * gpus_per_node:.1f} by {nodes} nodes. Ask for more, or fewer nodes"
        )
    return None


def fixed_nodes(pool: Resource) -> int:
    """Return how many nodes a pool starts with: its count per zone, times its zones."""
    given = pool.properties
    per_zone = given.get(
        "nodeCount", given.get("initialNodeCount", given.get("autoscaling", {}).get("minNodeCount", 0))
    )
    return int(per_zone) * max(1, len(given.get("nodeLocations", ())))


def unprovisioned(store: Store, pool: Resource) -> None:
    """Raise BrokenResource when a new pool gets none of the nodes that it starts with."""
    problem = gpu_problem(store, pool, fixed_nodes(pool))
    if problem and not pool.properties.get("bestEffortProvisioning", {}).get("enabled"):
        raise BrokenResource(
            f'NodePool {pool.name} was created in the error state "ERROR": {problem}. The rest of the stack is not '
            "touched; the next up tries the pool again"
        )


def _api_enabled(store: Store, resource: Resource) -> None:
    for prefix, (api, title) in _APIS.items():
        if not resource.type.startswith(prefix):
            continue
        enabled = store.get(ResourceType.SERVICE, f"{resource.project}/{api}")
        if enabled is None or enabled.state is not ResourceState.ACTIVE:
            raise ApiRefusal(
                403,
                "SERVICE_DISABLED",
                f"{title} has not been used in project {resource.project} before or it is disabled. Enable {api} "
                "(gcp.projects.Service) and let this resource depend on that, then retry",
            )


def _lustre_on(store: Store, network: str) -> list[Resource]:
    """List the Lustre instances of a network, in whatever state."""
    wanted = references.canonical(network)
    instances = store.list(ResourceType.LUSTRE_INSTANCE)
    return [each for each in instances if references.canonical(each.properties["network"]) == wanted]


def connection_of(store: Store, network: str) -> Resource | None:
    """Find the active service connection of a network."""
    wanted = references.canonical(network)
    for connection in store.list(ResourceType.CONNECTION):
        if references.canonical(connection.properties["network"]) == wanted:
            return connection if connection.state is ResourceState.ACTIVE else None
    return None


def _lustre_connected(store: Store, resource: Resource) -> None:
    network = resource.properties["network"]
    if connection_of(store, network) is None:
        raise ApiRefusal(
            400,
            "FAILED_PRECONDITION",
            f"Lustre instance {resource.name}: network {network} has no active private services connection. Create "
            "gcp.servicenetworking.Connection on it and let the instance depend on that",
        )


def _lustre_capacity(_: Store, resource: Resource) -> None:
    text = resource.properties["capacityGib"]
    throughput = resource.properties.get("perUnitStorageThroughput")
    if throughput is None:
        return
    tier = LUSTRE_TIERS.get(int(throughput)) if throughput.isdigit() else None
    if tier is None:
        raise ApiRefusal(
            400,
            "INVALID_ARGUMENT",
            f"per_unit_storage_throughput {throughput} is not a tier; there are {', '.join(map(str, LUSTRE_TIERS))}",
        )
    if not text.isdigit() or not tier.allows(int(text)):
        near = " or ".join(str(size) for size in tier.nearest(int(text))) if text.isdigit() else str(tier.minimum)
        raise ApiRefusal(
            400, "INVALID_ARGUMENT", f"capacity_gib {text} is not a size of the {throughput} MBps tier; nearest: {near}"
        )


def _lustre_growth(old: Resource, new: Resource) -> None:
    before, after = int(old.properties["capacityGib"]), int(new.properties["capacityGib"])
    if after < before:
        raise ApiRefusal(400, "INVALID_ARGUMENT", f"capacity_gib {after}: an instance of {before} GiB cannot shrink")
    tier = LUSTRE_TIERS.get(int(old.properties.get("perUnitStorageThroughput", 0)))
    if tier is not None and before <= tier.threshold < after:
        text = f"capacity_gib {after}: an instance made with up to {tier.threshold} GiB cannot grow past that"
        raise ApiRefusal(400, "INVALID_ARGUMENT", text)


def _pool_has_cluster(store: Store, resource: Resource) -> None:
    cluster = references.find(store, ResourceType.CLUSTER, resource.properties["cluster"])
    if cluster is None or cluster.state is not ResourceState.ACTIVE:
        state = "missing" if cluster is None else cluster.state
        raise ApiRefusal(400, "failedPrecondition", f"Cluster {resource.properties['cluster']} is {state}, not RUNNING")


def _pool_capacity_is_one_kind(_: Store, resource: Resource) -> None:
    config = resource.properties.get("nodeConfig", {})
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType", "NO_RESERVATION")
    if config.get("spot") and affinity != "NO_RESERVATION":
        text = f"node pool {resource.name}: Spot VMs cannot consume a reservation; reservation affinity is {affinity}"
        raise ApiRefusal(400, "badRequest", text)
    if config.get("spot") and config.get("flexStart"):
        raise ApiRefusal(400, "badRequest", f"node pool {resource.name}: Spot and Flex Start exclude each other")


def _cluster_can_have_networks(_: Store, resource: Resource) -> None:
    datapath = resource.properties.get("datapathProvider")
    if resource.properties.get("enableMultiNetworking") and datapath != "ADVANCED_DATAPATH":
        text = f"cluster {resource.name}: multi-networking needs Dataplane V2; datapath_provider is {datapath}"
        raise ApiRefusal(400, "badRequest", f"{text}. Set it to ADVANCED_DATAPATH")


def _pool_networks_fit(store: Store, resource: Resource) -> None:
    """Refuse further NICs on a cluster without multi-networking, and RoCE NICs in a zone that is not their network's.

    What Google answers was not read; that it refuses says cluster-toolkit (preconditions of gke-node-pool and
    gke-cluster; network profiles are zonal).
    """
    further = resource.properties.get("networkConfig", {}).get("additionalNodeNetworkConfigs", ())
    cluster = references.find(store, ResourceType.CLUSTER, resource.properties["cluster"])
    if further and cluster is not None and not cluster.properties.get("enableMultiNetworking"):
        text = f"node pool {resource.name}: additional node networks need multi-networking, which is off on cluster"
        raise ApiRefusal(400, "badRequest", f"{text} {cluster.name}. It can be turned on only when a cluster is made")
    for each in further:
        network = references.find(store, ResourceType.NETWORK, each["network"])
        zone = _roce_zone(network)
        strange = [node_zone for node_zone in resource.properties.get("nodeLocations", ()) if node_zone != zone]
        if zone and strange:
            text = f"node pool {resource.name}: network {each['network']} has the RoCE profile of {zone}"
            raise ApiRefusal(400, "badRequest", f"{text} and takes no machine in {', '.join(strange)}")


def _firewall_network_takes_rules(store: Store, resource: Resource) -> None:
    """Refuse firewall rules on a network with a RoCE profile (cluster-toolkit: network/vpc, precondition)."""
    network = references.find(store, ResourceType.NETWORK, resource.properties["network"])
    if _roce_zone(network):
        text = f"firewall {resource.name}: the network profile of {resource.properties['network']} allows no firewall"
        raise ApiRefusal(400, "invalid", f"{text} rules. Remove this one: traffic of RDMA NICs passes none")


def _roce_zone(network: Resource | None) -> str | None:
    """Return the zone of a network's RoCE profile."""
    profile = network.properties.get("networkProfile", "") if network else ""
    zone, roce, _ = profile.rpartition("/")[2].partition("-vpc-roce")
    return zone if roce else None


def _gpus_per_node(pool: Resource) -> int:
    config = pool.properties.get("nodeConfig", {})
    asked = sum(int(each["count"]) for each in config.get("guestAccelerators", ()))
    return asked or _GPUS_OF_MACHINE.get(config.get("machineType", ""), 0)


_CREATE_RULES: Mapping[str, Sequence[Rule]] = {
    ResourceType.CLUSTER: (_cluster_can_have_networks,),
    ResourceType.FIREWALL: (_firewall_network_takes_rules,),
    ResourceType.LUSTRE_INSTANCE: (_lustre_connected, _lustre_capacity),
    ResourceType.NODE_POOL: (_pool_has_cluster, _pool_capacity_is_one_kind, _pool_networks_fit),
}
