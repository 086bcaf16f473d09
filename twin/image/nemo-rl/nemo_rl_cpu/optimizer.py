"""Adam with the gradient clipped to a global norm, as pure functions over weights."""

from dataclasses import dataclass

import numpy as np

from nemo_rl_cpu.model import Weights


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam's settings."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    max_grad_norm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AdamState:
    """Adam's moments and the number of updates that they hold."""

    first: Weights
    second: Weights
    updates: int

    @classmethod
    def zero(cls, weights: Weights) -> "AdamState":
        """Begin with moments of zero."""
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        return cls(first=zeros, second=zeros, updates=0)


def update(weights: Weights, gradient: Weights, state: AdamState, adam: Adam) -> tuple[Weights, AdamState]:
    """Make one step against the gradient."""
    norm = np.sqrt(sum(float(np.sum(np.square(value, dtype=np.float64))) for value in gradient.values()))
    clip = np.float32(min(1.0, adam.max_grad_norm / (norm + 1e-6)))
    keep_first, keep_second = (np.float32(beta) for beta in adam.betas)
    updates = state.updates + 1
    rate = np.float32(adam.lr * np.sqrt(1 - adam.betas[1] ** updates) / (1 - adam.betas[0] ** updates))
    first, second, moved = {}, {}, {}
    for name, value in weights.items():
        slope = gradient[name] * clip
        first[name] = keep_first * state.first[name] + (1 - keep_first) * slope
        second[name] = keep_second * state.second[name] + (1 - keep_second) * slope * slope
        moved[name] = value - rate * first[name] / (np.sqrt(second[name]) + np.float32(adam.eps))
    return moved, AdamState(first=first, second=second, updates=updates)
