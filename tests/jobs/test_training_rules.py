"""Each rule: the config that just passes, and the one that just fails, with what is said about it."""

from typing import Any

import pytest

from jobs.problems import Severity
from jobs.releases import RELEASES, Scalar
from jobs.training_rules import TrainingPlan, data_parallel_size, training_problems

LARGE = "examples/configs/grpo_math_70B_megatron.yaml"
SMALL = "examples/configs/grpo_math_1B.yaml"
TENSOR = "policy.megatron_cfg.tensor_model_parallel_size"
GENERATION_TENSOR = "policy.generation.vllm_cfg.tensor_parallel_size"
BATCH = "policy.train_global_batch_size"
CORRECTION = "loss_fn.use_importance_sampling_correction"
COLOCATED = "policy.generation.colocated.enabled"
GENERATION_NODES = "policy.generation.colocated.resources.num_nodes"
GENERATION_GPUS = "policy.generation.colocated.resources.gpus_per_node"
ASYNC: dict[str, Scalar] = {
    "grpo.async_grpo.enabled": True,
    CORRECTION: True,
    COLOCATED: False,
    GENERATION_NODES: 4,
    GENERATION_GPUS: 8,
}


def plan(
    changes: dict[str, Any], *, nodes: int = 8, file: str = LARGE, overridden: frozenset[str] = frozenset()
) -> TrainingPlan:
    config = {**RELEASES["v0.4.0"].configs[file], **changes}
    return TrainingPlan(config=config, nodes=nodes, gpus_per_node=8, names={}, section="r", overridden=overridden)


def found(checked: TrainingPlan) -> list[tuple[str, Severity]]:
    return [(problem.key.removeprefix("r.overrides."), problem.severity) for problem in training_problems(checked)]


@pytest.mark.parametrize("file", [LARGE, "examples/configs/grpo_math_8B_megatron.yaml", SMALL])
def test_shipped_config_trains_on_its_own_nodes(file: str) -> None:
    assert found(plan({}, file=file)) == []


@pytest.mark.parametrize(
    ("changes", "nodes", "key", "words"),
    [
        # One copy takes TP 4 x PP 4 x CP 1 = 16 GPUs.
        ({}, 3, TENSOR, "2 or 4 nodes"),
        ({}, 1, TENSOR, "2 nodes"),
        ({"policy.megatron_cfg.context_parallel_size": 3}, 8, TENSOR, "6 or 12"),
        ({GENERATION_TENSOR: 7}, 8, GENERATION_TENSOR, "64"),
        ({GENERATION_TENSOR: 128}, 8, GENERATION_TENSOR, "64"),
        ({BATCH: 768}, 8, BATCH, "example 256"),
        ({BATCH: 2}, 8, BATCH, "multiple of 4"),
        ({"policy.dtensor_cfg.enabled": True}, 8, "policy.megatron_cfg.enabled", "false"),
        ({"policy.megatron_cfg.enabled": False}, 8, "policy.megatron_cfg.enabled", "true"),
        ({"checkpointing.metric_name": "val_reward"}, 8, "checkpointing.metric_name", "val:val_reward"),
        ({"checkpointing.metric_name": "val:"}, 8, "checkpointing.metric_name", "null"),
        ({**ASYNC, COLOCATED: True}, 8, COLOCATED, "false"),
        ({**ASYNC, CORRECTION: False}, 8, CORRECTION, "true"),
        ({**ASYNC, GENERATION_GPUS: 4}, 8, GENERATION_GPUS, "8"),
        ({**ASYNC, GENERATION_NODES: 5}, 8, TENSOR, "2 or 4"),
    ],
)
def test_what_nemo_rl_would_refuse_is_refused_alone_and_with_a_remedy(
    changes: dict[str, Any], nodes: int, key: str, words: str
) -> None:
    problems = training_problems(plan(changes, nodes=nodes))
    assert [(problem.key, problem.severity) for problem in problems] == [(f"r.overrides.{key}", Severity.ERROR)]
    assert words in problems[0].remedy


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ({}, 2),
        ({GENERATION_TENSOR: 64}, 8),
        ({BATCH: 2048}, 8),
        ({BATCH: 4}, 8),
        (ASYNC, 8),
        ({**ASYNC, GENERATION_NODES: 6}, 8),
        ({"checkpointing.metric_name": None}, 8),
    ],
)
def test_what_just_fits_passes(changes: dict[str, Any], nodes: int) -> None:
    assert found(plan(changes, nodes=nodes)) == []


def test_generation_may_not_take_every_node() -> None:
    keys = dict(found(plan({**ASYNC, GENERATION_NODES: 8})))
    assert GENERATION_NODES in keys


@pytest.mark.parametrize(("gpus", "expected"), [(0, False), (1, True), (7, True), (8, False), (None, False)])
def test_one_node_is_split_by_gpus(gpus: int | None, expected: bool) -> None:
    changes = {
        COLOCATED: False,
        GENERATION_GPUS: gpus,
        "grpo.num_prompts_per_step": 7 * 32,
        BATCH: 7 * 512,
    }
    keys = dict(found(plan(changes, nodes=1, file=SMALL)))
    assert (GENERATION_GPUS not in keys) is expected


def test_samples_are_shared_evenly() -> None:
    changes = {
        "grpo.num_prompts_per_step": 3,
        "grpo.num_generations_per_prompt": 2,
        BATCH: 6,
    }
    assert found(plan(changes)) == [
        ("grpo.num_prompts_per_step", Severity.ERROR),
        (BATCH, Severity.ERROR),
    ]


@pytest.mark.parametrize(("micro_batch", "packed", "fits"), [(4, False, True), (3, False, False), (3, True, True)])
def test_micro_batch_divides_a_ranks_share_unless_tokens_make_it(micro_batch: int, packed: bool, fits: bool) -> None:
    changes = {
        "policy.train_micro_batch_size": micro_batch,
        "policy.sequence_packing.enabled": packed,
    }
    assert (found(plan(changes)) == []) is fits


def test_dynamic_batching_wants_one_stage_and_no_packing() -> None:
    changes = {"policy.dynamic_batching.enabled": True}
    assert [key for key, _ in found(plan(changes))] == ["policy.dynamic_batching.enabled"] * 2
    assert found(plan({**changes, "policy.sequence_packing.enabled": False}, file=SMALL)) == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"checkpointing.save_period": 9, "checkpointing.metric_name": None}, "checkpointing.save_period"),
        ({"checkpointing.save_period": 15}, "checkpointing.metric_name"),
        ({"checkpointing.save_period": 20, "grpo.max_num_steps": 19}, "checkpointing.save_period"),
    ],
)
def test_what_may_go_wrong_is_a_warning(changes: dict[str, Any], key: str) -> None:
    assert found(plan(changes)) == [(key, Severity.WARNING)]


def test_dead_key_is_named_only_to_who_wrote_it() -> None:
    key = "policy.megatron_cfg.converter_type"
    assert found(plan({key: "X"}, overridden=frozenset({key}))) == [(key, Severity.WARNING)]
    assert found(plan({key: "X"})) == []


def test_unknown_trainer_is_held_to_what_is_known_of_it() -> None:
    config: dict[str, Scalar] = {
        "grpo.num_prompts_per_step": 5,
        "grpo.num_generations_per_prompt": 5,
        BATCH: 10,
    }
    unknown = TrainingPlan(config=config, nodes=3, gpus_per_node=8, names={}, section="r")
    assert data_parallel_size(unknown) is None
    assert found(unknown) == [(BATCH, Severity.ERROR)]
