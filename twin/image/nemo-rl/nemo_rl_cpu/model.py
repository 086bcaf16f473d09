"""The policy: a decoder-only transformer in numpy, differentiated by autograd. Weights are never changed in place."""

from dataclasses import dataclass
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import getval

from nemo_rl_cpu.data import ANSWER_LENGTH, END, PROMPT_LENGTH, SEQUENCE_LENGTH, VOCABULARY_SIZE, Floats, Tokens

Weights = dict[str, Floats]

_NORM_EPSILON = np.float32(1e-5)
_ONE_HOT = np.eye(VOCABULARY_SIZE, dtype=np.float32)
_CAUSAL = np.triu(np.full((SEQUENCE_LENGTH, SEQUENCE_LENGTH), -1e9, dtype=np.float32), k=1)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a transformer whose feed-forward layers are four times as wide as its stream."""

    layers: int
    width: int
    heads: int


def initial_weights(shape: ModelShape, rng: np.random.Generator) -> Weights:
    """Draw weights with the variance of one over the fan-in."""

    def matrix(rows: int, columns: int) -> Floats:
        values: Floats = (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        return values

    width = shape.width
    weights = {
        "embedding": matrix(VOCABULARY_SIZE, width),
        "position": matrix(SEQUENCE_LENGTH, width),
        "norm": np.ones(width, dtype=np.float32),
        "head": matrix(width, VOCABULARY_SIZE),
    }
    for layer in range(shape.layers):
        weights |= {
            f"{layer}.attention.norm": np.ones(width, dtype=np.float32),
            f"{layer}.attention.qkv": matrix(width, 3 * width),
            f"{layer}.attention.out": matrix(width, width),
            f"{layer}.feed_forward.norm": np.ones(width, dtype=np.float32),
            f"{layer}.feed_forward.in": matrix(width, 4 * width),
            f"{layer}.feed_forward.out": matrix(4 * width, width),
        }
    return weights


def _normalize(stream: Any, gain: Any) -> Any:
    return stream * gain / anp.sqrt(anp.mean(stream * stream, axis=-1, keepdims=True) + _NORM_EPSILON)


def _log_softmax(logits: Any) -> Any:
    shifted = logits - np.max(getval(logits), axis=-1, keepdims=True)
    return shifted - anp.log(anp.sum(anp.exp(shifted), axis=-1, keepdims=True))


def _attend(stream: Any, weights: Weights, layer: int, heads: int) -> Any:
    batch, length, width = stream.shape
    projected = anp.reshape(stream @ weights[f"{layer}.attention.qkv"], (batch, length, 3, heads, width // heads))
    query, key, value = anp.transpose(projected, (2, 0, 3, 1, 4))
    scale = np.float32((width // heads) ** -0.5)
    scores = query @ anp.swapaxes(key, 2, 3) * scale + _CAUSAL[:length, :length]
    mixed = anp.exp(_log_softmax(scores)) @ value
    return anp.reshape(anp.swapaxes(mixed, 1, 2), (batch, length, width)) @ weights[f"{layer}.attention.out"]


def next_token_logprobs(weights: Weights, shape: ModelShape, tokens: Tokens) -> Any:
    """Give the log probabilities of the token after each position, shape (batch, length, vocabulary)."""
    stream = _ONE_HOT[tokens] @ weights["embedding"] + weights["position"][: tokens.shape[1]]
    for layer in range(shape.layers):
        stream = stream + _attend(_normalize(stream, weights[f"{layer}.attention.norm"]), weights, layer, shape.heads)
        hidden = _normalize(stream, weights[f"{layer}.feed_forward.norm"]) @ weights[f"{layer}.feed_forward.in"]
        stream = stream + anp.maximum(hidden, np.float32(0)) @ weights[f"{layer}.feed_forward.out"]
    return _log_softmax(_normalize(stream, weights["norm"]) @ weights["head"])


def answer_logprobs(weights: Weights, shape: ModelShape, sequences: Tokens) -> Any:
    """Give the log probability of each answer token in its place, shape (batch, answer)."""
    logprobs = next_token_logprobs(weights, shape, sequences[:, :-1])[:, PROMPT_LENGTH - 1 :]
    return anp.sum(logprobs * _ONE_HOT[sequences[:, PROMPT_LENGTH:]], axis=-1)


def sample_answers(weights: Weights, shape: ModelShape, prompts: Tokens, rng: np.random.Generator) -> Tokens:
    """Append one sampled answer to each prompt, at temperature 1."""
    sequences = prompts
    ended = np.zeros(len(prompts), dtype=bool)
    for draws in rng.random((ANSWER_LENGTH, len(prompts))):
        probabilities = np.exp(next_token_logprobs(weights, shape, sequences)[:, -1].astype(np.float64))
        reached = np.cumsum(probabilities, axis=1) / probabilities.sum(axis=1, keepdims=True)
        tokens = np.where(ended, END, np.minimum((draws[:, None] >= reached).sum(axis=1), VOCABULARY_SIZE - 1))
        ended |= tokens == END
        sequences = np.concatenate([sequences, tokens[:, None]], axis=1)
    return sequences
