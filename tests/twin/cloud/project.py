"""A simulated project driven as the engine drives it: requests in, plain values out; no engine, no Kubernetes."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pulumi.provider.experimental import provider as sdk

from twin.cloud.durations import Clock
from twin.cloud.provider import GoogleCloud
from twin.cloud.store import Resource, ResourceType, Store
from twin.cloud.values import plain_map, wrap_map
from twin.kubernetes.cluster import Endpoint
from twin.state import TwinState

NETWORK_ID = "projects/p/global/networks/net"
CONNECTION_ID = "projects%2Fp%2Fglobal%2Fnetworks%2Fnet:servicenetworking.googleapis.com"
INSTANCE_ID = "projects/p/locations/us-east1-b/instances/fs"
CLUSTER_ID = "projects/p/locations/us-east1/clusters/c"

NETWORK = {"name": "net", "autoCreateSubnetworks": False}
CONNECTION = {
    "network": NETWORK_ID,
    "service": "servicenetworking.googleapis.com",
    "reservedPeeringRanges": ["range"],
}
INSTANCE = {
    "instanceId": "fs",
    "location": "us-east1-b",
    "filesystem": "lustrefs",
    "capacityGib": "36000",
    "perUnitStorageThroughput": "500",
    "network": NETWORK_ID,
}
CLUSTER = {
    "name": "c",
    "location": "us-east1",
    "network": NETWORK_ID,
    "deletionProtection": False,
    "addonsConfig": {"lustreCsiDriverConfig": {"enabled": True}},
}
SPOT_POOL = {
    "name": "a4",
    "cluster": CLUSTER_ID,
    "nodeCount": 2,
    "nodeConfig": {"machineType": "a4-highgpu-8g", "spot": True, "guestAccelerators": [{"type": "b200", "count": 8}]},
}


@dataclass
class RecordedControlPlane:
    """Kubernetes that is up at once and always follows."""

    store: Store
    alive: set[str] = field(default_factory=set)

    def create(self, state: TwinState, name: str) -> Endpoint:
        self.alive.add(name)
        self.store.observe(name, 10**9)
        return Endpoint(server="localhost:6443", ca_certificate="Q0E=")

    def delete(self, state: TwinState, name: str) -> None:
        self.alive.discard(name)


class Project:
    """One project; `engine` starts a new provider on it, as each run of the engine does."""

    def __init__(self, state: TwinState, speed: float = float("inf")) -> None:
        self.state = state
        self.clock = Clock(speed)
        self.store = Store.open(state)
        self.kubernetes = RecordedControlPlane(self.store)
        self.engine()

    def engine(self) -> None:
        self.provider = GoogleCloud(self.state, self.clock, self.kubernetes)
        asyncio.run(self.provider.configure(sdk.ConfigureRequest({}, wrap_map({"project": "p"}), True, False)))

    def check(self, type_: str, given: dict[str, Any]) -> list[str]:
        request = sdk.CheckRequest(_urn(type_), {}, wrap_map(given), b"seed")
        return [failure.property for failure in asyncio.run(self.provider.check(request)).failures or ()]

    def create(self, type_: str, given: dict[str, Any], *, name: str = "x", preview: bool = False) -> dict[str, Any]:
        request = sdk.CreateRequest(_urn(type_, name), wrap_map(given), 0, preview)
        return plain_map(asyncio.run(self.provider.create(request)).properties)

    def diff(self, type_: str, id_: str, news: dict[str, Any]) -> sdk.DiffResponse:
        request = sdk.DiffRequest(_urn(type_), id_, wrap_map(self.there(type_, id_).properties), wrap_map(news), [])
        return asyncio.run(self.provider.diff(request))

    def update(self, type_: str, id_: str, news: dict[str, Any]) -> dict[str, Any]:
        olds = wrap_map(self.there(type_, id_).properties)
        request = sdk.UpdateRequest(_urn(type_), id_, olds, wrap_map(news), 0, [], False)
        return plain_map(asyncio.run(self.provider.update(request)).properties)

    def delete(self, type_: str, id_: str) -> None:
        found = self.store.get(type_, id_)
        properties = wrap_map(found.properties if found else {})
        asyncio.run(self.provider.delete(sdk.DeleteRequest(_urn(type_), id_, properties, 0)))

    def read(self, type_: str, id_: str, inputs: dict[str, Any] | None = None) -> sdk.ReadResponse:
        return asyncio.run(self.provider.read(sdk.ReadRequest(_urn(type_), id_, {}, wrap_map(inputs or {}))))

    def there(self, type_: str, id_: str) -> Resource:
        found = self.store.get(type_, id_)
        assert found is not None, f"{id_} is not in the store"
        return found

    def enable(self, *apis: str) -> None:
        for api in apis:
            self.create(ResourceType.SERVICE, {"service": f"{api}.googleapis.com"})

    def with_network(self) -> None:
        self.enable("compute", "servicenetworking", "lustre", "container")
        self.create(ResourceType.NETWORK, NETWORK)

    def with_connection(self, **changed: Any) -> None:
        self.with_network()
        given = {"name": "range", "purpose": "VPC_PEERING", "prefixLength": 22, "network": NETWORK_ID}
        self.create(ResourceType.GLOBAL_ADDRESS, given)
        self.create(ResourceType.CONNECTION, CONNECTION | changed)

    def with_lustre(self, **changed: Any) -> None:
        self.with_connection(**changed)
        self.create(ResourceType.LUSTRE_INSTANCE, INSTANCE)

    def with_cluster(self, **changed: Any) -> None:
        self.create(ResourceType.CLUSTER, CLUSTER | changed)


def unknown(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return inputs of which some are not known yet, as they come over the wire."""
    return value | dict.fromkeys(names, "04da6b54-80e4-46f7-96ec-b56ff0331ba9")


def _urn(type_: str, name: str = "x") -> str:
    # The engine sends the types of all parents; the last is the resource's own.
    return f"urn:pulumi:dev::rlstack::rlstack:network:Network${type_}::{name}"
