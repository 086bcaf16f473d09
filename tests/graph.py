"""The stack's graph as a list: every resource's URN with its parent and, on a cloud or a cluster, its provider.

The same from two sources: the program run against recorded providers, and the engine's own state after an `up`. Beside
it what waits for what, and for which reason.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from tests.program import PROJECT, Run, name_of

Graph = dict[str, dict[str, str]]
PROVIDED = ("gcp", "kubernetes")


def graph_of_run(run: Run, stack: str) -> Graph:
    """Build the graph of what the program registers."""
    urns: dict[str, str] = {}
    types: dict[str, str] = {}
    for resource in run.resources:
        parent_types = types[resource.parent] + "$" if resource.parent else ""
        types[resource.name] = parent_types + resource.type
        urns[resource.name] = f"urn:pulumi:{stack}::{PROJECT}::{types[resource.name]}::{resource.name}"
    root = f"urn:pulumi:{stack}::{PROJECT}::pulumi:pulumi:Stack::{PROJECT}-{stack}"
    return {
        urns[resource.name]: {
            "parent": urns.get(resource.parent, root),
            "provider": urns[resource.provider] if _provided(resource.type) else "",
        }
        for resource in run.resources
    }


def graph_of_state(deployment: dict[str, Any]) -> Graph:
    """Build the graph of what the engine has in its state; the root and the engine's own provider are left out."""
    return {
        resource["urn"]: {
            "parent": resource["parent"],
            "provider": resource["provider"].rpartition("::")[0] if _provided(resource["type"]) else "",
        }
        for resource in deployment["resources"]
        if resource.get("parent")
    }


def _provided(type_: str) -> bool:
    return type_.partition(":")[0] in PROVIDED


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What one resource waits for.

    Attributes:
        for_values: for a value, its parent or its provider.
        at_all: those, and what its `depends_on` names.
    """

    for_values: frozenset[str]
    at_all: frozenset[str]

    @classmethod
    def of(cls, urns: Iterable[str], *, for_values: Iterable[str]) -> "Waits":
        """Build it from URNs."""
        values = frozenset(map(name_of, for_values)) - {""}
        return cls(for_values=values, at_all=values | (frozenset(map(name_of, urns)) - {""}))


def waits_of_run(run: Run) -> dict[str, Waits]:
    """Read what waits for what from what the program registers."""
    return {
        resource.name: Waits.of(
            resource.dependencies,
            for_values=[
                resource.parent,
                resource.provider,
                *(
                    urn
                    for each in resource.options.get("propertyDependencies", {}).values()
                    for urn in each.get("urns", ())
                ),
            ],
        )
        for resource in run.resources
    }


def waits_of_state(resources: Iterable[dict[str, Any]]) -> dict[str, Waits]:
    """Read what waits for what from the engine's own state, by which it deletes."""
    return {
        name_of(resource["urn"]): Waits.of(
            resource.get("dependencies", ()),
            for_values=[
                resource.get("parent", ""),
                resource.get("provider", "").rpartition("::")[0],
                *(urn for urns in (resource.get("propertyDependencies") or {}).values() for urn in urns or ()),
            ],
        )
        for resource in resources
    }


def ancestors(waits: Mapping[str, Waits], name: str) -> set[str]:
    """Name all that must be there before a resource, by whatever way."""
    return _reached(name, {each: found.at_all for each, found in waits.items()})


def declared_order(waits: Mapping[str, Waits]) -> dict[str, frozenset[str]]:
    """Say what waits for what by declaration alone: no value, parent or provider leads there."""
    found = {}
    for name, mine in waits.items():
        declared = mine.at_all - mine.for_values
        others = {each: its.at_all for each, its in waits.items()}
        needed = {each for each in declared if each not in _reached(name, others | {name: mine.at_all - {each}})}
        if needed:
            found[name] = frozenset(needed)
    return found


def _reached(name: str, waits_for: Mapping[str, Set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = set(waits_for[name])
    while ahead:
        reached |= ahead
        ahead = {further for each in ahead for further in waits_for[each]} - reached
    return reached
