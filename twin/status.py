"""What the twin says of itself: the simulated project, its processes, nodes and pods with their reasons, its events."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from twin.cloud.store import ResourceState, ResourceType, Store
from twin.kubernetes import cluster
from twin.kubernetes.api import EVENTS, NODES, PODS, ApiError
from twin.state import TwinState

LATEST_EVENTS = 10


@contextmanager
def events_told(state: TwinState) -> Iterator[None]:
    """Print, at the end, what the simulated Google said meanwhile: refusals above all."""
    before = max((event.id for event in Store.open(state).events_since()), default=0) if state.cloud_db.exists() else 0
    try:
        yield
    finally:
        for event in Store.open(state).events_since(before):
            print(f"{event.kind}: {event.object}: {event.text}")


def show(state: TwinState) -> None:
    """Print the whole state of the twin."""
    console = Console(highlight=False)
    store = Store.open(state)
    console.print(_table("Simulated project", ("resource", "name", "state"), _resources(store)))
    console.print(_table("Processes", ("process", "pid", "alive"), _processes(store)))
    for resource in store.list(ResourceType.CLUSTER):
        try:
            console.print(_table(f"Cluster {resource.name}", ("object", "on", "says"), _objects(state, resource.name)))
        except (ApiError, OSError) as error:
            console.print(f"cluster {resource.name} does not answer ({error}). Type: python -m twin up")
    for name in store.faults():
        console.print(f"fault on: {name} (python -m twin fault {name} --clear)")
    for event in store.events_since()[-LATEST_EVENTS:]:
        console.print(f"{event.kind}: {event.object}: {event.text}")


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(*columns, title=title, title_justify="left", expand=False)
    for row in rows:
        table.add_row(*row)
    return table


def _resources(store: Store) -> list[tuple[str, ...]]:
    return [
        (resource.type.partition("/")[0].removeprefix("gcp:") + "." + resource.type.rpartition(":")[2], resource.name,
         resource.state if resource.state is not ResourceState.ACTIVE else "active")
        for resource in store.list()
    ]  # fmt: skip


def _processes(store: Store) -> list[tuple[str, ...]]:
    return [(p.name, str(p.identity.pid), "yes" if p.identity.alive else "no") for p in store.processes()]


def _objects(state: TwinState, name: str) -> list[tuple[str, ...]]:
    api = cluster.client(state, name)
    try:
        nodes, pods, events = api.list(NODES), api.list(PODS), api.list(EVENTS)
    finally:
        api.close()
    newest = {event["involvedObject"].get("name"): event for event in events}  # the API lists the oldest first
    rows: list[tuple[str, ...]] = []
    for node in nodes:
        metadata = node["metadata"]
        rows.append((f"node {metadata['name']}", "", metadata["labels"].get("node.kubernetes.io/instance-type", "")))
    for pod in pods:
        metadata = pod["metadata"]
        rows.append(
            (f"pod {metadata['namespace']}/{metadata['name']}", pod["spec"].get("nodeName", "-"), pod_says(pod, newest))
        )
    return rows


def pod_says(pod: dict[str, Any], newest_event: dict[str, dict[str, Any]]) -> str:
    """Return the phase of a pod and, while it is not ready, why: its containers' reasons and its newest event."""
    status = pod.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
    if conditions.get("Ready") == "True":
        return "Ready"
    waiting = [
        ": ".join(filter(None, (state["waiting"].get("reason"), state["waiting"].get("message"))))
        for container in status.get("containerStatuses", [])
        if "waiting" in (state := container.get("state", {}))
    ]
    event = newest_event.get(pod["metadata"]["name"])
    told = [f"{event['reason']}: {event['message']}"] if event else []
    return "; ".join([status.get("phase", "Pending"), *waiting, *told])
