"""What tells Ray's pods from others, and the way from the API server to a head's dashboard."""

from twin.kubernetes.api import KWOK_PORT_FORWARDS, ApiClient, Manifest
from twin.kubernetes.kwok import RAY_CLUSTER_LABEL
from twin.kubernetes.relay import DASHBOARD_PORT

_HEAD = "head"


def is_ray(pod: Manifest) -> bool:
    """Whether a pod belongs to a RayCluster."""
    return RAY_CLUSTER_LABEL in pod["metadata"].get("labels", {})


def is_head(pod: Manifest) -> bool:
    """Whether a Ray pod is its cluster's head."""
    return bool(pod["metadata"]["labels"].get("ray.io/node-type") == _HEAD)


def ray_cluster_of(pod: Manifest) -> str:
    """Identity of the RayCluster that a pod belongs to."""
    owners = pod["metadata"].get("ownerReferences", [])
    return str(owners[0]["uid"]) if owners else str(pod["metadata"]["labels"][RAY_CLUSTER_LABEL])


def forward_dashboard(api: ApiClient, head: Manifest, port: int) -> None:
    """Let port-forwards through the API server find a head's dashboard.

    Args:
        api: the cluster's API server.
        head: the head's pod; the way goes with it.
        port: where the dashboard answers on this machine's 127.0.0.1.
    """
    metadata = head["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    target = {"address": "127.0.0.1", "port": port}
    manifest = {
        "apiVersion": KWOK_PORT_FORWARDS.api_version,
        "kind": "PortForward",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner]},
        "spec": {"forwards": [{"ports": [DASHBOARD_PORT], "target": target}]},
    }
    api.apply(KWOK_PORT_FORWARDS, manifest)
