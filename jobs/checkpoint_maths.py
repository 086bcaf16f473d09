"""How large a checkpoint is, how long Lustre takes for it, and how often to save under preemption.

Pure arithmetic. The times on Lustre are the tier's promise over its whole capacity, so the best that can happen; what a
run has measured replaces them.

Sources: 14 bytes a parameter is Megatron's distributed optimizer with bf16 weights (MLPerf Storage v2 has 912 GB for a
70 B model); Managed Lustre's tiers are MB/s per TiB of capacity; the period is Young's (1974; refined by Daly, 2006).
"""

import math
from dataclasses import dataclass

BYTES_PER_PARAMETER = 14
"""Weights in bf16 (2), their fp32 copy and two Adam moments in fp32 (12)."""

GIB_PER_TIB = 1024
BYTES_PER_MB = 10**6


def checkpoint_bytes(parameters: float) -> int:
    """Bytes of one full checkpoint: weights, master weights and both moments."""
    return round(parameters * BYTES_PER_PARAMETER)


def peak_bytes(parameters: float, *, keep_top_k: int) -> int:
    """Bytes when a save is under way: those kept and the one being written."""
    return checkpoint_bytes(parameters) * (keep_top_k + 1)


def lustre_bytes_per_s(capacity_gib: int, throughput_mbps_per_tib: int) -> float:
    """Write throughput of an instance, bytes per second.

    Args:
        capacity_gib: its capacity.
        throughput_mbps_per_tib: its tier, MB/s per TiB.
    """
    return capacity_gib / GIB_PER_TIB * throughput_mbps_per_tib * BYTES_PER_MB


def save_seconds(size_bytes: float, *, capacity_gib: int, throughput_mbps_per_tib: int) -> float:
    """Seconds to write so many bytes to an instance, at best."""
    return size_bytes / lustre_bytes_per_s(capacity_gib, throughput_mbps_per_tib)


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """What a save costs and what a preemption does.

    Attributes:
        save_s: seconds in which a save holds training up.
        mean_time_between_s: mean seconds between losses of any node of the run.
        restart_s: seconds from a loss to training again, the lost work not counted.
    """

    save_s: float
    mean_time_between_s: float
    restart_s: float

    @property
    def best_period_s(self) -> float:
        """Seconds from save to save that waste least, by Young: sqrt(2 x save x mean time between)."""
        return math.sqrt(2 * self.save_s * self.mean_time_between_s)

    def waste(self, period_s: float) -> float:
        """Share of time lost to saving, to repeated work and to restarts, at most 1.

        Args:
            period_s: seconds from save to save.
        """
        saving = self.save_s / period_s
        repeated = period_s / (2 * self.mean_time_between_s)
        restarting = self.restart_s / self.mean_time_between_s
        return min(1.0, saving + repeated + restarting)

    def best_save_period(self, step_s: float) -> int:
        """Steps from save to save that waste least, at least one.

        Args:
            step_s: seconds of a step, saving not counted.
        """
        return max(1, round(self.best_period_s / step_s))
