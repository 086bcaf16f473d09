from dataclasses import replace

from tests.twin.kubernetes import rows
from twin.kubernetes.nodes import read_pool
from twin.kubernetes.scheduling import PoolSize, Room, nodes_to_add, unschedulable

SPOT = read_pool(rows.spot_pool(maximum=3), rows.cluster())


def added(pods: int, *, nodes: int = 0, rooms: int = 0, gpus: int = 8) -> dict[str, int]:
    waiting = [rows.gpu_pod(f"p{i}", gpus) for i in range(pods)]
    return nodes_to_add([PoolSize(pool=SPOT, nodes=nodes)], waiting, [Room.of(SPOT) for _ in range(rooms)])


def test_a_pool_grows_by_one_node_for_each_pod_that_fills_one() -> None:
    assert added(2) == {"gpu": 2}


def test_pods_that_share_a_node_bring_only_one() -> None:
    assert added(2, gpus=4) == {"gpu": 1}


def test_nodes_on_their_way_are_counted_before_new_ones() -> None:
    assert added(2, nodes=1, rooms=1) == {"gpu": 1}
    assert added(2, nodes=2, rooms=2) == {}


def test_a_pool_never_grows_beyond_its_maximum() -> None:
    assert added(5) == {"gpu": 3}
    assert added(5, nodes=3) == {}


def test_a_pod_that_does_not_tolerate_the_taint_brings_no_node() -> None:
    pod = rows.pod("p", {"nvidia.com/gpu": 1}, nodeSelector=rows.GPU_SPEC["nodeSelector"])
    assert nodes_to_add([PoolSize(pool=SPOT, nodes=0)], [pod], []) == {}


def test_a_pod_that_selects_other_labels_brings_no_node() -> None:
    pod = rows.pod("p", {"cpu": 1}, **{**rows.GPU_SPEC, "nodeSelector": {"cloud.google.com/gke-nodepool": "other"}})
    assert nodes_to_add([PoolSize(pool=SPOT, nodes=0)], [pod], []) == {}


def test_a_pod_larger_than_the_machine_brings_no_node() -> None:
    assert added(1, gpus=16) == {}


def test_required_node_affinity_decides_between_pools() -> None:
    other = replace(SPOT, name="other")
    term = {"matchExpressions": [{"key": "cloud.google.com/gke-nodepool", "operator": "In", "values": ["other"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod = rows.pod("p", {"cpu": 1}, tolerations=rows.GPU_SPEC["tolerations"], affinity={"nodeAffinity": required})
    assert nodes_to_add([PoolSize(pool=SPOT, nodes=0), PoolSize(pool=other, nodes=0)], [pod], []) == {"other": 1}


def test_only_pods_that_the_scheduler_gave_up_on_count() -> None:
    pod = rows.gpu_pod("p")
    assert unschedulable(pod)
    pod["spec"]["nodeName"] = "n"
    assert not unschedulable(pod)
    assert not unschedulable({**rows.gpu_pod("q"), "status": {}})
