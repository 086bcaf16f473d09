"""Every rule has a value that just passes and one that just fails, and says what follows and what to write instead."""

from typing import Any

import pytest

from components.rules import (
    RULES,
    Rule,
    addresses,
    adoption,
    checkpoints,
    fast_network,
    gke,
    images,
    lustre,
    machines,
    names,
    ray,
    training,
)
from components.rules.checkpoints import START_S
from components.rules.images import SHORTEST_HEAD_START_S
from jobs.problems import Severity
from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_NETWORK, SETTINGS, found_by
from tests.program import Inputs

ERROR, WARNING = Severity.ERROR, Severity.WARNING
REGISTRY = "us-east1-docker.pkg.dev/my-project-id/images/nemo-rl:v0.4.0"
FLEX_START = {"kind": "flex_start", "max_run_duration_s": 86_400}
EXISTING_LUSTRE = {"source": "existing", "instance_id": "shared"}
ON_EXISTING = {"network": EXISTING_NETWORK, "lustre": EXISTING_LUSTRE}

# rule, severity, what just passes, what just fails, the key, words of the message
CASES: list[tuple[Rule, Severity, Inputs, Inputs, str, str]] = [
    (
        names.names_fit,
        ERROR,
        {"stack": "a" * 16},
        {"stack": "a" * 17},
        "stack",
        "31 characters of at most 30. Use a stack name that is 1 characters shorter",
    ),
    (
        names.labels_fit,
        ERROR,
        {"project__labels": {"a" * 63: "b" * 63}},
        {"project__labels": {"a" * 64: "b"}},
        f"project.labels.{'a' * 64}",
        "63 at most",
    ),
    (
        names.namespace_is_a_name,
        ERROR,
        {"ray__namespace": "n" * 63},
        {"ray__namespace": "n" * 64},
        "ray.namespace",
        "63 at most",
    ),
    (
        machines.zone_in_region,
        ERROR,
        {"project__zone": "us-east1-b"},
        {"project__zone": "us-east4-b"},
        "project.zone",
        "nodes and Lustre could not share a subnet. Write a zone such as us-east1-b",
    ),
    (
        machines.zone_offers_machine,
        WARNING,
        {"project__zone": "us-east4-b"},
        {"project__zone": "us-east4-c"},
        "project.zone",
        "was not among its zones on 2026-11-30",
    ),
    (
        lustre.zone_offers_lustre,
        WARNING,
        {"project__zone": "us-central1-f"},
        {"project__zone": "us-central1-d"},
        "project.zone",
        "not among the zones of Managed Lustre that could be read on 2026-11-30. Check: python -m jobs preflight",
    ),
    (
        addresses.addresses_disjoint,
        ERROR,
        {"network__subnet_cidr": "10.8.0.0/18"},
        {"network__subnet_cidr": "10.7.192.0/18"},
        "network.subnet_cidr",
        "it overlaps network.pods_cidr=10.4.0.0/14, and one of the two would be unreachable",
    ),
    (
        addresses.range_holds_lustre,
        ERROR,
        {"private_service_access__prefix_length": 24},
        {"private_service_access__prefix_length": 25},
        "private_service_access.prefix_length",
        "Lustre needs 256 addresses or more and a /25 has 128. Write 24",
    ),
    (
        addresses.ranges_hold_nodes,
        ERROR,
        {"gpu_pool__node_count": 11, "network__subnet_cidr": "192.168.0.0/28", "network__pods_cidr": "10.4.0.0/20"},
        {"gpu_pool__node_count": 12, "network__subnet_cidr": "192.168.0.0/28", "network__pods_cidr": "10.4.0.0/20"},
        "network.subnet_cidr",
        "it has room for 12 nodes, and the stack has up to 13. Write a larger range",
    ),
    (
        adoption.peering_is_ours,
        ERROR,
        {"network": EXISTING_NETWORK, "private_service_access__deletion_policy": "ABANDON"},
        {"network": EXISTING_NETWORK, "private_service_access__deletion_policy": "REMOVE_PEERING"},
        "private_service_access.deletion_policy",
        "others may use its peering. Remove the key",
    ),
    (
        adoption.adopted_parts_share_a_network,
        ERROR,
        {**ON_EXISTING},
        {"lustre": EXISTING_LUSTRE},
        "lustre.source",
        "a network that the stack makes cannot reach it. Set network.source to existing",
    ),
    (
        adoption.one_connection,
        ERROR,
        {**ON_EXISTING, "private_service_access": EXISTING_ACCESS},
        {**ON_EXISTING, "private_service_access": {"source": "create"}},
        "private_service_access.source",
        "has its connection, and takes no second one. Write existing",
    ),
    (
        lustre.capacity_on_tier,
        ERROR,
        {"lustre__capacity_gib": 36000},
        {"lustre__capacity_gib": 36001},
        "lustre.capacity_gib",
        "goes from 18000 to 20016000 GiB in multiples of 18000, above 3060000 of 144000. Write 36000 or 54000",
    ),
    (
        lustre.filesystem_name,
        ERROR,
        {"lustre__filesystem": "lustrefs"},
        {"lustre__filesystem": "lustrefs1"},
        "lustre.filesystem",
        "one to eight lower-case letters or digits",
    ),
    (
        addresses.control_plane_is_closed,
        ERROR,
        {"cluster__authorized_networks": [{"name": "n", "cidr": "0.0.0.0/1"}]},
        {"cluster__authorized_networks": [{"name": "n", "cidr": "0.0.0.0/0"}]},
        "cluster.authorized_networks.0.cidr",
        "opens the control plane's address to the whole internet. Name your own addresses",
    ),
    (
        gke.gke_version_suffices,
        ERROR,
        {"cluster__min_version": "1.33.2-gke.4780000"},
        {"cluster__min_version": "1.33.2-gke.4779999"},
        "cluster.min_version",
        "Lustre's port 988 needs GKE 1.33.2-gke.4780000 or newer. Write 1.33 or newer, or set lustre.legacy_port",
    ),
    (
        machines.machine_types_known,
        ERROR,
        {"gpu_pool__machine_type": "a3-ultragpu-8g"},
        {"gpu_pool__machine_type": "a3-megagpu-8g"},
        "gpu_pool.machine_type",
        "no row in components/machines.py for this use. Use one of a4-highgpu-8g",
    ),
    (
        machines.reservation_is_named,
        ERROR,
        {"gpu_pool__capacity": {"kind": "reservation", "reservation": "projects/other/reservations/a4"}},
        {"gpu_pool__capacity": {"kind": "reservation", "reservation": "other/a4"}},
        "gpu_pool.capacity.reservation",
        "no reservation's name, and GKE takes exactly one. Write NAME, or projects/PROJECT/reservations/NAME",
    ),
    (
        machines.flex_start_is_elastic,
        ERROR,
        {"gpu_pool__capacity": FLEX_START, "gpu_pool__scaling": "elastic"},
        {"gpu_pool__capacity": FLEX_START, "gpu_pool__scaling": "fixed"},
        "gpu_pool.scaling",
        "GKE refuses a fixed number. Write elastic",
    ),
    (
        machines.fixed_pool_has_its_nodes,
        WARNING,
        {"gpu_pool__capacity": {"kind": "reservation", "reservation": "a4"}, "gpu_pool__scaling": "fixed"},
        {"gpu_pool__scaling": "fixed"},
        "gpu_pool.scaling",
        "`up` waits for 8 Spot nodes and fails if Google lacks one of them",
    ),
    (
        fast_network.fast_network_addresses_free,
        ERROR,
        {"gpu_pool__gvnic_cidr": "192.168.64.0/24"},
        {"gpu_pool__gvnic_cidr": "192.168.63.0/24"},
        "gpu_pool.gvnic_cidr",
        "it overlaps network.subnet_cidr=192.168.0.0/18",
    ),
    (
        fast_network.fast_network_addresses_enough,
        ERROR,
        {"gpu_pool__gvnic_cidr": "192.168.64.0/28"},
        {"gpu_pool__gvnic_cidr": "192.168.64.0/29"},
        "gpu_pool.gvnic_cidr",
        "Write a /28 or larger",
    ),
    (
        machines.pods_fit_machines,
        ERROR,
        {"ray__head": {"cpu": 14, "memory_gib": 114}},
        {"ray__head": {"cpu": 15, "memory_gib": 114}},
        "ray.head.cpu",
        "a n2d-highmem-16 leaves 14 CPUs to this pod, which would stay pending for ever. Ask for at most 14",
    ),
    (
        ray.ray_version_follows_image,
        ERROR,
        {"ray__ray_version": "2.46.0"},
        {"ray__ray_version": "2.54.0"},
        "ray.ray_version",
        "holds Ray 2.46.0, and KubeRay chooses its probes by this number: pods would never become ready",
    ),
    (
        images.streaming_has_a_mirror,
        WARNING,
        {"ray__image_streaming": True, "ray__image": REGISTRY},
        {"ray__image_streaming": True},
        "ray.image_streaming",
        "does not lie in Artifact Registry, so it would be pulled whole by every node. Copy the image there",
    ),
    (
        images.mirror_is_near,
        WARNING,
        {"ray__image": REGISTRY.replace("us-east1", "us")},
        {"ray__image": REGISTRY.replace("us-east1", "us-east4")},
        "ray.image",
        "lies in us-east4, the nodes in us-east1: each pull crosses regions, and nothing is streamed. Copy the image",
    ),
    (
        images.mirror_is_readable,
        WARNING,
        {"ray__image": REGISTRY},
        {"ray__image": REGISTRY.replace("my-project-id", "shared-images")},
        "ray.image",
        "belongs to shared-images, where the nodes' service account has no role yet. Grant it",
    ),
    (
        images.head_outwaits_the_pull,
        WARNING,
        {"ray__head_start_timeout_s": SHORTEST_HEAD_START_S},
        {"ray__head_start_timeout_s": SHORTEST_HEAD_START_S - 1},
        "ray.head_start_timeout_s",
        "tens of GB can take longer, and `up` would fail while the pull goes on. Write 1800 or more",
    ),
    (
        training.recipe_can_train,
        ERROR,
        {"gpu_pool__node_count": 2, "job__grpo__val_period": 2},
        {"gpu_pool__node_count": 3, "job__grpo__val_period": 2},
        "job.grpo.parallelism.tensor",
        "one copy of the model takes 16 GPUs (tensor 4 x pipeline 4 x context 1), and the 24 that train are no",
    ),
    (
        checkpoints.checkpoints_fit_lustre,
        ERROR,
        {"job__grpo__model_name": "own/model-803B"},  # (14 x 3 + 4) bytes x 803e9 = 36.9 TB of 38.7 TB
        {"job__grpo__model_name": "own/model-841B"},  # 38.69 TB
        "lustre.capacity_gib",
        "2 kept checkpoints of 11.8 TB, one being written and the model twice take 38.7 TB of 38.7 TB: a save would",
    ),
    (
        checkpoints.saves_are_short,
        WARNING,
        {"job__grpo__model_name": "own/model-75B"},  # 1.05 TB at 17.58 GB/s
        {"job__grpo__model_name": "own/model-76B"},
        "job.grpo.save_period",
        "a checkpoint of 1.06 TB takes 61 s at best on 36000 GiB of the 500 MB/s per TiB tier, longer than 60 s, and "
        "all GPUs wait: 10 saves, 10 minutes of this run. Save less often",
    ),
    (
        checkpoints.last_save_precedes_node_end,
        ERROR,
        {"gpu_pool__capacity": FLEX_START, "job__grpo__checkpoint_must_save_by": "00:23:00:00"},
        {"gpu_pool__capacity": FLEX_START, "job__grpo__checkpoint_must_save_by": "01:00:00:00"},
        "job.grpo.checkpoint_must_save_by",
        "go 86400 s after their start, 0 s before the last save is due, which would then never be made",
    ),
]
# Its machine type without RDMA has no row; test_fast_network.py gives it one.
ELSEWHERE = {fast_network.fast_network_has_nics}


def test_no_rule_lacks_a_case() -> None:
    assert {case[0] for case in CASES} | ELSEWHERE == set(RULES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_a_rule_lets_pass_what_just_fits_and_explains_what_just_does_not(case: tuple[Any, ...]) -> None:
    rule, severity, passes, fails, key, words = case
    assert [found for found in found_by(rule, **passes) if found.severity is severity] == []
    findings = {found.key: found for found in found_by(rule, **fails) if found.severity is severity}
    assert set(findings) == {key}
    assert words in f"{findings[key].reason}. {findings[key].remedy}"


@pytest.mark.parametrize("version", ["1.33", "1.33.2", "1.34", "1.35.2-gke.1842000"])
def test_a_version_is_compared_as_far_as_it_is_written(version: str) -> None:
    assert found_by(gke.gke_version_suffices, cluster__min_version=version) == []


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        ("1.30", ["the Lustre CSI driver", "a4-highgpu-8g"]),
        ("1.31.5-gke.1298999", ["the Lustre CSI driver", "a4-highgpu-8g"]),
        ("1.31.7-gke.1265000", []),
        ("1.32.1-gke.1672999", ["the Lustre CSI driver"]),
        ("1.32.1-gke.1673000", []),
        ("1.30.0-gke.1746999", ["the Lustre CSI driver", "the RayOperator add-on", "a4-highgpu-8g"]),
    ],
)
def test_each_feature_has_an_oldest_version_of_its_own(version: str, lacks: list[str]) -> None:
    found = found_by(gke.gke_version_suffices, cluster__min_version=version, lustre__legacy_port=True)
    assert [problem.reason.partition(" needs GKE")[0] for problem in found] == lacks


def test_space_for_two_more_checkpoints_is_kept_free() -> None:
    def warned(model_name: str) -> list[str]:
        return [
            found.reason for found in found_by(checkpoints.checkpoints_fit_lustre, job__grpo__model_name=model_name)
        ]

    # Three checkpoints, the model twice and two more checkpoints: 74 bytes a parameter, of 38.65 TB.
    assert warned("own/model-522B") == []
    (reason,) = warned("own/model-523B")
    assert "leaves less than 2 checkpoints: the alert on free space would stay on" in reason


def test_a_ranking_metric_keeps_the_newest_checkpoint_as_well() -> None:
    changes: Inputs = {"job__grpo__model_name": "own/model-700B"}
    assert "2 kept" in found_by(checkpoints.checkpoints_fit_lustre, **changes)[0].reason
    ranked = found_by(checkpoints.checkpoints_fit_lustre, **changes, job__grpo__metric_name="val:accuracy")
    assert "3 kept checkpoints of 9.8 TB" in ranked[0].reason


@pytest.mark.parametrize("rule", [checkpoints.checkpoints_fit_lustre, checkpoints.saves_are_short])
@pytest.mark.parametrize("changes", [{"job__grpo__model_name": "own/unsized"}, {"lustre": EXISTING_LUSTRE}])
def test_what_cannot_be_known_is_passed_over(rule: Rule, changes: Inputs) -> None:
    huge = {"job__grpo__model_name": "own/model-9T", **changes}
    assert found_by(rule, job__grpo__model_name="own/model-9T") != []
    assert found_by(rule, **huge) == []


def test_a_last_save_leaves_time_for_a_start() -> None:
    def found(written: str) -> list[Severity]:
        changes: Inputs = {"gpu_pool__capacity": FLEX_START, "job__grpo__checkpoint_must_save_by": written}
        return [problem.severity for problem in found_by(checkpoints.last_save_precedes_node_end, **changes)]

    assert START_S == 3600
    assert found("00:23:00:00") == []
    assert found("00:23:00:01") == [WARNING]
    assert found("01:00:00:00") == [ERROR]


def test_a_resource_takes_64_labels() -> None:
    labels = {f"label-{index}": "x" for index in range(64)}
    assert found_by(names.labels_fit, project__labels=labels) == []
    (found,) = found_by(names.labels_fit, project__labels={**labels, "one-more": "x"})
    assert (found.key, found.remedy) == ("project.labels", "Remove 1")


@pytest.mark.parametrize("label", [("Purpose", "x"), ("purpose", "X"), ("1st", "x"), ("goog-own", "x"), ("a", "x-")])
def test_labels_fit_google_and_kubernetes(label: tuple[str, str]) -> None:
    assert len(found_by(names.labels_fit, project__labels=dict([label]))) == 1


def test_pods_have_a_range_of_256_addresses_for_each_node() -> None:
    def room(pods_cidr: str) -> list[str]:
        return [found.key for found in found_by(addresses.ranges_hold_nodes, network__pods_cidr=pods_cidr)]

    assert SETTINGS["gpu_pool"]["node_count"] == 8
    assert room("10.4.0.0/20") == []  # 16 nodes; the stack has 9
    assert room("10.4.0.0/21") == ["network.pods_cidr"]
