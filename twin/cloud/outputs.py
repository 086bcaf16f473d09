"""What Google makes up when it makes a resource: its id, and the values that only the service knows."""

import hashlib
import ipaddress
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from twin.cloud import references
from twin.cloud.store import Resource, ResourceType, Store

_COMPUTE = "https://www.googleapis.com/compute/v1/"
_CONTAINER = "https://container.googleapis.com/v1/"

# The version that the newest patch of a minor stands for in the twin; a longer one is taken as it is.
GKE_PATCH = {"1.33": "1.33.5-gke.1080000", "1.34": "1.34.3-gke.1200000", "1.35": "1.35.2-gke.1842000"}
DEFAULT_VERSION = GKE_PATCH["1.35"]

# By type: the id that the genuine provider gives. {name} and {place} are what `name_of` and `_place` find.
_IDS = {
    ResourceType.NETWORK: "projects/{project}/global/networks/{name}",
    ResourceType.SUBNETWORK: "projects/{project}/regions/{region}/subnetworks/{name}",
    ResourceType.FIREWALL: "projects/{project}/global/firewalls/{name}",
    ResourceType.ROUTER: "projects/{project}/regions/{region}/routers/{name}",
    ResourceType.ROUTER_NAT: "{project}/{region}/{router}/{name}",
    ResourceType.ADDRESS: "projects/{project}/regions/{region}/addresses/{name}",
    ResourceType.GLOBAL_ADDRESS: "projects/{project}/global/addresses/{name}",
    ResourceType.RESOURCE_POLICY: "projects/{project}/regions/{region}/resourcePolicies/{name}",
    ResourceType.LUSTRE_INSTANCE: "projects/{project}/locations/{location}/instances/{instanceId}",
    ResourceType.CLUSTER: "projects/{project}/locations/{location}/clusters/{name}",
    ResourceType.SERVICE: "{project}/{service}",
    ResourceType.PROJECT_IAM_MEMBER: "{project}/{role}/{member}",
    ResourceType.SERVICE_ACCOUNT: "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
    ResourceType.SERVICE_ACCOUNT_IAM_MEMBER: "{serviceAccountId}/{role}/{member}",
}
_NAMES = {
    ResourceType.LUSTRE_INSTANCE: "{instanceId}",
    ResourceType.SERVICE: "{service}",
    ResourceType.PROJECT_IAM_MEMBER: "{role} {member}",
    ResourceType.SERVICE_ACCOUNT: "{accountId}",
    ResourceType.SERVICE_ACCOUNT_IAM_MEMBER: "{role} {member}",
}


def id_and_name(type_: str, given: Mapping[str, Any], urn_name: str) -> tuple[str, str]:
    """Return the id and the name of a resource with these properties."""
    if type_ == ResourceType.CONNECTION:
        return f"{urllib.parse.quote_plus(given['network'])}:{given['service']}", given["service"]
    if type_ == ResourceType.NODE_POOL:
        return f"{given['cluster']}/nodePools/{given['name']}", given["name"]
    if type_ in _IDS:
        return _IDS[ResourceType(type_)].format(**given), _NAMES.get(ResourceType(type_), "{name}").format(**given)
    # Dashboards, alert policies and channels get a number from the service.
    kind = type_.rpartition(":")[2]
    number = int(hashlib.sha256(f"{type_}{urn_name}{time.time_ns()}".encode()).hexdigest()[:15], 16)
    plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
    return f"projects/{given['project']}/{plural[0].lower()}{plural[1:]}/{number}", urn_name


def unplaced(type_: str, given: Mapping[str, Any]) -> list[str]:
    """Return which of project, region and location a resource's id has and nothing tells."""
    template = _IDS[ResourceType(type_)] if type_ in _IDS else ""
    return [key for key in ("project", "region", "location") if f"{{{key}}}" in template and key not in given]


def computed(store: Store, resource: Resource) -> dict[str, Any]:
    """Return what the service adds to a new resource's properties, but for a cluster's endpoints."""
    rule = _COMPUTED.get(resource.type)
    return rule(store, resource) if rule else {}


def cluster_endpoint(server: str, ca_certificate: str) -> dict[str, Any]:
    """Return a cluster's endpoints, as its properties show them.

    Args:
        server: host and port of the control plane.
        ca_certificate: base64 of its authority's certificate.
    """
    return {
        "endpoint": server,
        "masterAuth": {"clusterCaCertificate": ca_certificate},
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": server}},
    }


def _compute_link(_: Store, resource: Resource) -> dict[str, Any]:
    return {"selfLink": _COMPUTE + resource.id}


def _network(store: Store, resource: Resource) -> dict[str, Any]:
    return _compute_link(store, resource) | {"networkId": _number(resource.id), "numericId": _number(resource.id)}


def _subnetwork(store: Store, resource: Resource) -> dict[str, Any]:
    network = ipaddress.ip_network(resource.properties["ipCidrRange"], strict=False)
    return _compute_link(store, resource) | {"gatewayAddress": str(network[1])}


def _global_address(store: Store, resource: Resource) -> dict[str, Any]:
    """Give a range the address it asked for, or the next free one of its size."""
    if "address" in resource.properties:
        return _compute_link(store, resource)
    length = resource.properties.get("prefixLength", 24)
    taken = [
        ipaddress.ip_network(f"{each.properties['address']}/{each.properties['prefixLength']}")
        for each in store.list(ResourceType.GLOBAL_ADDRESS)
        if "address" in each.properties
    ]
    free = ipaddress.ip_network("10.64.0.0/10").subnets(new_prefix=max(length, 10))
    address = next(each for each in free if not any(each.overlaps(other) for other in taken))
    return _compute_link(store, resource) | {"address": str(address.network_address)}


def _lustre(store: Store, resource: Resource) -> dict[str, Any]:
    """Give an instance an address out of the range that its network lends to Google's services."""
    network = references.canonical(resource.properties["network"])
    ranges = [
        ipaddress.ip_network(f"{each.properties['address']}/{each.properties['prefixLength']}")
        for connection in store.list(ResourceType.CONNECTION)
        if references.canonical(connection.properties["network"]) == network
        for each in store.list(ResourceType.GLOBAL_ADDRESS)
        if each.name in connection.properties["reservedPeeringRanges"]
    ]
    taken = {each.properties.get("mountPoint", "").partition("@")[0] for each in store.list(resource.type)}
    free = next(address for range_ in ranges for address in range_.hosts() if str(address) not in taken)
    return {
        "mountPoint": f"{free}@tcp:/{resource.properties['filesystem']}",
        "name": resource.id,
        "state": "ACTIVE",
        "createTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cluster(_: Store, resource: Resource) -> dict[str, Any]:
    wanted = resource.properties.get("minMasterVersion", DEFAULT_VERSION)
    return {"selfLink": _CONTAINER + resource.id, "masterVersion": GKE_PATCH.get(wanted, wanted)}


def _node_pool(store: Store, resource: Resource) -> dict[str, Any]:
    cluster = references.find(store, ResourceType.CLUSTER, resource.properties["cluster"])
    version = cluster.properties["masterVersion"] if cluster else DEFAULT_VERSION
    return {"version": resource.properties.get("version", version)}


def _account(_: Store, resource: Resource) -> dict[str, Any]:
    email = resource.id.rpartition("/")[2]
    return {
        "email": email,
        "member": f"serviceAccount:{email}",
        "name": resource.id,
        "uniqueId": _number(resource.id),
    }


def _number(text: str) -> str:
    return str(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))


_COMPUTED: Mapping[str, Callable[[Store, Resource], dict[str, Any]]] = {
    ResourceType.NETWORK: _network,
    ResourceType.SUBNETWORK: _subnetwork,
    ResourceType.FIREWALL: _compute_link,
    ResourceType.ROUTER: _compute_link,
    ResourceType.ADDRESS: _compute_link,
    ResourceType.GLOBAL_ADDRESS: _global_address,
    ResourceType.LUSTRE_INSTANCE: _lustre,
    ResourceType.CLUSTER: _cluster,
    ResourceType.NODE_POOL: _node_pool,
    ResourceType.SERVICE_ACCOUNT: _account,
}
