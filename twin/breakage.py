"""What `python -m twin` breaks by itself: the head's Ray, connections to the dashboard, the room on Lustre."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from jobs.errors import TwinError, UsageError
from jobs.waiting import wait_until
from twin.cloud.faults import LUSTRE_FULL
from twin.cloud.store import Store
from twin.kubernetes import cluster, relay
from twin.kubernetes.api import PODS
from twin.kubernetes.enter import first_process
from twin.kubernetes.nodes import GIB
from twin.kubernetes.ray_pods import is_head, is_ray
from twin.state import TwinState

AGENT_TIMEOUT_S = 60.0
AGENT_EVERY_S = 0.2


def crash_head(state: TwinState) -> None:
    """Kill everything in the Ray container of every head pod, as the kernel does when a container's memory is used up.

    Raises:
        TwinError: no cluster is up, or no head runs.
    """
    killed = 0
    for name in cluster.names(state):
        api = cluster.client(state, name)
        try:
            heads = [pod for pod in api.list(PODS) if is_ray(pod) and is_head(pod)]
        finally:
            api.close()
        for pod in heads:
            metadata = pod["metadata"]
            # KubeRay takes the first container for Ray's.
            container = state.pod(metadata["namespace"], metadata["name"]) / pod["spec"]["containers"][0]["name"]
            with contextlib.suppress(OSError):
                os.kill(first_process(container), signal.SIGKILL)
                killed += 1
                print(
                    f"killed Ray in head pod {metadata['namespace']}/{metadata['name']} (signal 9): the kubelet starts "
                    "the container again, Ray's table of jobs is lost and the workers join the new head. When it is "
                    "Ready: python -m twin up"
                )
    if not killed:
        raise TwinError("no Ray head runs on the twin, so none was killed. Look at it: python -m twin status")


def drop_connections(state: TwinState, *, every_s: float | None, for_s: float | None) -> None:
    """Cut the connections that port-forwards have to Ray dashboards, once or again and again.

    Args:
        state: the twin.
        every_s: real seconds between two cuts; None: one cut.
        for_s: real seconds until the last one; None: until interrupted.

    Raises:
        UsageError: a number that is none.
        TwinError: no cluster is up, or no dashboard can be reached.
    """
    for option, value in (("--every", every_s), ("--for", for_s)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{option} {value:g}: nothing was cut. Give seconds above 0")
    if for_s is not None and every_s is None:
        raise UsageError(f"--for {for_s:g} says how long to go on cutting; nothing was cut. Give --every too")
    started = time.monotonic()
    while True:
        count = sum(_cut(state, name) for name in cluster.names(state))
        if not count:
            raise TwinError("no Ray head runs on the twin, so nothing was cut. Look at it: python -m twin status")
        print(
            f"cut every open connection to {count} Ray dashboard{'s' if count > 1 else ''}; clients reconnect",
            flush=True,
        )
        if every_s is None or (for_s is not None and time.monotonic() + every_s - started > for_s):
            return
        time.sleep(every_s)


def _cut(state: TwinState, name: str) -> int:
    """Tell the relays that lead to one cluster's dashboards to cut; return how many there are."""
    recorded = {process.name: process.identity for process in Store.open(state).processes()}
    agent = recorded.get(cluster.process_name(name, cluster.AGENT))
    relays = list(_relays(agent.pid)) if agent and agent.alive else []
    for pid in relays:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    return len(relays)


def _relays(agent_pid: int) -> Iterator[int]:
    """The agent's children that carry connections into a pod network."""
    for child in Path(f"/proc/{agent_pid}/task/{agent_pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
            if relay.__file__ in words and str(relay.DASHBOARD_PORT) in words:
                yield int(child)


def fill_lustre(state: TwinState, *, leave_gib: float) -> None:
    """Make every Lustre instance full, for running pods too.

    Args:
        state: the twin.
        leave_gib: room that is left; it lies in this machine's memory while the instance is full.

    Raises:
        UsageError: a negative size, or more than this machine's memory; or a twin without Ray.
        TwinError: no cluster is up, or this machine forbids what it takes; nothing is full then.
    """
    machine_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    if not 0 <= leave_gib <= machine_gib / 2:
        raise UsageError(
            f"--leave-gib {leave_gib:g}: the room left lies in memory, and this machine has {machine_gib:.0f} GiB, so "
            f"nothing was filled. Give 0 to {machine_gib / 2:.0f}"
        )
    cluster.names(state)
    if state.without_ray.exists():
        raise UsageError(
            "this twin has no Ray and mounts no Lustre, so nothing was filled. Type: python -m twin destroy, then up "
            "without --without-ray"
        )
    store = Store.open(state)
    before = max((event.id for event in store.events_since()), default=0)
    store.set_fault(LUSTRE_FULL, str(int(leave_gib * GIB)))
    _wait_for_agents(state)
    for event in store.events_since(before):
        if event.kind == "LustreNotFilled":
            store.clear_fault(LUSTRE_FULL)
            raise TwinError(
                f"Lustre could not be filled, and nothing is full: {event.text}. It takes Linux 5.11 or newer"
            )
    print(
        f"Lustre is full but for {leave_gib:g} GiB: saves fail with 'No space left on device', older checkpoints stay "
        "whole. Files that were open before can still grow. To end it: python -m twin fill-lustre --undo"
    )


def empty_lustre(state: TwinState) -> None:
    """Give every Lustre instance its room back; one that was not full is no error.

    Raises:
        TwinError: no cluster is up.
    """
    cluster.names(state)
    Store.open(state).clear_fault(LUSTRE_FULL)
    _wait_for_agents(state)
    print("Lustre has room again; what was written and removed meanwhile is on it")


def _wait_for_agents(state: TwinState) -> None:
    """Wait until every cluster's agent has seen what the store says."""
    store = Store.open(state)
    generation = store.generation()
    for name in cluster.names(state):
        wait_until(
            lambda name=name: store.observed(name) >= generation,  # type: ignore[misc]
            timeout_s=AGENT_TIMEOUT_S,
            every_s=AGENT_EVERY_S,
            doing=f"the agent of cluster {name} (its log: {cluster.ClusterFiles(state.cluster(name)).agent_log}; "
            "python -m twin up starts it)",
        )
