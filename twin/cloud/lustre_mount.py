"""Whether a pod of a cluster can mount a Lustre instance, and what the driver says when it cannot.

Mounts need five things that are configured in four places: the driver's add-on on the cluster, the instance ready, the
peering, one port on both sides, and a firewall rule for that port from the peered range. The driver tells none of the
last three apart: each ends in `Input/output error, Is the MGS running?`.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from twin.cloud import references
from twin.cloud.faults import LUSTRE_PORT
from twin.cloud.rules import connection_of
from twin.cloud.store import Resource, ResourceState, ResourceType, Store

DEFAULT_PORT = 988
LEGACY_PORT = 6988

# Since this version GKE's driver speaks to the default port unless the legacy one is asked for.
_DEFAULT_PORT_SINCE = (1, 33, 2, 4780000)


def mount_problem(store: Store, *, instance: str, cluster: str) -> str | None:
    """Say why a pod of `cluster` cannot mount the Lustre instance with id `instance`; None when it can."""
    found = references.find(store, ResourceType.LUSTRE_INSTANCE, instance)
    user = references.find(store, ResourceType.CLUSTER, cluster)
    if user is None:
        return f"cluster {cluster} does not exist"
    if not _driver(user).get("enabled"):
        return (
            "MountVolume.MountDevice failed: driver name lustre.csi.storage.gke.io not found in the list of registered "
            f"CSI drivers: the Lustre CSI add-on of cluster {cluster} is off"
        )
    if found is None:
        return _failed(instance, f"there is no instance {instance}")
    target = found.properties.get("mountPoint", instance)
    if found.state is not ResourceState.ACTIVE:
        return _failed(target, f"instance {instance} is {found.state}")
    network = references.canonical(found.properties["network"])
    if not any(references.names(user.properties["network"], each) for each in _networks(store, network)):
        return _failed(target, f"cluster {cluster} is not on the instance's network {network}")
    connection = connection_of(store, network)
    if connection is None:
        return _failed(target, f"network {network} has no service connection")
    served, spoken = _served_port(store, found), _spoken_port(user)
    if served != spoken:
        return _failed(
            target,
            f"the instance answers on port {served}, the driver speaks to port {spoken}: gkeSupportEnabled of the "
            "instance and enableLegacyLustrePort of the cluster's add-on must be equal",
        )
    if not any(
        _lets_in(rule, network, _ranges(store, connection), served) for rule in store.list(ResourceType.FIREWALL)
    ):
        return _failed(target, f"no firewall rule of network {network} lets tcp:{served} in from the peered range")
    return None


def _failed(target: str, cause: str) -> str:
    return (
        f"MountVolume.SetUp failed: rpc error: code = Internal desc = mount.lustre: mount {target} failed: "
        f"Input/output error. Is the MGS running? ({cause})"
    )


def _networks(store: Store, id_: str) -> list[Resource]:
    return [each for each in store.list(ResourceType.NETWORK) if each.id == id_]


def _driver(cluster: Resource) -> Mapping[str, Any]:
    addon: Mapping[str, Any] = cluster.properties.get("addonsConfig", {}).get("lustreCsiDriverConfig", {})
    return addon


def _served_port(store: Store, instance: Resource) -> int:
    legacy = bool(instance.properties.get("gkeSupportEnabled")) != (LUSTRE_PORT in store.faults())
    return LEGACY_PORT if legacy else DEFAULT_PORT


def _spoken_port(cluster: Resource) -> int:
    version = tuple(int(number) for number in re.findall(r"\d+", cluster.properties.get("masterVersion", "")))
    legacy = _driver(cluster).get("enableLegacyLustrePort") or version < _DEFAULT_PORT_SINCE
    return LEGACY_PORT if legacy else DEFAULT_PORT


def _ranges(store: Store, connection: Resource) -> list[ipaddress.IPv4Network]:
    """Return the address ranges that a connection gives to service producers."""
    return [
        ipaddress.IPv4Network(f"{each.properties['address']}/{each.properties['prefixLength']}")
        for each in store.list(ResourceType.GLOBAL_ADDRESS)
        if each.name in connection.properties["reservedPeeringRanges"]
    ]


def _lets_in(rule: Resource, network: str, ranges: list[ipaddress.IPv4Network], port: int) -> bool:
    given = rule.properties
    on_network = references.canonical(given["network"]) in {network, network.rpartition("/")[2]}
    if given.get("direction", "INGRESS") != "INGRESS" or given.get("disabled") or not on_network:
        return False
    sources = [ipaddress.IPv4Network(source) for source in given.get("sourceRanges", ()) if ":" not in source]
    covered = all(any(peered.subnet_of(source) for source in sources) for peered in ranges)
    return covered and any(port in ports for ports in _allowed_tcp(given))


def _allowed_tcp(rule: Mapping[str, Any]) -> Iterator[range]:
    for allow in rule.get("allows", ()):
        if allow["protocol"] in {"tcp", "6", "all"}:
            for ports in allow.get("ports") or ["0-65535"]:
                first, _, last = ports.partition("-")
                yield range(int(first), int(last or first) + 1)
