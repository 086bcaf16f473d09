"""Rules about machines: what just passes, and what just fails."""

from typing import Any

import pytest

from tests.components.rules.verdicts import refused, warned


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
