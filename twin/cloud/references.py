"""Which resource types name which others, as data: what must be there before, and what cannot go while named."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twin.cloud.store import Resource, ResourceType, Store


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A property that names another resource.

    Attributes:
        path: where it stands; `[]` goes through a list.
        target: type of what it names.
        holds: whether Google refuses to delete the target while it is named.
    """

    path: str
    target: str
    holds: bool = True


_EXTRA_NICS = "networkConfig.additionalNodeNetworkConfigs[]"

REFERENCES: Mapping[str, Sequence[Reference]] = {
    ResourceType.SUBNETWORK: (Reference(path="network", target=ResourceType.NETWORK),),
    ResourceType.FIREWALL: (Reference(path="network", target=ResourceType.NETWORK),),
    ResourceType.ROUTER: (Reference(path="network", target=ResourceType.NETWORK),),
    ResourceType.ROUTER_NAT: (
        Reference(path="router", target=ResourceType.ROUTER, holds=False),
        Reference(path="natIps[]", target=ResourceType.ADDRESS),
    ),
    ResourceType.GLOBAL_ADDRESS: (Reference(path="network", target=ResourceType.NETWORK),),
    ResourceType.CONNECTION: (
        Reference(path="network", target=ResourceType.NETWORK),
        Reference(path="reservedPeeringRanges[]", target=ResourceType.GLOBAL_ADDRESS, holds=False),
    ),
    ResourceType.LUSTRE_INSTANCE: (Reference(path="network", target=ResourceType.NETWORK),),
    ResourceType.CLUSTER: (
        Reference(path="network", target=ResourceType.NETWORK),
        Reference(path="subnetwork", target=ResourceType.SUBNETWORK),
    ),
    ResourceType.NODE_POOL: (
        Reference(path="cluster", target=ResourceType.CLUSTER, holds=False),
        Reference(path=f"{_EXTRA_NICS}.network", target=ResourceType.NETWORK),
        Reference(path=f"{_EXTRA_NICS}.subnetwork", target=ResourceType.SUBNETWORK),
        Reference(path="placementPolicy.policyName", target=ResourceType.RESOURCE_POLICY),
    ),
    ResourceType.SERVICE_ACCOUNT_IAM_MEMBER: (
        Reference(path="serviceAccountId", target=ResourceType.SERVICE_ACCOUNT, holds=False),
    ),
}

_URL = re.compile(r"^https://[^/]+/(?:[^/]+/)*?(?=projects/)")


def values_at(properties: Mapping[str, Any], path: str) -> Iterator[Any]:
    """Yield what stands at a path; nothing where part of it is missing."""
    name, _, rest = path.partition(".")
    value = properties.get(name.removesuffix("[]"))
    if value is None:
        return
    for item in value if name.endswith("[]") else [value]:
        if not rest:
            yield item
        elif isinstance(item, Mapping):
            yield from values_at(item, rest)


def canonical(reference: str) -> str:
    """Turn a self link into the id below it; other forms stay as they are."""
    return _URL.sub("", reference)


def names(reference: str, target: Resource) -> bool:
    """Whether a reference (id, self link, bare name or address) means this resource."""
    return canonical(reference) in {target.id, target.name, target.properties.get("address")}


def find(store: Store, type_: str, reference: str) -> Resource | None:
    """Find the resource that a reference means."""
    return next((each for each in store.list(type_) if names(reference, each)), None)


def missing(store: Store, resource: Resource) -> str | None:
    """Name the first thing in its own project that a resource refers to and that is not there."""
    for reference in REFERENCES.get(resource.type, ()):
        for value in values_at(resource.properties, reference.path):
            path = canonical(value)
            foreign = path.startswith("projects/") and not path.startswith(f"projects/{resource.project}/")
            if not foreign and find(store, reference.target, value) is None:
                return path
    return None


def users(store: Store, target: Resource) -> list[Resource]:
    """List the resources that keep this one from being deleted."""
    return [
        user
        for type_, references in REFERENCES.items()
        for user in store.list(type_)
        if any(
            reference.holds and reference.target == target.type and names(value, target)
            for reference in references
            for value in values_at(user.properties, reference.path)
        )
    ]
