from collections.abc import Sequence
from typing import Any

import numpy as np
from nemo_rl_cpu import rollouts
from nemo_rl_cpu.base_model import BASE_MODELS
from nemo_rl_cpu.data import END, PROMPT_LENGTH, PromptLoader, answer_mask, draw_operands, encode_prompts, score
from nemo_rl_cpu.model import initial_weights

SHAPE = BASE_MODELS["adder-4k"].shape


class ManyWorkers:
    """Several workers, the last one called first."""

    def __init__(self, count: int) -> None:
        self._workers = [rollouts.RolloutWorker() for _ in range(count)]

    def broadcast(self, method: str, *arguments: Any) -> None:
        for worker in self._workers:
            getattr(worker, method)(*arguments)

    def map(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        results: dict[int, Any] = {}
        for index in reversed(range(len(calls))):
            results[index] = getattr(self._workers[index % len(self._workers)], method)(*calls[index])
        return [results[index] for index in range(len(calls))]


def test_neither_number_nor_order_of_workers_changes_a_bit() -> None:
    weights = initial_weights(SHAPE, np.random.default_rng(1))
    prompts = encode_prompts(draw_operands(np.random.default_rng(2), count=50, max_operand=10))
    outcomes = []
    several: list[rollouts.Workers] = [rollouts.LocalWorkers(), ManyWorkers(2), ManyWorkers(3)]
    for workers in several:
        workers.broadcast("load", SHAPE, weights)
        workers.broadcast("set_weights", weights)
        sequences = rollouts.generate(workers, prompts, batch_size=16, key=(42, 0))
        policy, reference = rollouts.logprobs(workers, sequences, batch_size=16)
        outcomes.append((sequences, policy, reference))
    for outcome in outcomes[1:]:
        for ours, expected in zip(outcome, outcomes[0], strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_only_the_exact_sum_is_rewarded_and_only_chosen_tokens_count() -> None:
    operands = np.array([[7, 3], [7, 3], [7, 3], [0, 0]])
    answers = np.array([[1, 0, END, END], [1, 0, 0, END], [0, 1, END, END], [0, END, END, END]])
    assert score(operands, answers).tolist() == [1, 0, 0, 1]
    assert answer_mask(answers).sum(axis=1).tolist() == [3, 4, 3, 2]


def test_a_generated_sequence_keeps_its_prompt_and_ends_once() -> None:
    workers = rollouts.LocalWorkers()
    weights = initial_weights(SHAPE, np.random.default_rng(1))
    workers.broadcast("load", SHAPE, weights)
    workers.broadcast("set_weights", weights)
    prompts = encode_prompts(draw_operands(np.random.default_rng(2), count=64, max_operand=10))
    sequences = rollouts.generate(workers, prompts, batch_size=64, key=(1,))
    assert np.array_equal(sequences[:, :PROMPT_LENGTH], prompts)
    answers = sequences[:, PROMPT_LENGTH:]
    assert (np.diff((answers == END).astype(int), axis=1) >= 0).all()


def test_a_loader_goes_on_where_its_state_was_taken() -> None:
    operands = np.arange(20).reshape(10, 2)

    def loader() -> PromptLoader:
        return PromptLoader(operands, batch_size=3, rng=np.random.default_rng(5))

    whole, first = loader(), loader()
    expected = [batch.tolist() for _ in range(3) for batch in whole]
    seen = [batch.tolist() for batch in first]
    batches = iter(first)
    seen.append(next(batches).tolist())
    second = loader()
    second.load_state_dict(first.state_dict())
    seen += [batch.tolist() for _ in range(2) for batch in second]
    assert seen == expected
