"""The Ray cluster: head where nothing is preempted, workers where the GPUs are, secrets as files, ports fenced."""

import shlex
from typing import Any

import pytest

from components.ray_cluster import MISSING_KIND_ATTEMPTS, retry_without_operator
from components.ray_cluster_spec import network_policy_spec
from jobs.errors import RlstackError
from jobs.payload import workers
from tests.golden import assert_golden
from tests.program import Inputs, Run, changed, run_program, stack_settings

MISSING = 'no matches for kind "RayCluster" in version "ray.io/v1"'


@pytest.fixture(scope="module")
def kept_run() -> Run:
    return run_program("dev", changed(stack_settings("dev"), ray__workers_after_run="keep"))


def pods(run: Run) -> dict[str, Inputs]:
    spec = run["ray-cluster"].inputs["spec"]
    groups = {"head": spec["headGroupSpec"], "worker": spec["workerGroupSpecs"][0]}
    return {name: group["template"]["spec"] for name, group in groups.items()}


def test_the_cloud_s_cluster_is_as_known(dev_run: Run) -> None:
    assert_golden("ray_cluster_dev", dev_run["ray-cluster"].inputs)


def test_the_local_cluster_is_as_known(local_run: Run) -> None:
    assert_golden("ray_cluster_local", local_run["ray-cluster"].inputs)


def test_the_fence_is_as_known() -> None:
    assert_golden("network_policy", network_policy_spec("rlstack-dev"))


def test_the_head_has_no_gpu_and_runs_on_the_system_pool(run: Run) -> None:
    head = pods(run)["head"]
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]
    assert head["nodeSelector"]["cloud.google.com/gke-nodepool"].endswith("-system")
    assert "tolerations" not in head


def test_the_head_offers_the_cpu_that_nemo_rl_places_on_every_node(run: Run) -> None:
    assert int(run["ray-cluster"].inputs["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"]) >= 1


def test_workers_tolerate_exactly_the_taint_of_their_pool(run: Run) -> None:
    (taint,) = run["gpus-pool"].inputs["nodeConfig"]["taints"]
    (toleration,) = pods(run)["worker"]["tolerations"]
    assert toleration["key"] == taint["key"]
    assert (toleration["effect"], taint["effect"]) == ("NoSchedule", "NO_SCHEDULE")
    assert pods(run)["worker"]["nodeSelector"]["cloud.google.com/gke-nodepool"] == run["gpus-pool"].inputs["name"]


def test_a_cluster_comes_up_without_workers_and_no_number_of_nodes_changes_it(run: Run) -> None:
    (group,) = run["ray-cluster"].inputs["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"]) == (0, 0)
    assert group["maxReplicas"] >= run["gpus-pool"].inputs["autoscaling"]["maxNodeCount"]
    assert group["groupName"] == workers.GROUP


def test_kept_workers_are_one_a_node_and_changed_in_place(kept_run: Run) -> None:
    cluster = kept_run["ray-cluster"]
    (group,) = cluster.inputs["spec"]["workerGroupSpecs"]
    assert group["minReplicas"] == 0
    assert group["replicas"] == group["maxReplicas"] == kept_run["gpus-pool"].inputs["autoscaling"]["maxNodeCount"]
    assert "ignoreChanges" not in cluster.options
    assert "--scale-raycluster" not in kept_run["grpo"].inputs["entrypoint"]
    head = pods(kept_run)["head"]
    assert "serviceAccountName" not in head
    assert not [volume for volume in head["volumes"] if "projected" in volume]
    assert not [resource for resource in kept_run.resources if "scaler" in resource.name]


def test_only_the_head_gets_a_token_where_the_supervisor_reads_it(run: Run) -> None:
    head, worker = pods(run)["head"], pods(run)["worker"]
    (volume,) = [volume for volume in head["volumes"] if "projected" in volume]
    (mount,) = [mount for mount in head["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]
    assert (mount["mountPath"], mount["readOnly"]) == (str(workers.CREDENTIALS_DIR), True)
    files = [
        source.get("serviceAccountToken", {}).get("path") or source["configMap"]["items"][0]["path"]
        for source in volume["projected"]["sources"]
    ]
    assert files == ["token", "ca.crt"]
    assert head["serviceAccountName"] == run["ray-scaler-account"].inputs["metadata"]["name"]
    assert "serviceAccountName" not in worker
    assert not [volume for volume in worker["volumes"] if "projected" in volume]


def test_the_run_scales_the_cluster_that_it_runs_on(run: Run) -> None:
    metadata = run["ray-cluster"].inputs["metadata"]
    words = shlex.split(run["grpo"].inputs["entrypoint"])
    assert words[words.index("--scale-raycluster") + 1] == f"{metadata['namespace']}/{metadata['name']}"


@pytest.mark.parametrize("pod", ["head", "worker"])
def test_shared_memory_lies_below_the_memory_limit(run: Run, pod: str) -> None:
    spec = pods(run)[pod]
    (shm,) = [volume["emptyDir"] for volume in spec["volumes"] if volume["name"] == "shm"]
    limit = spec["containers"][0]["resources"]["limits"]["memory"]
    assert shm["medium"] == "Memory"
    assert int(shm["sizeLimit"].removesuffix("Gi")) < int(limit.removesuffix("Gi"))


@pytest.mark.parametrize("pod", ["head", "worker"])
def test_pods_get_lustre_secret_files_and_no_token_unasked(run: Run, pod: str) -> None:
    spec = pods(run)[pod]
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert spec["automountServiceAccountToken"] is False
    assert "/lustre" in mounts
    assert mounts["/run/secrets/rlstack"]["readOnly"] is True


def test_secret_values_stand_in_the_secret_and_nowhere_else(dev_run: Run) -> None:
    files = dev_run["ray-secrets"].inputs["stringData"]
    assert files["hf-token"] == "hf_canary"
    assert files["netrc"] == "machine api.wandb.ai login user password wandb_canary\n"
    for resource in dev_run.resources:
        if resource.name != "ray-secrets":
            assert "canary" not in f"{resource.inputs} {resource.options}"
    assert "canary" not in str(dev_run.outputs)


def test_the_environment_points_at_the_secret_s_files(dev_run: Run) -> None:
    for spec in pods(dev_run).values():
        environment = {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"]}
        for variable, file in (("HF_TOKEN_PATH", "hf-token"), ("NETRC", "netrc")):
            assert environment[variable] == f"/run/secrets/rlstack/{file}"


def test_the_secret_is_there_before_there_is_a_token(local_run: Run) -> None:
    assert local_run["ray-secrets"].inputs.get("stringData", {}) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"project__labels": {"team": "rl"}},
        {"job__grpo__wandb_name": "another"},
        {"job__grpo__save_period": 4},
        {"private_service_access__deletion_policy": "DELETE"},
    ],
)
def test_what_training_s_pods_do_not_depend_on_leaves_the_spec_alone(change: dict[str, Any], dev_run: Run) -> None:
    after = run_program("dev", changed(stack_settings("dev"), **change))
    assert after["ray-cluster"].inputs["spec"] == dev_run["ray-cluster"].inputs["spec"]


def test_a_label_of_the_stack_is_neither_on_the_cluster_nor_on_its_pods(dev_run: Run) -> None:
    assert dev_run["gpus-pool"].inputs["nodeConfig"]["resourceLabels"] == {"purpose": "grpo"}
    assert "purpose" not in str(dev_run["ray-cluster"].inputs)


def test_nothing_updates_a_cluster_that_a_run_scales(dev_run: Run) -> None:
    cluster = dev_run["ray-cluster"]
    image = run_program("dev", changed(stack_settings("dev"), ray__image="example.com/mirror/nemo-rl:v0.5.0"))
    nodes = run_program("dev", changed(stack_settings("dev"), gpu_pool__node_count=4))
    assert image["ray-cluster"].inputs["spec"]["headGroupSpec"] != cluster.inputs["spec"]["headGroupSpec"]
    assert nodes["ray-cluster"].inputs == cluster.inputs
    assert cluster.options["replaceOnChanges"] == ["spec"]
    assert cluster.options["ignoreChanges"] == ["spec.workerGroupSpecs[0].replicas"]
    assert cluster.options["deleteBeforeReplace"] is True


def test_of_a_cluster_that_keeps_its_workers_another_image_replaces_and_another_node_count_does_not(
    kept_run: Run,
) -> None:
    before = kept_run["ray-cluster"].inputs["spec"]
    settings = changed(stack_settings("dev"), ray__workers_after_run="keep", gpu_pool__node_count=4)
    after = run_program("dev", settings)["ray-cluster"].inputs["spec"]
    assert after["workerGroupSpecs"][0]["replicas"] == 4
    assert after["headGroupSpec"] == before["headGroupSpec"]
    assert after["workerGroupSpecs"][0]["template"] == before["workerGroupSpecs"][0]["template"]
    replaced_on = kept_run["ray-cluster"].options["replaceOnChanges"]
    assert replaced_on == ["spec.headGroupSpec", "spec.rayVersion", "spec.workerGroupSpecs[*].template"]


def test_up_waits_for_the_head_and_not_for_gpus(dev_run: Run) -> None:
    annotations = dev_run["ray-cluster"].inputs["metadata"]["annotations"]
    assert annotations["pulumi.com/waitFor"] == "condition=HeadPodReady"
    assert dev_run["ray-cluster"].options["customTimeouts"]["create"] == "2400s"


def test_a_late_operator_is_waited_for_and_not_for_ever() -> None:
    assert retry_without_operator([MISSING], ray_cluster="rlstack-dev", is_on=True)
    assert retry_without_operator([MISSING] * (MISSING_KIND_ATTEMPTS - 1), ray_cluster="rlstack-dev", is_on=True)
    with pytest.raises(RlstackError, match="after 10 attempts"):
        retry_without_operator([MISSING] * MISSING_KIND_ATTEMPTS, ray_cluster="rlstack-dev", is_on=True)


def test_an_operator_that_is_off_is_named_with_the_key_that_turns_it_on() -> None:
    with pytest.raises(RlstackError, match=r"rlstack-dev .* Set cluster.ray_operator to true"):
        retry_without_operator([MISSING], ray_cluster="rlstack-dev", is_on=False)


def test_other_failures_are_left_to_the_engine() -> None:
    assert not retry_without_operator(["timed out waiting for HeadPodReady", MISSING], ray_cluster="r", is_on=False)
    assert not retry_without_operator([], ray_cluster="r", is_on=False)
