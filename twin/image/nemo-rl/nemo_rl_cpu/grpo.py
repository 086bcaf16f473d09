"""GRPO as NeMo-RL v0.4.0 computes it: advantages within a prompt's group, clipped ratio, k3 KL, mean over tokens.

Sources: `calculate_baseline_and_std_per_prompt`, `normalize_advantages_with_epsilon` and `ClippedPGLossFn` of NeMo-RL.
"""

from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import value_and_grad

from nemo_rl_cpu.data import PROMPT_LENGTH, Floats, Tokens, answer_mask
from nemo_rl_cpu.model import ModelShape, Weights, answer_logprobs
from nemo_rl_cpu.optimizer import Adam, AdamState, update

_STD_EPSILON = np.float32(1e-6)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Generated sequences and what their loss needs, one row each."""

    sequences: Tokens
    advantages: Floats
    policy_logprobs: Floats
    reference_logprobs: Floats

    @property
    def mask(self) -> Floats:
        """Answer tokens that the policy chose."""
        return answer_mask(self.sequences[:, PROMPT_LENGTH:])

    def rows(self, start: int, count: int) -> "Samples":
        """Take some of the rows."""
        return Samples(**{name: value[start : start + count] for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class LossTerms:
    """Clipping and KL penalty; the fields are named as NeMo-RL's keys."""

    ratio_clip_min: float
    ratio_clip_max: float
    reference_policy_kl_penalty: float


def group_advantages(rewards: Floats, *, leave_one_out: bool, normalize: bool) -> Floats:
    """Compare each reward with its group's.

    Args:
        rewards: shape (prompts, generations per prompt).
        leave_one_out: leave a reward out of its own baseline and deviation.
        normalize: divide by the deviation where there is one.
    """
    count = rewards.shape[1] - int(leave_one_out)
    own = rewards if leave_one_out else np.zeros_like(rewards)
    baseline = (rewards.sum(axis=1, keepdims=True) - own) / count
    mean_square = (np.square(rewards).sum(axis=1, keepdims=True) - np.square(own)) / count
    advantages = rewards - baseline
    if normalize and count > 1:
        variance = np.maximum(mean_square - np.square(baseline), 0) * np.float32(count / (count - 1))
        # Rounding leaves a little where all rewards are alike; dividing by it would blow the advantage up.
        alike = variance < _STD_EPSILON
        advantages = np.where(alike, advantages, advantages / (np.sqrt(variance) + _STD_EPSILON))
    return np.asarray(advantages, dtype=np.float32)


def token_loss_sum(weights: Weights, shape: ModelShape, samples: Samples, terms: LossTerms) -> Any:
    """Sum the clipped policy gradient loss and the KL penalty over the answers' tokens."""
    logprobs = answer_logprobs(weights, shape, samples.sequences)
    ratio = anp.exp(logprobs - samples.policy_logprobs)
    clipped = anp.clip(ratio, np.float32(1 - terms.ratio_clip_min), np.float32(1 + terms.ratio_clip_max))
    advantages = samples.advantages[:, None]
    policy_loss = anp.maximum(-advantages * ratio, -advantages * clipped)
    towards_reference = samples.reference_logprobs - logprobs
    kl = anp.exp(towards_reference) - towards_reference - 1
    return anp.sum((policy_loss + np.float32(terms.reference_policy_kl_penalty) * kl) * samples.mask)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What turns samples into new weights; batch sizes are in samples."""

    shape: ModelShape
    terms: LossTerms
    adam: Adam
    global_batch_size: int
    micro_batch_size: int

    def learn(self, weights: Weights, state: AdamState, samples: Samples) -> tuple[Weights, AdamState, float]:
        """Make one optimizer step per global batch, its gradient gathered over micro batches.

        Returns:
            New weights, new optimizer state, and the loss summed over the steps, as NeMo-RL reports it.
        """
        loss_and_gradient = value_and_grad(token_loss_sum)
        total_loss = 0.0
        for start in range(0, len(samples.sequences), self.global_batch_size):
            batch = samples.rows(start, self.global_batch_size)
            tokens = batch.mask.sum()
            gradient = {name: np.zeros_like(value) for name, value in weights.items()}
            for micro in range(0, self.global_batch_size, self.micro_batch_size):
                loss, part = loss_and_gradient(
                    weights, self.shape, batch.rows(micro, self.micro_batch_size), self.terms
                )
                gradient = {name: value + part[name] / tokens for name, value in gradient.items()}
                total_loss += float(loss / tokens)
            weights, state = update(weights, gradient, state, self.adam)
        return weights, state, total_loss
