"""Rows of the simulated project that the tests of this directory share."""

from typing import Any

from twin.cloud.store import Resource, ResourceState, ResourceType
from twin.kubernetes.api import Manifest

CLUSTER_ID = "projects/p/locations/us-east1/clusters/c"


def cluster(*, ray_operator: bool = False) -> Resource:
    addons = {"rayOperatorConfigs": [{"enabled": ray_operator}]}
    properties = {"name": "c", "location": "us-east1", "addonsConfig": addons}
    return Resource(type=ResourceType.CLUSTER, id=CLUSTER_ID, name="c", project="p", properties=properties)


def pool(name: str, *, state: ResourceState = ResourceState.ACTIVE, **properties: Any) -> Resource:
    given = {"cluster": CLUSTER_ID, "location": "us-east1", "nodeLocations": ["us-east1-b"], **properties}
    id_ = f"{CLUSTER_ID}/nodePools/{name}"
    return Resource(type=ResourceType.NODE_POOL, id=id_, name=name, project="p", properties=given, state=state)


def system_pool(node_count: int = 1) -> Resource:
    return pool("system", nodeCount=node_count, nodeConfig={"machineType": "n2d-standard-8"})


def spot_pool(maximum: int = 2) -> Resource:
    return pool(
        "gpu",
        autoscaling={"totalMinNodeCount": 0, "totalMaxNodeCount": maximum},
        nodeConfig={
            "machineType": "a4-highgpu-8g",
            "spot": True,
            "labels": {"team": "rl"},
            "guestAccelerators": [{"type": "nvidia-b200", "count": 8}],
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
        },
    )


def pod(name: str, requests: dict[str, Any], **spec: Any) -> Manifest:
    container = {"name": "main", "image": "i", "command": ["true"], "resources": {"requests": requests}}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
        "status": {"conditions": [condition]},
    }


GPU_SPEC: dict[str, Any] = {
    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-b200"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}


def gpu_pod(name: str, gpus: int = 8) -> Manifest:
    requests = {"cpu": "100", "memory": "1000Gi", "nvidia.com/gpu": gpus}
    gpu = pod(name, requests, **GPU_SPEC)
    # The API server takes extended resources only with equal limits.
    gpu["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": gpus}
    return gpu
