"""A recipe renders what NeMo-RL reads, and what cannot be set is refused under the user's own key."""

import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.problems import Problem, Severity, errors
from jobs.recipe import (
    GrpoRecipe,
    Parallelism,
    effective_config,
    override,
    paste_able,
    recipe_problems,
    render_command,
)
from jobs.releases import RELEASES, Release, Scalar

V4 = RELEASES["v0.4.0"]
CPU = Release(tag="1.0", ray_version="2.60.0", entry_script="run.py", config_file="cpu.yaml")
SMALL = "examples/configs/grpo_math_1B.yaml"


def recipe(**changes: Any) -> GrpoRecipe:
    """The codelab's recipe, changed."""
    return GrpoRecipe.model_validate(
        {
            "model_name": "Qwen/Qwen2.5-72B-Instruct",
            "dataset_name": "DeepScaler",
            "max_num_steps": 20,
            "num_prompts_per_step": 32,
            "num_generations_per_prompt": 8,
            "train_global_batch_size": 256,
            "save_period": 2,
            "keep_top_k": 2,
            **changes,
        }
    )


def problems(changed: GrpoRecipe, release: Release = V4, nodes: int = 8) -> list[Problem]:
    return recipe_problems(changed, nodes=nodes, gpus_per_node=8, release=release)


def command(changed: GrpoRecipe, release: Release = V4) -> list[str]:
    return render_command(
        changed, release=release, nodes=8, gpus_per_node=8, checkpoint_dir="/lustre/c", log_dir="/lustre/l"
    )


def test_codelab_recipe_renders_the_codelab_command() -> None:
    words = command(recipe(wandb_name="nemo-rl-grpo-test1"))
    assert words[:6] == [
        *("uv", "run", "python", "examples/run_grpo_math.py"),
        *("--config", "examples/configs/grpo_math_70B_megatron.yaml"),
    ]
    assert set(words[6:]) == {
        "policy.model_name=Qwen/Qwen2.5-72B-Instruct",
        "data.dataset_name=DeepScaler",
        "grpo.max_num_steps=20",
        "grpo.num_prompts_per_step=32",
        "grpo.num_generations_per_prompt=8",
        "policy.train_global_batch_size=256",
        "checkpointing.enabled=true",
        "checkpointing.save_period=2",
        "checkpointing.keep_top_k=2",
        "checkpointing.metric_name=null",
        "checkpointing.checkpoint_dir=/lustre/c",
        "logger.log_dir=/lustre/l",
        "logger.wandb_enabled=false",
        "logger.wandb.name=nemo-rl-grpo-test1",
        "cluster.num_nodes=8",
        "cluster.gpus_per_node=8",
    }


def test_codelab_recipe_only_warns_that_it_saves_more_often_than_it_validates() -> None:
    (warning,) = problems(recipe())
    assert (warning.key, warning.severity) == ("job.grpo.save_period", Severity.WARNING)
    assert "every 10 steps" in warning.reason


@pytest.mark.parametrize(("tag", "key"), [("v0.4.0", "data.dataset_name"), ("v0.6.0", "data.train.dataset_name")])
def test_key_names_follow_the_release(tag: str, key: str) -> None:
    assert f"{key}=DeepScaler" in command(recipe(), RELEASES[tag])


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.tag)
def test_every_rendered_key_is_one_that_the_release_has(release: Release) -> None:
    full = recipe(
        train_micro_batch_size=1,
        val_period=2,
        checkpoint_must_save_by="00:03:30:00",
        wandb_enabled=True,
        wandb_project="p",
        wandb_name="n",
        parallelism={"tensor": 4, "pipeline": 4, "context": 1, "generation_tensor": 8},
    )
    assert problems(full, release) == []
    known = release.configs[release.config_file]
    assert {word.partition("=")[0] for word in command(full, release)[6:]} <= known.keys()


def test_parallelism_goes_to_the_backend_that_is_on() -> None:
    parallelism = {"tensor": 2, "context": 1, "generation_tensor": 2}
    megatron = command(recipe(parallelism=parallelism))
    assert "policy.megatron_cfg.tensor_model_parallel_size=2" in megatron
    small = recipe(parallelism=parallelism, config_file=SMALL)
    assert "policy.dtensor_cfg.tensor_parallel_size=2" in command(small)
    assert errors(problems(small)) == []


def test_size_that_the_backend_lacks_is_refused() -> None:
    (error,) = errors(problems(recipe(parallelism={"pipeline": 2}, config_file=SMALL)))
    assert error.key == "job.grpo.parallelism.pipeline"
    (error,) = errors(problems(recipe(parallelism={"tensor": 2}), CPU))
    assert error.key == "job.grpo.parallelism.tensor"


def test_trainer_of_an_explicit_release_takes_the_same_recipe() -> None:
    local = recipe(num_prompts_per_step=64, train_global_batch_size=128, overrides={"policy.lr": 3e-4})
    assert problems(local, CPU, nodes=2) == []
    assert "policy.lr=0.0003" in command(local, CPU)


@pytest.mark.parametrize(
    "key",
    [
        "cluster.num_nodes",
        "++cluster.gpus_per_node",
        "checkpointing.checkpoint_dir",
        "checkpointing.enabled",
        "logger.log_dir",
    ],
)
def test_what_the_stack_decides_cannot_be_overridden(key: str) -> None:
    (error,) = errors(problems(recipe(overrides={key: 1})))
    assert error.key == f"job.grpo.overrides.{key}"
    assert "the stack sets this key" in error.reason


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("grpo.max_num_steps", "max_num_steps"),
        ("+data.dataset_name", "dataset_name"),
        ("policy.megatron_cfg.tensor_model_parallel_size", "parallelism.tensor"),
    ],
)
def test_override_of_a_typed_field_is_refused_with_the_fields_name(key: str, field: str) -> None:
    (error,) = errors(problems(recipe(overrides={key: 4})))
    assert f"job.grpo.{field}" in error.remedy


def test_misspelt_override_is_refused_unless_it_is_meant_to_add() -> None:
    (error,) = errors(problems(recipe(overrides={"grpo.sead": 1})))
    assert "NeMo-RL v0.4.0 has no such key" in error.reason
    assert "+grpo.sead" in error.remedy
    assert errors(problems(recipe(overrides={"+grpo.sead": 1, "grpo.seed": 2, "policy.scheduler": None}))) == []
    assert "+grpo.sead=1" in command(recipe(overrides={"+grpo.sead": 1}))


def test_key_that_a_later_release_dropped_is_refused_there() -> None:
    changed = recipe(overrides={"policy.megatron_cfg.converter_type": "Qwen2ForCausalLM"})
    assert [problem.severity for problem in problems(changed) if "converter_type" in problem.key] == ["warning"]
    assert "converter_type" in errors(problems(changed, RELEASES["v0.7.0"]))[0].key


@pytest.mark.parametrize("key", ["~grpo.seed", "grpo seed", "a=b", "", "a..b", "+++a", "$(touch x)"])
def test_text_that_is_no_key_is_refused(key: str) -> None:
    (error,) = errors(problems(recipe(overrides={key: 1})))
    assert "no key that NeMo-RL can set" in error.reason


def test_override_over_several_lines_is_refused() -> None:
    (error,) = errors(problems(recipe(overrides={"data.prompt_file": "a\nb"})))
    assert "line break" in error.reason


def test_unread_config_file_is_a_warning_and_checks_what_the_recipe_says() -> None:
    found = problems(recipe(config_file="examples/configs/mine.yaml", train_global_batch_size=100))
    assert [(problem.key, problem.severity) for problem in found] == [
        ("job.grpo.config_file", "warning"),
        ("job.grpo.train_global_batch_size", "error"),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"max_steps": 3},
        {"save_period": 0},
        {"keep_top_k": 0},
        {"val_period": -1},
        {"max_num_steps": "20"},
        {"max_num_steps": True},
        {"checkpoint_must_save_by": "3h"},
        {"model_name": "two\nlines"},
        {"wandb_name": ""},
        {"overrides": {"a": [1]}},
        {"parallelism": {"tensors": 1}},
    ],
    ids=str,
)
def test_misspelt_or_impossible_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        recipe(**changes)


def test_effective_config_is_what_the_trainer_sees() -> None:
    config = effective_config(
        recipe(overrides={"grpo.seed": 7}, parallelism=Parallelism(tensor=8)),
        release=V4,
        nodes=4,
        gpus_per_node=8,
    )
    assert config["grpo.seed"] == 7
    assert config["policy.megatron_cfg.tensor_model_parallel_size"] == 8
    assert config["policy.megatron_cfg.pipeline_model_parallel_size"] == 4
    assert config["checkpointing.metric_name"] is None
    assert config["cluster.num_nodes"] == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (3e-7, "3e-07"),
        ("Qwen/Qwen2.5-72B", "Qwen/Qwen2.5-72B"),
        ("val:accuracy", "val:accuracy"),
        ("null", "'null'"),
        ("True", "'True'"),
        ("12", "'12'"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", r"'it\'s'"),
        ("a\\", r"'a\\'"),
        (r"a\b", r"'a\b'"),
        (r"\'", r"'\\\''"),
        ("[1,2]", "'[1,2]'"),
        ("${policy.model_name}", "'${policy.model_name}'"),
    ],
)
def test_values_are_quoted_as_hydras_grammar_wants(value: Scalar, text: str) -> None:
    assert override("a.b", value) == f"a.b={text}"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])))
def test_string_never_leaves_its_quotes_and_reads_back(value: str) -> None:
    text = override("k", value).removeprefix("k=")
    if text.startswith("'"):
        # Hydra: backslashes count as escapes only in a run that ends at a quote.
        body = re.fullmatch(r"'((?:[^'\\]|\\+(?!['\\])|(?:\\\\)*\\')*(?:\\\\)*)'", text)
        assert body is not None
        text = re.sub(r"(\\+)('|\Z)", lambda run: "\\" * (len(run[1]) // 2) + run[2], body[1])
    assert text == value


def test_pasted_command_is_the_executed_one() -> None:
    words = command(recipe(overrides={"data.prompt_file": "it's $HOME; `x`"}))
    assert shlex.split(paste_able(words).replace("\\\n", " ")) == words
    assert paste_able(words).count("\n") == len(words) - 6
