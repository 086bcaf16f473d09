"""gIB: on every node of the pool in one version; in every worker mounts and annotations; one environment for all."""

import pytest

from components.gib import IMAGE, installer_spec
from components.machines import GPU_MACHINES
from tests.components.test_ray_cluster import pods
from tests.program import Run, changed, run_program, stack_settings


def test_the_installer_has_a_pinned_version_and_runs_on_tainted_nodes_of_the_pool_only() -> None:
    spec = installer_spec("rlstack-dev-gpu")["template"]["spec"]
    (installer,) = spec["initContainers"]
    assert installer["image"] == IMAGE
    assert IMAGE.rpartition(":")[2].startswith("v")
    assert spec["nodeSelector"] == {"cloud.google.com/gke-nodepool": "rlstack-dev-gpu"}
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_up_does_not_wait_for_nodes_that_only_a_run_brings(dev_run: Run) -> None:
    assert dev_run["gib-installer"].inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_a_worker_sees_the_node_s_directories_once_they_are_there(dev_run: Run) -> None:
    worker = pods(dev_run)["worker"]
    volumes = {volume["name"]: volume.get("hostPath") for volume in worker["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["containers"][0]["volumeMounts"]}
    for name in ("gib", "nvidia"):
        assert volumes[name] == {"path": f"/home/kubernetes/bin/{name}", "type": "Directory"}
        assert mounts[name] == f"/usr/local/{name}"


def test_the_head_has_no_further_nic_and_nothing_of_a_gpu_node(dev_run: Run) -> None:
    assert "hostPath" not in str(pods(dev_run)["head"])
    spec = dev_run["ray-cluster"].inputs["spec"]
    assert "metadata" not in spec["headGroupSpec"]["template"]
    annotations = spec["workerGroupSpecs"][0]["template"]["metadata"]["annotations"]
    assert set(annotations) == {"networking.gke.io/default-interface", "networking.gke.io/interfaces"}


@pytest.mark.parametrize("machine_type", GPU_MACHINES)
def test_head_and_workers_have_the_same_environment_for_the_machine_type(machine_type: str) -> None:
    run = run_program("dev", changed(stack_settings("dev"), gpu_pool__machine_type=machine_type))
    environments = [
        {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]} for pod in pods(run).values()
    ]
    accelerators = GPU_MACHINES[machine_type].accelerators
    assert accelerators is not None
    head, worker = environments
    assert head == worker
    assert worker["NCCL_NET"] == "gIB"
    assert worker["NCCL_TUNER_CONFIG_PATH"] == f"/usr/local/gib/configs/{accelerators.nccl_tuner_config}"
    assert worker["NCCL_SOCKET_IFNAME"] == worker["GLOO_SOCKET_IFNAME"] == "eth0"
