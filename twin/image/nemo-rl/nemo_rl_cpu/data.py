"""The task: prompts such as `07+03=`, answered digit by digit and ended; and the loader whose state is saved.

All prompts are equally long, so no batch needs padding. What follows an answer's end is the end token again: an answer
is right exactly when its tokens equal the expected ones.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_DIGITS = 2
PLUS, EQUALS, END = 10, 11, 12
VOCABULARY_SIZE = 13
PROMPT_LENGTH = 2 * _DIGITS + 2
ANSWER_LENGTH = _DIGITS + 2
SEQUENCE_LENGTH = PROMPT_LENGTH + ANSWER_LENGTH


def draw_operands(rng: np.random.Generator, *, count: int, max_operand: int) -> Tokens:
    """Draw pairs of operands, shape (count, 2)."""
    return rng.integers(0, max_operand + 1, size=(count, 2))


def encode_prompts(operands: Tokens) -> Tokens:
    """Encode `a+b=` with both operands at full width."""
    left, right = operands.T
    columns = [left // 10, left % 10, np.full_like(left, PLUS), right // 10, right % 10, np.full_like(left, EQUALS)]
    return np.stack(columns, axis=1)


def encode_answers(operands: Tokens) -> Tokens:
    """Encode the sums without leading zeros, ended and filled up with the end token."""
    answers = np.full((len(operands), ANSWER_LENGTH), END, dtype=np.int64)
    for row, total in enumerate(operands.sum(axis=1)):
        digits = [int(digit) for digit in str(total)]
        answers[row, : len(digits)] = digits
    return answers


def score(operands: Tokens, answers: Tokens) -> Floats:
    """Reward 1 for the exact sum, else 0."""
    return np.asarray((answers == encode_answers(operands)).all(axis=1), dtype=np.float32)


def answer_mask(answers: Tokens) -> Floats:
    """Mark the tokens that the policy chose: up to the first end token, which is one of them."""
    ended_before = np.cumsum(answers == END, axis=1) - (answers == END)
    return np.asarray(ended_before == 0, dtype=np.float32)


class PromptLoader:
    """Batches of operands, reshuffled each epoch, the incomplete last one dropped."""

    def __init__(self, operands: Tokens, *, batch_size: int, rng: np.random.Generator) -> None:
        self._operands = operands
        self._batch_size = batch_size
        self._rng = rng
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._rng_state = self._rng.bit_generator.state
        self._order = self._rng.permutation(len(self._operands))
        self._position = 0

    def __len__(self) -> int:
        return len(self._operands) // self._batch_size

    def __iter__(self) -> Iterator[Tokens]:
        """Yield what is left of the epoch, then begin the next one."""
        while self._position < len(self):
            start = self._position * self._batch_size
            self._position += 1
            yield self._operands[self._order[start : start + self._batch_size]]
        self._begin_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Describe, as JSON can, the epoch's shuffle and how many of its batches were taken."""
        return {"rng_state": self._rng_state, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self._rng.bit_generator.state = state["rng_state"]
        self._begin_epoch()
        self._position = state["position"]
