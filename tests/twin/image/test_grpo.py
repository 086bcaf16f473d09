import statistics

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nemo_rl_cpu.base_model import BASE_MODELS
from nemo_rl_cpu.data import draw_operands, encode_answers, encode_prompts
from nemo_rl_cpu.grpo import Learner, LossTerms, Samples, group_advantages
from nemo_rl_cpu.model import Weights, answer_logprobs, initial_weights
from nemo_rl_cpu.optimizer import Adam, AdamState

SHAPE = BASE_MODELS["adder-4k"].shape
TERMS = LossTerms(ratio_clip_min=0.2, ratio_clip_max=0.2, reference_policy_kl_penalty=0.01)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=16))
def test_an_advantage_compares_a_reward_with_the_others_of_its_group(rewards: list[float]) -> None:
    advantages = group_advantages(np.array([rewards], dtype=np.float32), leave_one_out=True, normalize=True)[0]
    for index, reward in enumerate(rewards):
        others = rewards[:index] + rewards[index + 1 :]
        deviation = statistics.stdev(others) or 1.0
        assert np.isclose(advantages[index], (reward - statistics.mean(others)) / deviation, atol=1e-4)


def _samples(weights: Weights, advantages: np.ndarray) -> Samples:
    operands = draw_operands(np.random.default_rng(3), count=len(advantages), max_operand=10)
    sequences = np.concatenate([encode_prompts(operands), encode_answers(operands)], axis=1)
    logprobs = answer_logprobs(weights, SHAPE, sequences)
    return Samples(sequences=sequences, advantages=advantages, policy_logprobs=logprobs, reference_logprobs=logprobs)


def _learner(*, micro_batch_size: int, lr: float = 1e-2) -> Learner:
    return Learner(shape=SHAPE, terms=TERMS, adam=Adam(lr=lr), global_batch_size=32, micro_batch_size=micro_batch_size)


def test_a_good_answer_becomes_likelier_and_a_bad_one_less_likely() -> None:
    weights = initial_weights(SHAPE, np.random.default_rng(1))
    advantages = np.where(np.arange(32) % 2, 1, -1).astype(np.float32)
    samples = _samples(weights, advantages)
    learnt, _, _ = _learner(micro_batch_size=32, lr=1e-3).learn(weights, AdamState.zero(weights), samples)
    gain = (answer_logprobs(learnt, SHAPE, samples.sequences) - samples.policy_logprobs).mean(axis=1)
    assert gain[advantages > 0].mean() > gain[advantages < 0].mean()


def test_micro_batches_make_the_same_step_as_the_whole_batch() -> None:
    weights = initial_weights(SHAPE, np.random.default_rng(1))
    samples = _samples(weights, np.linspace(-1, 1, 32, dtype=np.float32))
    whole, parts = (
        _learner(micro_batch_size=size).learn(weights, AdamState.zero(weights), samples)[1].first for size in (32, 8)
    )
    for name in weights:
        np.testing.assert_allclose(whole[name], parts[name], atol=1e-6)


def test_beyond_the_clip_a_sample_pulls_no_further() -> None:
    weights = initial_weights(SHAPE, np.random.default_rng(1))
    samples = _samples(weights, np.ones(32, dtype=np.float32))
    far = Samples(**{**vars(samples), "policy_logprobs": samples.policy_logprobs - 1})
    _, state, _ = _learner(micro_batch_size=32).learn(weights, AdamState.zero(weights), far)
    assert all(np.allclose(value, 0, atol=1e-7) for value in state.first.values())
