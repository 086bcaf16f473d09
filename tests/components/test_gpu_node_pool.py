"""GPU nodes are bought in one way, tainted, close together, and gone when nobody needs them."""

from typing import Any

import pytest

from tests.golden import assert_golden
from tests.program import Inputs, Run, changed, run_program, stack_settings


def pool(**changes: Any) -> Inputs:
    return run_program("dev", changed(stack_settings("dev"), **changes))["gpus-pool"].inputs


def test_the_spot_pool_is_as_known(dev_run: Run) -> None:
    assert_golden("gpu_node_pool", dev_run["gpus-pool"].inputs)


def test_an_elastic_pool_starts_empty_and_returns_to_empty(run: Run) -> None:
    inputs = run["gpus-pool"].inputs
    assert inputs["initialNodeCount"] == 0
    assert inputs["autoscaling"]["minNodeCount"] == 0
    assert "nodeCount" not in inputs


def test_a_fixed_pool_has_a_count_and_no_autoscaling() -> None:
    inputs = pool(gpu_pool__scaling="fixed")
    assert inputs["nodeCount"] == 8
    assert not {"autoscaling", "initialNodeCount"} & inputs.keys()


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        ({"kind": "spot"}, {"spot": True, "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"}}),
        (
            {"kind": "reservation", "reservation": "mine"},
            {
                "reservationAffinity": {
                    "consumeReservationType": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": ["mine"],
                }
            },
        ),
        (
            {"kind": "flex_start", "max_run_duration_s": 7200},
            {
                "flexStart": True,
                "maxRunDuration": "7200s",
                "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
            },
        ),
    ],
)
def test_each_kind_of_capacity_sets_its_own_fields_only(capacity: Inputs, expected: Inputs) -> None:
    config = pool(gpu_pool__capacity=capacity)["nodeConfig"]
    fields = ("spot", "flexStart", "maxRunDuration", "reservationAffinity")
    assert {key: config[key] for key in fields if key in config} == expected


@pytest.mark.parametrize(("kind", "compact", "repaired"), [("spot", True, True), ("flex_start", False, False)])
def test_placement_and_repair_follow_from_the_kind(kind: str, compact: bool, repaired: bool) -> None:
    capacity = {"kind": kind, **({"max_run_duration_s": 7200} if kind == "flex_start" else {})}
    inputs = pool(gpu_pool__capacity=capacity)
    assert ("placementPolicy" in inputs) is compact
    assert inputs["management"]["autoRepair"] is repaired


def test_a_stockout_has_longer_than_google_s_default_to_pass(run: Run) -> None:
    assert run["gpus-pool"].options["customTimeouts"]["create"] == "120m"


def test_a_row_is_all_that_another_machine_takes() -> None:
    config = pool(gpu_pool__machine_type="a3-ultragpu-8g")["nodeConfig"]
    assert config["guestAccelerators"][0]["type"] == "nvidia-h200-141gb"
