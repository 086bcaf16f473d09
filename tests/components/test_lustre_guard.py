"""No change of config replaces or shrinks the Lustre instance unnoticed."""

from typing import Any

import pytest

from components.lustre_guard import FIXED, LustreGuardProvider, refusals
from components.lustre_tiers import LUSTRE_TIERS

# As the engine hands it over: numbers are floats.
RECORD: dict[str, Any] = {
    "project": "p",
    "location": "us-east1-b",
    "instance_id": "rlstack-dev",
    "network": "projects/p/global/networks/rlstack-dev",
    "filesystem": "lustrefs",
    "throughput_mbps_per_tib": 500.0,
    "legacy_port": False,
    "capacity_gib": 36000.0,
}


ADOPTED = {"project": "p", "location": "us-east1-b", "instance_id": "shared", "is_ours": False}


def test_the_stack_s_own_instance_does_not_give_way_to_an_adopted_one() -> None:
    (reason,) = refusals(RECORD, ADOPTED).values()

    assert "rlstack-dev would be deleted with all that lies on it" in reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (RECORD, {**ADOPTED, "instance_id": "rlstack-dev"}),
        (ADOPTED, {**ADOPTED, "instance_id": "another"}),
        (ADOPTED, RECORD),
    ],
)
def test_an_instance_that_stays_is_let_go_of_and_taken_up(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert refusals(old, new) == {}


def test_the_first_record_is_taken_as_it_is() -> None:
    assert refusals({}, RECORD) == {}


def test_the_same_values_as_integers_are_no_change() -> None:
    assert refusals(RECORD, {**RECORD, "throughput_mbps_per_tib": 500, "capacity_gib": 36000}) == {}


@pytest.mark.parametrize("key", FIXED)
def test_a_change_that_would_replace_the_instance_is_refused(key: str) -> None:
    assert set(refusals(RECORD, {**RECORD, key: "other"})) == {key}


@pytest.mark.parametrize(("capacity_gib", "keys"), [(54000, set()), (36000, set()), (18000, {"capacity_gib"})])
def test_an_instance_grows_and_never_shrinks(capacity_gib: int, keys: set[str]) -> None:
    assert set(refusals(RECORD, {**RECORD, "capacity_gib": capacity_gib})) == keys


def test_all_refusals_come_at_once_with_both_values_the_loss_and_the_remedy() -> None:
    news = {**RECORD, "throughput_mbps_per_tib": 1000, "capacity_gib": 9000}
    failures = {failure.property: failure.reason for failure in LustreGuardProvider().check(RECORD, news).failures}
    assert set(failures) == {"throughput_mbps_per_tib", "capacity_gib"}
    assert "from 500 to 1000" in failures["throughput_mbps_per_tib"]
    assert all("pulumi destroy" in reason for reason in failures.values())


def test_growth_is_a_change_of_the_record_and_never_a_replacement() -> None:
    diff = LustreGuardProvider().diff("rlstack-dev", RECORD, {**RECORD, "capacity_gib": 54000})
    assert diff.changes
    assert not diff.replaces
    assert not LustreGuardProvider().diff("rlstack-dev", RECORD, RECORD).changes


@pytest.mark.parametrize("tier_mbps", [tier for tier, row in LUSTRE_TIERS.items() if row.threshold < row.maximum])
def test_no_instance_grows_past_the_threshold_of_its_tier_and_one_beyond_it_grows_on(tier_mbps: int) -> None:
    tier = LUSTRE_TIERS[tier_mbps]
    beyond = (tier.threshold // tier.large_step + 1) * tier.large_step

    def grow(old_gib: int, new_gib: int) -> dict[str, str]:
        record = {**RECORD, "throughput_mbps_per_tib": float(tier_mbps)}
        return refusals({**record, "capacity_gib": float(old_gib)}, {**record, "capacity_gib": new_gib})

    assert grow(tier.minimum, tier.threshold) == {}
    assert (
        f"cannot grow past that, and Google would refuse. Write {tier.threshold} or less"
        in (grow(tier.threshold, beyond)["capacity_gib"])
    )
    assert grow(beyond, beyond + tier.large_step) == {}
