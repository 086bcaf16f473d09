"""Rules about lustre: what just passes, and what just fails."""

import pytest

from components.config import parse_config
from components.lustre_tiers import LUSTRE_TIERS
from jobs.errors import ConfigError
from tests.components.rules.verdicts import SETTINGS, refused, warned
from tests.program import changed


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
