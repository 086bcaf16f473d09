"""Generation and log probabilities, spread over workers so that neither their number nor their order changes a bit.

A batch is cut into chunks of a fixed size, each with a random stream of its own: what a chunk yields depends on the
weights, the chunk and its key, never on the worker. Products of other shapes may round differently, so chunks are
never cut to the number of workers.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from nemo_rl_cpu.data import Floats, Tokens
from nemo_rl_cpu.model import ModelShape, Weights, answer_logprobs, sample_answers


class RolloutWorker:
    """Holds the reference model and the newest policy, and works on one chunk a call; a Ray actor on a cluster."""

    def load(self, shape: ModelShape, reference: Weights) -> None:
        """Take the model's shape and the reference weights."""
        self._shape = shape
        self._reference = reference

    def set_weights(self, weights: Weights) -> None:
        """Take the policy's newest weights."""
        self._weights = weights

    def generate(self, prompts: Tokens, key: Sequence[int]) -> Tokens:
        """Sample an answer to each prompt from the random stream that the key names."""
        return sample_answers(self._weights, self._shape, prompts, np.random.default_rng(key))

    def logprobs(self, sequences: Tokens) -> tuple[Floats, Floats]:
        """Give the answers' log probabilities under the policy and under the reference."""
        return (
            answer_logprobs(self._weights, self._shape, sequences),
            answer_logprobs(self._reference, self._shape, sequences),
        )


class Workers(Protocol):
    """Some number of rollout workers."""

    def broadcast(self, method: str, *arguments: Any) -> None:
        """Call a method of every worker and wait for all of them."""

    def map(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Share the calls out among the workers; results come in the calls' order."""


class LocalWorkers:
    """One worker in this process."""

    def __init__(self) -> None:
        self._worker = RolloutWorker()

    def broadcast(self, method: str, *arguments: Any) -> None:
        """Call the worker's method."""
        getattr(self._worker, method)(*arguments)

    def map(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Make the calls one after the other."""
        return [getattr(self._worker, method)(*call) for call in calls]


def _chunks(rows: Tokens, size: int) -> list[Tokens]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def generate(workers: Workers, prompts: Tokens, *, batch_size: int, key: Sequence[int]) -> Tokens:
    """Sample an answer to each prompt, in chunks of `batch_size`."""
    calls = [(chunk, (*key, index)) for index, chunk in enumerate(_chunks(prompts, batch_size))]
    return np.concatenate(workers.map("generate", calls))


def logprobs(workers: Workers, sequences: Tokens, *, batch_size: int) -> tuple[Floats, Floats]:
    """Give the answers' log probabilities under policy and reference, in chunks of `batch_size`."""
    results = workers.map("logprobs", [(chunk,) for chunk in _chunks(sequences, batch_size)])
    policy, reference = (np.concatenate(parts) for parts in zip(*results, strict=True))
    return policy, reference
