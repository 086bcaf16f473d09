"""The stack with RDMA, on a twin without Ray: what the API server accepted, what runs on the nodes, and its end."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from jobs.waiting import wait_until
from tests.golden import assert_golden
from tests.graph import graph_of_state
from tests.pipeline.declared_order import order_at_destroy
from tests.pipeline.twin_session import TwinSession, twin_session
from twin.cloud.store import Store
from twin.kubernetes import cluster
from twin.kubernetes.api import NODES, PODS, ApiClient, ApiError, Manifest, Resource

pytestmark = pytest.mark.engine

CLUSTER = "rlstack-fast"
INSTALLER = "nccl-rdma-installer"
NETWORKS = Resource(api_version="networking.gke.io/v1", plural="networks")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    with twin_session(tmp_path_factory.mktemp("fast"), speed="0", stack="fast") as running:
        running.twin("up", "--without-ray", "--stack", "fast")
        yield running


@pytest.fixture(scope="module")
def api(session: TwinSession) -> Iterator[ApiClient]:
    client = cluster.client(session.state, CLUSTER)
    yield client
    client.close()


def labelled(api: ApiClient, label: str, value: str) -> list[Manifest] | None:
    """List the running pods with a label; None until each GPU node has its one."""
    nodes = [node for node in api.list(NODES) if "cloud.google.com/gke-accelerator" in node["metadata"]["labels"]]
    pods = [pod for pod in api.list(PODS) if pod["metadata"]["labels"].get(label) == value]
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    return running if len(nodes) == len(running) == 2 else None


def test_worker_pods_have_the_nics_and_the_directories_of_their_node(api: ApiClient) -> None:
    workers = wait_until(
        lambda: labelled(api, "ray.io/node-type", "worker"), timeout_s=120, every_s=0.5, doing="two workers to run"
    )
    for pod in workers:
        interfaces = json.loads(pod["metadata"]["annotations"]["networking.gke.io/interfaces"])
        assert [each["interfaceName"] for each in interfaces] == [f"eth{index}" for index in range(10)]
        assert pod["metadata"]["annotations"]["networking.gke.io/default-interface"] == "eth0"
        mounts = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert {"/usr/local/gib", "/usr/local/nvidia"} <= mounts


def test_the_installer_runs_on_every_gpu_node_and_on_no_other(api: ApiClient) -> None:
    installers = wait_until(
        lambda: labelled(api, "k8s-app", INSTALLER), timeout_s=120, every_s=0.5, doing="the installer on both nodes"
    )
    assert {pod["spec"]["nodeName"] for pod in installers} == {
        node["metadata"]["name"]
        for node in api.list(NODES)
        if node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] == "rlstack-fast-gpu"
    }


def test_the_api_server_refuses_a_misspelt_key_of_a_network(api: ApiClient) -> None:
    network = next(each for each in api.list(NETWORKS) if each["metadata"]["name"] == "rdma-0")
    misspelt = {"apiVersion": NETWORKS.api_version, "kind": "Network", "metadata": {"name": "another"}}
    with pytest.raises(ApiError, match="parameterRef"):
        api.apply(NETWORKS, {**misspelt, "spec": {"type": "Device", "parameterRef": network["spec"]["parametersRef"]}})


def test_the_graph_is_the_one_that_the_program_declares(session: TwinSession) -> None:
    done = subprocess.run(
        ["pulumi", "stack", "export", "--stack", "fast"],
        cwd=session.settings, env=session.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert_golden("graph_fast", graph_of_state(json.loads(done.stdout)["deployment"]))


def test_a_destroy_ends_in_order_where_the_cluster_was_deleted_behind_its_back(session: TwinSession) -> None:
    session.lose_cluster(CLUSTER)
    assert session.destroy().out_of_order(order_at_destroy()) == set()
    assert list(Store.open(session.state).list()) == []
    assert session.processes() == {}
