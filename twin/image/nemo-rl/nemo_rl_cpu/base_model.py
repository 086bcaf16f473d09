"""Base models: small transformers that have seen a little addition, made once and kept in a model cache.

What a hub is for NeMo-RL, a table is here: a name stands for a shape and a short supervised training with a seed of its
own. The cache is $HF_HOME, so that every run and every restart of it starts from, and is held to, the same weights.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from autograd import value_and_grad
from safetensors.numpy import load_file, save

from nemo_rl_cpu.data import PROMPT_LENGTH, Tokens, answer_mask, draw_operands, encode_answers, encode_prompts
from nemo_rl_cpu.model import ModelShape, Weights, answer_logprobs, initial_weights
from nemo_rl_cpu.optimizer import Adam, AdamState, update


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """A shape and the supervised training that it has had."""

    shape: ModelShape
    steps: int
    lr: float = 3e-3
    batch_size: int = 128
    max_operand: int = 10
    seed: int = 1


BASE_MODELS: Mapping[str, BaseModel] = {
    "adder-100k": BaseModel(shape=ModelShape(layers=2, width=64, heads=4), steps=48),
    "adder-4k": BaseModel(shape=ModelShape(layers=1, width=16, heads=2), steps=100, lr=1e-2),
}


def pretrain(model: BaseModel) -> Weights:
    """Train on sums and their answers, token by token."""
    rng = np.random.default_rng(model.seed)

    def loss(weights: Weights, sequences: Tokens) -> Any:
        mask = answer_mask(sequences[:, PROMPT_LENGTH:])
        return -(answer_logprobs(weights, model.shape, sequences) * mask).sum() / mask.sum()

    weights = initial_weights(model.shape, rng)
    state = AdamState.zero(weights)
    for _ in range(model.steps):
        operands = draw_operands(rng, count=model.batch_size, max_operand=model.max_operand)
        sequences = np.concatenate([encode_prompts(operands), encode_answers(operands)], axis=1)
        _, gradient = value_and_grad(loss)(weights, sequences)
        weights, state = update(weights, gradient, state, Adam(lr=model.lr))
    return weights


def load_base_model(name: str, cache: Path) -> Weights:
    """Read a base model from the cache, or make it and put it there whole or not at all."""
    file = cache / name / "model.safetensors"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as partial:
            partial.write(save(pretrain(BASE_MODELS[name])))
            partial.flush()
            os.fsync(partial.fileno())
        Path(partial.name).replace(file)
    return load_file(file)
