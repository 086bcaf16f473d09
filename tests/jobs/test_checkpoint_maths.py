"""Checkpoint bytes, save seconds and the Young period, against figures computed by hand or published."""

import pytest

from jobs.checkpoint_maths import (
    Preemption,
    checkpoint_bytes,
    lustre_bytes_per_s,
    peak_bytes,
    save_seconds,
)

QWEN_72B = 72.7e9


def test_72b_model_takes_a_terabyte_and_three_at_its_peak() -> None:
    assert checkpoint_bytes(QWEN_72B) == pytest.approx(1.02e12, rel=0.01)
    assert peak_bytes(QWEN_72B, keep_top_k=2) == pytest.approx(3.1e12, rel=0.02)


@pytest.mark.parametrize(
    ("capacity_gib", "tier", "gb_per_s", "seconds"),
    [
        (9000, 1000, 8.8, 116),
        (18000, 500, 8.8, 116),
        (72000, 125, 8.8, 116),
        (18000, 1000, 17.6, 58),
        (36000, 1000, 35.2, 29),
    ],
)
def test_tier_and_capacity_make_the_save_time(capacity_gib: int, tier: int, gb_per_s: float, seconds: float) -> None:
    assert lustre_bytes_per_s(capacity_gib, tier) / 1e9 == pytest.approx(gb_per_s, abs=0.05)
    took = save_seconds(checkpoint_bytes(QWEN_72B), capacity_gib=capacity_gib, throughput_mbps_per_tib=tier)
    assert took == pytest.approx(seconds, abs=0.6)


@pytest.mark.parametrize(
    ("save_s", "hours", "period_min", "waste_percent"),
    [
        (5, 1, 3.2, 13.6),
        (5, 24, 15.5, 1.4),
        (30, 2, 11.0, 13.3),
        (30, 8, 21.9, 5.6),
        (116, 1, 15.2, 33.7),
        (116, 4, 30.5, 14.8),
        (116, 24, 74.6, 5.5),
    ],
)
def test_youngs_period_and_waste(save_s: float, hours: float, period_min: float, waste_percent: float) -> None:
    preemption = Preemption(save_s=save_s, mean_time_between_s=hours * 3600, restart_s=300)
    assert preemption.best_period_s / 60 == pytest.approx(period_min, abs=0.06)
    assert preemption.waste(preemption.best_period_s) * 100 == pytest.approx(waste_percent, abs=0.06)


@pytest.mark.parametrize("factor", [0.25, 0.5, 2, 4])
def test_any_other_period_wastes_more(factor: float) -> None:
    preemption = Preemption(save_s=116, mean_time_between_s=4 * 3600, restart_s=300)
    best = preemption.best_period_s
    assert preemption.waste(best * factor) > preemption.waste(best)


def test_save_period_counts_whole_steps_and_never_none() -> None:
    preemption = Preemption(save_s=116, mean_time_between_s=4 * 3600, restart_s=300)
    assert preemption.best_save_period(200) == 9
    assert preemption.best_save_period(1e6) == 1


def test_waste_is_at_most_everything() -> None:
    assert Preemption(save_s=600, mean_time_between_s=60, restart_s=300).waste(600) == 1
