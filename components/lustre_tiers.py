"""Managed Lustre as data: which sizes Google makes in each performance tier, and in which zones."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, kw_only=True)
class LustreTier:
    """Sizes of one performance tier, GiB.

    Attributes:
        minimum: smallest instance; sizes up to `threshold` are multiples of it.
        threshold: size above which sizes are multiples of `large_step`.
        large_step: see there; `maximum` is a multiple of it too.
        maximum: largest instance.
        older_maximum: largest instance by older pages and by the provider's documentation.
    """

    minimum: int
    threshold: int
    large_step: int
    maximum: int
    older_maximum: int

    def step(self, capacity_gib: int) -> int:
        """What a size near this one is a multiple of."""
        return self.minimum if capacity_gib <= self.threshold else self.large_step

    def allows(self, capacity_gib: int) -> bool:
        """Whether Google makes an instance of this size."""
        return self.minimum <= capacity_gib <= self.maximum and capacity_gib % self.step(capacity_gib) == 0

    def nearest(self, capacity_gib: int) -> tuple[int, int]:
        """The valid sizes below and above an invalid one; twice the same at either end."""
        if capacity_gib >= self.maximum:
            return self.maximum, self.maximum
        step = self.step(capacity_gib)
        smallest = self.minimum if step == self.minimum else self.threshold
        below, above = capacity_gib // step * step, -(-capacity_gib // step) * step
        return max(below, smallest), max(above, smallest)


# Source: Managed Lustre's pages on performance tiers and on growing an instance, read on 2026-11-30. Key: MB/s per TiB.
LUSTRE_TIERS: Mapping[int, LustreTier] = {
    1000: LustreTier(minimum=9_000, threshold=1_530_000, large_step=72_000, maximum=10_008_000, older_maximum=954_000),
    500: LustreTier(
        minimum=18_000, threshold=3_060_000, large_step=144_000, maximum=20_016_000, older_maximum=1_908_000
    ),
    250: LustreTier(
        minimum=36_000, threshold=6_120_000, large_step=288_000, maximum=40_032_000, older_maximum=3_816_000
    ),
    125: LustreTier(
        minimum=72_000, threshold=12_240_000, large_step=72_000, maximum=12_240_000, older_maximum=7_632_000
    ),
}

# Source: Managed Lustre's page on locations, of which not every row could be read; of the United States these come
# from the page's text and from Google's own codelab. A zone that is missing here may well be offered.
LUSTRE_ZONES = frozenset(
    f"{region}-{letter}"
    for region, letters in {
        "africa-south1": "abc",
        "asia-east1": "ac",
        "asia-east2": "ac",
        "asia-northeast1": "bc",
        "asia-northeast2": "ac",
        "asia-northeast3": "abc",
        "asia-south1": "abc",
        "asia-south2": "abc",
        "asia-southeast1": "abc",
        "asia-southeast2": "abc",
        "australia-southeast1": "abc",
        "australia-southeast2": "abc",
        "europe-central2": "ac",
        "europe-west1": "bcd",
        "europe-west2": "abc",
        "europe-west3": "abc",
        "europe-west4": "abc",
        "europe-west9": "ab",
        "me-central2": "ac",
        "me-west1": "bc",
        "northamerica-northeast1": "ab",
        "southamerica-east1": "ab",
        "us-central1": "abcf",
        "us-east1": "b",
    }.items()
    for letter in letters
)
LUSTRE_ZONES_READ_ON = date(2026, 11, 30)
