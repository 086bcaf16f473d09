"""The stack's graph as a list: every resource's URN with its parent and, on a cloud or a cluster, its provider.

The same from two sources: the program run against recorded providers, and the engine's own state after an `up`.
"""

from typing import Any

from tests.program import PROJECT, Run

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
