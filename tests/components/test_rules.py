"""Each rule: what just passes, and what just fails."""

from typing import Any

import pytest

from components.config import parse_config
from components.lustre_tiers import LUSTRE_TIERS
from jobs.errors import ConfigError
from jobs.problems import Severity
from tests.program import Inputs, changed, stack_settings

SETTINGS = stack_settings("dev")
EXISTING_NETWORK = {
    "source": "existing",
    "network_name": "shared",
    "subnet_name": "gpus",
    "pods_range_name": "pods",
    "services_range_name": "services",
}
EXISTING_CLUSTER = {
    "source": "existing",
    "cluster_name": "shared",
    "system_pool_name": "system",
    "node_service_account": "nodes@my-project-id.iam.gserviceaccount.com",
}


def problem_keys(stack: str, settings: Inputs) -> set[str]:
    """Return the keys that a config is refused for."""
    try:
        parse_config(stack, settings)
    except ConfigError as error:
        return {problem.key for problem in error.problems}
    return set()


def refused(**changes: Any) -> set[str]:
    """Return the keys that a changed config is refused for."""
    return problem_keys("dev", changed(SETTINGS, **changes))


def warned(**changes: Any) -> set[str]:
    """Return the keys that a changed config is warned about."""
    findings = parse_config("dev", changed(SETTINGS, **changes)).warnings()
    assert all(finding.severity is Severity.WARNING for finding in findings)
    return {finding.key for finding in findings}


@pytest.mark.parametrize("stack", ["d", "dev", "us-east1", "a" * 16])
def test_stack_names_that_fit_every_service(stack: str) -> None:
    assert problem_keys(stack, SETTINGS) == set()


@pytest.mark.parametrize("stack", ["a" * 17, "Dev", "dev_1", "1dev", "dev-", "acme.dev"])
def test_stack_names_that_some_service_would_refuse(stack: str) -> None:
    assert problem_keys(stack, SETTINGS) == {"stack"}


def test_a_long_stack_name_is_told_by_which_names_it_breaks() -> None:
    with pytest.raises(ConfigError, match="node service account would be called rlstack-aaaaaaaaaaaaaaaaa-nodes, 31"):
        parse_config("a" * 17, SETTINGS)


@pytest.mark.parametrize(
    ("region", "zone", "keys"),
    [
        ("us-east1", "us-east1-b", set()),
        ("us-east1", "us-east4-b", {"project.zone"}),
        ("us-east1", "us-east1", {"project.zone"}),
        ("us-east1", "us-east1-b-1", {"project.zone"}),
        ("us-east", "us-east1-b", {"project.zone"}),
    ],
)
def test_the_zone_lies_in_the_region(region: str, zone: str, keys: set[str]) -> None:
    assert refused(project__region=region, project__zone=zone) == keys


def test_a_zone_that_is_not_known_to_offer_the_machine_is_warned_about() -> None:
    assert "project.zone" not in warned()
    assert "project.zone" in warned(project__zone="us-east1-c")
    assert "project.zone" in warned(gpu_pool__machine_type="a3-ultragpu-8g")


@pytest.mark.parametrize(
    ("key", "just_beside", "just_inside"),
    [
        ("network__subnet_cidr", "10.8.0.0/18", "10.7.192.0/18"),  # pods: 10.4.0.0/14
        ("network__services_cidr", "10.0.32.0/20", "10.64.0.0/20"),  # Google's services: 10.64.0.0/22
        ("network__pods_cidr", "10.4.0.0/14", "10.0.0.0/14"),  # services: 10.0.32.0/20
        ("private_service_access__range_start", "10.8.0.0", "10.7.252.0"),
        ("private_service_access__range_start", "192.168.64.0", "192.168.60.0"),  # subnet: 192.168.0.0/18
    ],
)
def test_address_ranges_do_not_overlap(key: str, just_beside: str, just_inside: str) -> None:
    assert refused(**{key: just_beside}) == set()
    assert len(refused(**{key: just_inside})) == 1


@pytest.mark.parametrize(("prefix", "keys"), [(24, set()), (25, {"private_service_access.prefix_length"})])
def test_lustre_gets_a_range_of_256_addresses_or_more(prefix: int, keys: set[str]) -> None:
    assert refused(private_service_access__prefix_length=prefix) == keys


def test_the_peering_of_a_shared_network_is_not_removed() -> None:
    policy = {"private_service_access__deletion_policy": "REMOVE_PEERING"}
    assert refused(**policy) == set()
    assert refused(network=EXISTING_NETWORK, **policy) == {"private_service_access.deletion_policy"}
    assert refused(network=EXISTING_NETWORK, private_service_access__deletion_policy="ABANDON") == set()


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("cluster", EXISTING_CLUSTER),
        ("private_service_access", {"source": "existing"}),
        ("lustre", {"source": "existing", "instance_id": "shared"}),
    ],
)
def test_what_exists_lies_on_an_existing_network(section: str, value: dict[str, Any]) -> None:
    lustre_needs = {"private_service_access": {"source": "existing"}} if section == "lustre" else {}
    assert f"{section}.source" in refused(**{section: value}, **lustre_needs)
    assert refused(**{section: value, "network": EXISTING_NETWORK}, **lustre_needs) == set()


def test_a_network_with_an_instance_takes_no_second_connection() -> None:
    lustre = {"source": "existing", "instance_id": "shared"}
    assert refused(network=EXISTING_NETWORK, lustre=lustre) == {"private_service_access.source"}


@pytest.mark.parametrize(
    ("cidr", "keys"), [("0.0.0.0/1", set()), ("0.0.0.0/0", {"cluster.authorized_networks.0.cidr"})]
)
def test_the_control_plane_is_not_opened_to_the_internet(cidr: str, keys: set[str]) -> None:
    assert refused(cluster__authorized_networks=[{"name": "n", "cidr": cidr}]) == keys


@pytest.mark.parametrize("throughput", LUSTRE_TIERS)
def test_lustre_s_capacity_lies_on_the_step_of_its_tier(throughput: int) -> None:
    tier = LUSTRE_TIERS[throughput]
    good = [tier.minimum, 2 * tier.minimum, tier.threshold, tier.maximum, tier.older_maximum]
    bad = [tier.minimum - 1, tier.minimum + 1, tier.threshold + 1, tier.maximum + tier.large_step]
    if tier.threshold < tier.maximum:
        first_large = (tier.threshold // tier.large_step + 1) * tier.large_step
        good.append(first_large)
        bad += [first_large - tier.minimum, first_large + tier.minimum]
    for capacity in good:
        assert refused(lustre__throughput_mbps_per_tib=throughput, lustre__capacity_gib=capacity) == set(), capacity
    for capacity in bad:
        keys = refused(lustre__throughput_mbps_per_tib=throughput, lustre__capacity_gib=capacity)
        assert keys == {"lustre.capacity_gib"}, capacity


def test_the_nearest_sizes_are_offered_and_they_pass() -> None:
    with pytest.raises(ConfigError, match="Write 36000 or 54000"):
        parse_config("dev", changed(SETTINGS, lustre__capacity_gib=36001))
    for tier in LUSTRE_TIERS.values():
        for capacity in (
            1,
            tier.minimum + 1,
            tier.threshold - 1,
            tier.threshold + 1,
            tier.maximum - 1,
            tier.maximum + 1,
        ):
            below, above = tier.nearest(capacity)
            assert tier.allows(below), capacity
            assert tier.allows(above), capacity
            assert below <= capacity or capacity < tier.minimum
            assert above >= capacity or capacity > tier.maximum


def test_capacities_above_the_older_maxima_are_warned_about() -> None:
    tier = LUSTRE_TIERS[500]
    assert "lustre.capacity_gib" not in warned(lustre__capacity_gib=tier.older_maximum)
    assert "lustre.capacity_gib" in warned(lustre__capacity_gib=tier.older_maximum + tier.minimum)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("lustrefs", set()),
        ("a", set()),
        ("lustrefs1", {"lustre.filesystem"}),
        ("lustre-1", {"lustre.filesystem"}),
        ("", {"lustre.filesystem"}),
    ],
)
def test_the_file_system_s_name_is_one_to_eight_letters_or_digits(name: str, keys: set[str]) -> None:
    assert refused(lustre__filesystem=name) == keys


@pytest.mark.parametrize("key", ["gpu_pool__machine_type", "cluster__system_pool"])
def test_a_machine_type_without_a_row_is_refused(key: str) -> None:
    value = "a9-gpu" if key == "gpu_pool__machine_type" else {"machine_type": "a4-highgpu-8g"}
    assert len(refused(**{key: value})) == 1


def test_flex_start_nodes_have_no_fixed_number() -> None:
    capacity = {"kind": "flex_start", "max_run_duration_s": 604_800}
    assert refused(gpu_pool__capacity=capacity) == set()
    assert refused(gpu_pool__capacity=capacity, gpu_pool__scaling="fixed") == {"gpu_pool.scaling"}
    longer = {**capacity, "max_run_duration_s": 604_801}
    assert refused(gpu_pool__capacity=longer) == {"gpu_pool.capacity.max_run_duration_s"}


@pytest.mark.parametrize(
    ("capacity", "key"),
    [
        ({"kind": "spot", "reservation": "mine"}, "gpu_pool.capacity.reservation"),
        ({"kind": "spot", "max_run_duration_s": 3600}, "gpu_pool.capacity.max_run_duration_s"),
        ({"kind": "reservation"}, "gpu_pool.capacity.reservation"),
        ({"kind": "flex_start"}, "gpu_pool.capacity.max_run_duration_s"),
    ],
)
def test_each_kind_of_capacity_has_its_own_keys_and_no_other_s(capacity: dict[str, Any], key: str) -> None:
    assert refused(gpu_pool__capacity=capacity) == {key}


@pytest.mark.parametrize(
    ("path", "pod", "keys"),
    [
        ("ray__head", {"cpu": 14, "memory_gib": 114}, set()),
        ("ray__head", {"cpu": 15, "memory_gib": 115}, {"ray.head.cpu", "ray.head.memory_gib"}),
        ("ray__worker", {"cpu": 206, "memory_gib": 3330}, set()),
        ("ray__worker", {"cpu": 207, "memory_gib": 3331}, {"ray.worker.cpu", "ray.worker.memory_gib"}),
        ("ray__worker", {"cpu": 1, "memory_gib": 8, "shm_gib": 7}, set()),
        ("ray__worker", {"cpu": 1, "memory_gib": 8, "shm_gib": 8}, {"ray.worker.shm_gib"}),
        ("ray__head", {"cpu": 1, "memory_gib": 1}, {"ray.head.shm_gib"}),
        ("ray__head", {"cpu": 0, "memory_gib": 8}, {"ray.head.cpu"}),
    ],
)
def test_pods_fit_their_nodes_and_shared_memory_fits_the_pod(path: str, pod: dict[str, int], keys: set[str]) -> None:
    assert refused(**{path: pod}) == keys


@pytest.mark.parametrize(("version", "keys"), [("2.46.0", set()), ("2.54.0", {"ray.ray_version"})])
def test_a_stated_ray_version_is_that_of_the_image(version: str, keys: set[str]) -> None:
    assert refused(ray__ray_version=version) == keys


def test_an_unknown_image_needs_a_release_entry() -> None:
    assert refused(ray__image="example.com/own/trainer:7") == {"ray.image"}
    release = {"tag": "7", "ray_version": "2.46.0", "entry_script": "run.py", "config_file": "grpo.yaml"}
    assert refused(ray__image="example.com/own/trainer:7", ray__release=release) == set()


@pytest.mark.parametrize(("nodes", "trains"), [(2, True), (3, False), (8, True)])
def test_the_recipe_is_checked_on_the_pool_s_nodes(nodes: int, trains: bool) -> None:
    assert (refused(gpu_pool__node_count=nodes) == set()) is trains
