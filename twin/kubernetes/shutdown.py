"""What comes before a Spot machine is taken: a notice on its Node, and half a minute for its pods to end.

As Google's documentation of Spot VMs on GKE tells it; no real preemption was observed by this project. The node gets a
taint, is no longer Ready, its pods are asked to end and are marked as terminated by the kubelet, then the machine and
its Node object are gone.
"""

import time
from collections.abc import Iterable

from twin.cloud.durations import Duration
from twin.kubernetes.api import NODES, ApiClient, Manifest
from twin.kubernetes.nodes import TERMINATES_AT

NOTICE = Duration(seconds=30, estimate=False)
"""From Compute Engine's notice to the end of the machine; GKE's documentation leaves 25 s of it to pods."""
TAINT = {"key": "cloud.google.com/impending-node-termination", "value": "true", "effect": "NoSchedule"}


def give_notice(api: ApiClient, node: Manifest, *, ends_at: float) -> None:
    """Tell a cluster that a machine goes at `ends_at`, Unix seconds; the agent does the rest."""
    name = node["metadata"]["name"]
    taints = [*node["spec"].get("taints", []), TAINT]
    marked = {"metadata": {"annotations": {TERMINATES_AT: str(ends_at)}}, "spec": {"taints": taints}}
    # The mark first: with it, KWOK lets the node stay not Ready.
    api.patch(NODES, name, marked)
    not_ready = {"status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}
    conditions = node.get("status", {}).get("conditions", [])
    api.patch_status(
        NODES, name, {"conditions": [{**each, **not_ready} if each["type"] == "Ready" else each for each in conditions]}
    )


def ending(nodes: Iterable[Manifest]) -> dict[str, float]:
    """Nodes under notice, by name, and when they end, Unix seconds."""
    marks = {n["metadata"]["name"]: n["metadata"].get("annotations", {}).get(TERMINATES_AT) for n in nodes}
    return {name: float(at) for name, at in marks.items() if at is not None}


def end_due(api: ApiClient, nodes: Iterable[Manifest]) -> None:
    """Take away the machines whose time is over: their pods are lost with them."""
    for name, at in ending(nodes).items():
        if time.time() >= at:
            api.delete(NODES, name)
