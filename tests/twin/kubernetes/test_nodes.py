from typing import Any

import pytest

from jobs.errors import TwinError
from tests.twin.kubernetes import rows
from twin.cloud.store import ResourceState
from twin.kubernetes.nodes import node_manifest, pools_of, read_pool


def test_a_spot_gpu_node_carries_gkes_labels_taint_and_gpus() -> None:
    node = node_manifest(read_pool(rows.spot_pool(), rows.cluster()), name="n", zone="us-east1-b")
    labels = node["metadata"]["labels"]
    assert labels["cloud.google.com/gke-nodepool"] == "gpu"
    assert labels["cloud.google.com/gke-accelerator"] == "nvidia-b200"
    assert labels["cloud.google.com/gke-spot"] == "true"
    assert labels["node.kubernetes.io/instance-type"] == "a4-highgpu-8g"
    assert labels["topology.kubernetes.io/zone"] == "us-east1-b"
    assert labels["topology.kubernetes.io/region"] == "us-east1"
    assert labels["team"] == "rl"
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["status"]["allocatable"]["cpu"] == "222"
    assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"


def test_gke_taints_gpu_nodes_that_nobody_tainted() -> None:
    row = rows.pool("gpu", nodeCount=1, nodeConfig={"machineType": "a4-highgpu-8g"})
    assert read_pool(row, rows.cluster()).node_taints == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    ]


def test_counts_are_per_zone_but_for_total_limits() -> None:
    two_zones: dict[str, Any] = {
        "nodeLocations": ["us-east1-b", "us-east1-c"],
        "nodeConfig": {"machineType": "n2d-standard-8"},
    }
    fixed = read_pool(rows.pool("a", nodeCount=3, **two_zones), rows.cluster())
    assert (fixed.minimum, fixed.maximum) == (6, 6)
    zonal = read_pool(rows.pool("b", autoscaling={"minNodeCount": 1, "maxNodeCount": 4}, **two_zones), rows.cluster())
    assert (zonal.minimum, zonal.maximum) == (2, 8)
    limits = {"totalMinNodeCount": 1, "totalMaxNodeCount": 4}
    total = read_pool(rows.pool("c", autoscaling=limits, **two_zones), rows.cluster())
    assert (total.minimum, total.maximum) == (1, 4)


def test_a_general_purpose_machine_keeps_gkes_reservation() -> None:
    row = rows.pool("a", nodeCount=1, nodeConfig={"machineType": "e2-standard-16"})
    allocatable = read_pool(row, rows.cluster()).allocatable
    assert allocatable["cpu"] == pytest.approx(15.89)
    assert 55 * 1024**3 < allocatable["memory"] < 64 * 1024**3


def test_an_unknown_machine_type_is_refused_by_name() -> None:
    row = rows.pool("a", nodeCount=1, nodeConfig={"machineType": "x9-ultra"})
    with pytest.raises(TwinError, match="x9-ultra"):
        read_pool(row, rows.cluster())


def test_pools_that_are_deleted_or_failed_have_no_machines() -> None:
    pools = [
        rows.system_pool(),
        rows.pool("going", state=ResourceState.DELETING),
        rows.pool("failed", state=ResourceState.ERROR),
        rows.pool("other", cluster="another"),
    ]
    assert [row.name for row in pools_of(rows.cluster(), pools)] == ["system"]
