"""The GRPO section of a stack's config as a typed model, and the training command that it stands for.

A typed field is a NeMo-RL key that this project reads, checks or computes from; anything else passes through
`overrides` under NeMo-RL's own key. What the stack decides (nodes, GPUs, directories) is never written in a recipe.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from jobs import training_rules
from jobs.problems import Problem, Severity
from jobs.releases import Release, Scalar

# An override is one line.
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]


class Parallelism(BaseModel):
    """How many GPUs share one copy of the model; what is left out follows from the config file.

    Attributes:
        tensor: tensor parallel size of training, GPUs.
        pipeline: pipeline parallel size of training, GPUs; only Megatron has it.
        context: context parallel size of training, GPUs.
        generation_tensor: tensor parallel size of vLLM, GPUs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tensor: PositiveInt | None = None
    pipeline: PositiveInt | None = None
    context: PositiveInt | None = None
    generation_tensor: PositiveInt | None = None


class GrpoRecipe(BaseModel):
    """What to train and how; a field left out keeps the default of the release's config file.

    Attributes:
        model_name: model on the Hugging Face hub, or its path.
        dataset_name: training set, by NeMo-RL's name for it.
        config_file: another config file of the release, relative to its directory.
        max_num_steps: last step of the run.
        num_prompts_per_step: prompts per step.
        num_generations_per_prompt: sampled answers per prompt; with the prompts, the samples of a step.
        train_global_batch_size: samples per optimizer step.
        train_micro_batch_size: samples per forward pass on one data parallel rank.
        save_period: steps from checkpoint to checkpoint.
        keep_top_k: checkpoints kept; where a metric ranks them the newest is kept besides.
        metric_name: what ranks checkpoints, `val:NAME` or `train:NAME`; null, as when left out, keeps the newest.
        checkpoint_must_save_by: DD:HH:MM:SS after the start, when the trainer saves and stops.
        val_period: steps from validation to validation; 0 for none.
        parallelism: GPUs per copy of the model.
        wandb_enabled: report to Weights & Biases; the key comes from the stack's secrets.
        wandb_project: project there.
        wandb_name: name of the run there.
        overrides: further NeMo-RL overrides, dotted key to value; `+key` adds one that the config file lacks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())

    model_name: Line
    dataset_name: Line | None = None
    config_file: Line | None = None
    max_num_steps: PositiveInt
    num_prompts_per_step: PositiveInt | None = None
    num_generations_per_prompt: PositiveInt | None = None
    train_global_batch_size: PositiveInt | None = None
    train_micro_batch_size: PositiveInt | None = None
    save_period: PositiveInt
    keep_top_k: PositiveInt | None = None
    metric_name: Line | None = None
    checkpoint_must_save_by: str | None = Field(default=None, pattern=r"^\d{2}:\d{2}:\d{2}:\d{2}$")
    val_period: int | None = Field(default=None, ge=0)
    parallelism: Parallelism = Parallelism()
    wandb_enabled: bool = False
    wandb_project: Line | None = None
    wandb_name: Line | None = None
    overrides: dict[str, Scalar] = Field(default_factory=dict)


# Keys that the stack decides. An override of one would be a second truth about the cluster or the run's directory.
OWNED_KEYS: Mapping[str, str] = {
    "cluster.num_nodes": "it follows from the GPU pool",
    "cluster.gpus_per_node": "it follows from the machine type",
    "checkpointing.enabled": "a spot run without checkpoints starts over at each preemption",
    "checkpointing.checkpoint_dir": "it follows from the stack's and the job's name",
    "logger.log_dir": "it follows from the stack's and the job's name",
}

# Typed field to NeMo-RL key, in the order of the command line. The training set's key depends on the release.
_FIELD_KEYS: Mapping[str, str] = {
    "model_name": "policy.model_name",
    "max_num_steps": "grpo.max_num_steps",
    "num_prompts_per_step": "grpo.num_prompts_per_step",
    "num_generations_per_prompt": "grpo.num_generations_per_prompt",
    "val_period": "grpo.val_period",
    "train_global_batch_size": "policy.train_global_batch_size",
    "train_micro_batch_size": "policy.train_micro_batch_size",
    "save_period": "checkpointing.save_period",
    "keep_top_k": "checkpointing.keep_top_k",
    "metric_name": "checkpointing.metric_name",
    "checkpoint_must_save_by": "checkpointing.checkpoint_must_save_by",
    "wandb_enabled": "logger.wandb_enabled",
    "wandb_project": "logger.wandb.project",
    "wandb_name": "logger.wandb.name",
}
# Null is a value of its own here: it keeps the newest checkpoints, where the config files rank by a metric.
_NULL_IS_A_VALUE = frozenset({"metric_name"})

# Characters that Hydra's grammar takes unquoted; a value of others, or one that reads as another type, is quoted.
_BARE_VALUE = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.:%@?-]*")
_KEYWORDS = frozenset({"null", "true", "false", "nan", "inf"})
_OVERRIDE_KEY = re.compile(r"(?P<prefix>\+{0,2})(?P<key>[A-Za-z_]\w*(\.\w+)*)")


def field_keys(release: Release, backend: training_rules.Backend | None) -> dict[str, str]:
    """Map each typed field, dotted, to the NeMo-RL key it sets in a release and training backend."""
    return {
        "model_name": "policy.model_name",
        "dataset_name": release.dataset_key,
        **_FIELD_KEYS,
        **{f"parallelism.{name}": key for name, key in training_rules.parallelism_keys(backend).items()},
    }


def default_config(recipe: GrpoRecipe, release: Release) -> Mapping[str, Scalar]:
    """Keys and defaults of the config file that the recipe starts from; empty where nobody has read it."""
    return release.configs.get(recipe.config_file or release.config_file, {})


def _override_values(recipe: GrpoRecipe) -> dict[str, Scalar]:
    return {key.lstrip("+"): value for key, value in recipe.overrides.items()}


def _keys_of(recipe: GrpoRecipe, release: Release) -> dict[str, str]:
    """Map each typed field to its key under the backend that config file and overrides switch on."""
    backend = training_rules.backend_of({**default_config(recipe, release), **_override_values(recipe)})
    return field_keys(release, backend)


def _typed_values(recipe: GrpoRecipe, release: Release) -> dict[str, Scalar]:
    """Collect what the typed fields set, by NeMo-RL key."""
    fields: dict[str, Scalar] = {
        **recipe.model_dump(exclude={"parallelism", "overrides", "config_file"}),
        **{f"parallelism.{name}": value for name, value in recipe.parallelism.model_dump().items()},
    }
    return {
        key: fields[name]
        for name, key in _keys_of(recipe, release).items()
        if fields[name] is not None or name in _NULL_IS_A_VALUE
    }


def effective_config(recipe: GrpoRecipe, *, release: Release, nodes: int, gpus_per_node: int) -> Mapping[str, Scalar]:
    """Merge config file, typed fields and overrides as the trainer will, by NeMo-RL key."""
    return {
        **default_config(recipe, release),
        **_typed_values(recipe, release),
        **_override_values(recipe),
        "cluster.num_nodes": nodes,
        "cluster.gpus_per_node": gpus_per_node,
    }


def _is_known(key: str, config: Mapping[str, Scalar]) -> bool:
    return key in config or any(known.startswith(f"{key}.") for known in config)


def _override_problems(recipe: GrpoRecipe, release: Release, section: str) -> Iterator[Problem]:
    config = default_config(recipe, release)
    names = {key: name for name, key in _keys_of(recipe, release).items()}
    for written, value in recipe.overrides.items():
        where = f"{section}.overrides.{written}"
        match = _OVERRIDE_KEY.fullmatch(written)
        if match is None:
            yield Problem(
                key=where,
                value=str(value),
                reason="this is no key that NeMo-RL can set",
                remedy="Write a dotted key, for example policy.max_total_sequence_length, with + before it to add one",
            )
            continue
        key = match["key"]
        if isinstance(value, str) and not value.isprintable():
            yield Problem(
                key=where,
                value=repr(value),
                reason="a line break or control character cannot stand in an override",
                remedy="Write the value on one line",
            )
        if key in OWNED_KEYS:
            yield Problem(
                key=where,
                value=str(value),
                reason=f"the stack sets this key: {OWNED_KEYS[key]}",
                remedy="Remove the override",
            )
        elif key in names:
            yield Problem(
                key=where,
                value=str(value),
                reason=f"this key has a field of its own, {section}.{names[key]}, and two values could contradict",
                remedy=f"Remove the override and set {section}.{names[key]}",
            )
        elif config and not match["prefix"] and not _is_known(key, config):
            yield Problem(
                key=where,
                value=str(value),
                reason=f"NeMo-RL {release.tag} has no such key in {recipe.config_file or release.config_file} "
                "and would stop before the first step",
                remedy=f"Correct the key, or write +{key} to add one that this config file lacks",
            )


def _release_problems(recipe: GrpoRecipe, release: Release, section: str) -> Iterator[Problem]:
    config = default_config(recipe, release)
    if recipe.config_file is not None and release.configs and not config:
        yield Problem(
            key=f"{section}.config_file",
            value=recipe.config_file,
            reason=f"the keys of this file in NeMo-RL {release.tag} have not been read, so overrides and batch shape "
            "are checked only as far as the recipe itself goes",
            remedy=f"Use one of {', '.join(release.configs)} to have them checked",
            severity=Severity.WARNING,
        )
    keys = _keys_of(recipe, release)
    for name, size in recipe.parallelism.model_dump(exclude_none=True).items():
        if f"parallelism.{name}" not in keys:
            yield Problem(
                key=f"{section}.parallelism.{name}",
                value=str(size),
                reason="the trainer that this recipe and release switch on has no such size",
                remedy="Remove the field, or switch on a backend that has it in `overrides`",
            )
    names = {key: name for name, key in keys.items()}
    for key, value in _typed_values(recipe, release).items():
        if config and not _is_known(key, config):
            yield Problem(
                key=f"{section}.{names[key]}",
                value=str(value),
                reason=f"NeMo-RL {release.tag} has no key {key} and would stop before the first step",
                remedy="Remove the field or use another release",
            )


def recipe_problems(
    recipe: GrpoRecipe, *, nodes: int, gpus_per_node: int, release: Release, section: str = "job.grpo"
) -> list[Problem]:
    """Find everything that keeps a recipe from training, and what it will regret.

    Args:
        recipe: the recipe.
        nodes: GPU nodes of the run.
        gpus_per_node: GPUs of each.
        release: what the image holds.
        section: dotted path of the recipe in the user's file, for the messages.
    """
    plan = training_rules.TrainingPlan(
        config=effective_config(recipe, release=release, nodes=nodes, gpus_per_node=gpus_per_node),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        names={key: f"{section}.{name}" for name, key in _keys_of(recipe, release).items()},
        section=section,
        overridden=frozenset(_override_values(recipe)),
    )
    return [
        *_override_problems(recipe, release, section),
        *_release_problems(recipe, release, section),
        *training_rules.training_problems(plan),
    ]


def override(key: str, value: Scalar) -> str:
    """Render one override so that Hydra's grammar reads the value back as it is.

    Source: hydra-core 1.3 `QuotedString.with_quotes`: backslashes are doubled only in front of a quote.
    """
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case str() if not _BARE_VALUE.fullmatch(value) or value.lower() in _KEYWORDS:
            escaped = re.sub(r"(\\*)('|\Z)", lambda run: run[1] * 2 + run[2].replace("'", r"\'"), value)
            text = f"'{escaped}'"
        case _:
            text = str(value)
    return f"{key}={text}"


def display_override(recipe: GrpoRecipe) -> str | None:
    """Render the override that names the run for people; training does not depend on it."""
    return override(_FIELD_KEYS["wandb_name"], recipe.wandb_name) if recipe.wandb_name else None


def render_command(
    recipe: GrpoRecipe, *, release: Release, nodes: int, gpus_per_node: int, checkpoint_dir: str, log_dir: str
) -> list[str]:
    """Render the training command as arguments for exec, never for a shell, to be run in the release's workdir.

    Args:
        recipe: a recipe without an error among its problems.
        release: what the image holds.
        nodes: GPU nodes of the run.
        gpus_per_node: GPUs of each.
        checkpoint_dir: where checkpoints go, on Lustre.
        log_dir: where the trainer's own logs go, on Lustre: the pod's disk goes with the pod.
    """
    settings = {
        **_typed_values(recipe, release),
        "cluster.num_nodes": nodes,
        "cluster.gpus_per_node": gpus_per_node,
        "checkpointing.enabled": True,
        "checkpointing.checkpoint_dir": checkpoint_dir,
        "logger.log_dir": log_dir,
        **recipe.overrides,
    }
    config_file = recipe.config_file or release.config_file
    arguments = [override(key, value) for key, value in settings.items()]
    return [*release.launcher, release.entry_script, "--config", config_file, *arguments]


def paste_able(command: Sequence[str]) -> str:
    """Quote a command for a shell, one override a line."""
    words = [shlex.quote(word) for word in command]
    first = next((index for index, word in enumerate(command) if "=" in word), len(words))
    return " \\\n  ".join([" ".join(words[:first]), *words[first:]])
