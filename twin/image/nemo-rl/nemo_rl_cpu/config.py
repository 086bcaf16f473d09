"""The run's config: a YAML file, overrides in Hydra's syntax, and the typed view that the trainer reads.

As in NeMo-RL, the file says which keys exist: `key=value` sets one of them, `+key=value` adds one, `++key=value` does
either. Added keys that nobody reads are kept and saved with each checkpoint.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from nemo_rl_cpu.base_model import BASE_MODELS

Settings = dict[str, Any]


class ConfigError(Exception):
    """The config or an override cannot be used; nothing was started."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())


class GrpoConfig(_Section):
    """`grpo`: batch shape, length of the run, validation."""

    num_prompts_per_step: PositiveInt
    num_generations_per_prompt: Annotated[int, Field(ge=2)]
    max_num_epochs: PositiveInt
    max_num_steps: PositiveInt
    normalize_rewards: bool
    use_leave_one_out_baseline: bool
    val_period: NonNegativeInt
    val_at_start: bool
    max_val_samples: PositiveInt
    seed: NonNegativeInt

    @property
    def samples_per_step(self) -> int:
        """Sequences that a step generates."""
        return self.num_prompts_per_step * self.num_generations_per_prompt


class LossConfig(_Section):
    """`loss_fn`: KL penalty and clipping."""

    reference_policy_kl_penalty: NonNegativeFloat
    ratio_clip_min: NonNegativeFloat
    ratio_clip_max: NonNegativeFloat


class CheckpointingConfig(_Section):
    """`checkpointing`: where, how often, how many."""

    enabled: bool
    checkpoint_dir: Path
    metric_name: Annotated[str, Field(pattern="^(train|val):.")] | None
    higher_is_better: bool
    keep_top_k: PositiveInt | None
    save_period: PositiveInt
    checkpoint_must_save_by: Annotated[str, Field(pattern=r"^\d{2}:\d{2}:\d{2}:\d{2}$")] | None

    @property
    def must_save_by_s(self) -> float:
        """Seconds after the start at which the run saves and stops; infinite when nothing is set."""
        if self.checkpoint_must_save_by is None:
            return float("inf")
        days, hours, minutes, seconds = map(int, self.checkpoint_must_save_by.split(":"))
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class OptimizerArguments(_Section):
    """`policy.optimizer.kwargs`: Adam's."""

    lr: NonNegativeFloat
    betas: tuple[float, float]
    eps: float


class OptimizerConfig(_Section):
    """`policy.optimizer`."""

    arguments: Annotated[OptimizerArguments, Field(alias="kwargs")]


class PolicyConfig(_Section):
    """`policy`: the model and the sizes of its batches, in samples."""

    model_name: str
    train_global_batch_size: PositiveInt
    train_micro_batch_size: PositiveInt
    generation_batch_size: PositiveInt
    logprob_batch_size: PositiveInt
    max_grad_norm: NonNegativeFloat
    optimizer: OptimizerConfig


class DataConfig(_Section):
    """`data`: sums of two operands from 0 to `max_operand`."""

    dataset_name: Literal["addition"]
    max_operand: Annotated[int, Field(ge=1, le=99)]
    num_samples: PositiveInt


class LoggerConfig(_Section):
    """`logger`: where metrics go."""

    log_dir: Path | None
    wandb_enabled: bool


class ClusterConfig(_Section):
    """`cluster`: what is asked of Ray."""

    gpus_per_node: PositiveInt
    num_nodes: PositiveInt


class MasterConfig(_Section):
    """Everything that the trainer reads; refuses what NeMo-RL's assertions would end in the first step."""

    grpo: GrpoConfig
    loss_fn: LossConfig
    checkpointing: CheckpointingConfig
    policy: PolicyConfig
    data: DataConfig
    logger: LoggerConfig
    cluster: ClusterConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        samples = self.grpo.samples_per_step
        batch = self.policy.train_global_batch_size
        gpus = self.cluster.num_nodes * self.cluster.gpus_per_node
        refusals = {
            f"policy.model_name={self.policy.model_name} is not in this image, which holds {', '.join(BASE_MODELS)}": (
                self.policy.model_name not in BASE_MODELS
            ),
            f"policy.train_global_batch_size={batch} does not divide the {samples} samples of a step "
            "(grpo.num_prompts_per_step x grpo.num_generations_per_prompt)": samples % batch != 0,
            f"policy.train_global_batch_size={batch} cannot be shared by {gpus} GPUs "
            "(cluster.num_nodes x cluster.gpus_per_node): make it a multiple": batch % gpus != 0,
            f"policy.train_micro_batch_size={self.policy.train_micro_batch_size} does not divide "
            f"policy.train_global_batch_size={batch}": batch % self.policy.train_micro_batch_size != 0,
            f"data.num_samples={self.data.num_samples} does not fill one step of "
            f"grpo.num_prompts_per_step={self.grpo.num_prompts_per_step}": (
                self.data.num_samples < self.grpo.num_prompts_per_step
            ),
            "logger.wandb_enabled=true needs wandb, which this image does not hold: set it to false": (
                self.logger.wandb_enabled
            ),
        }
        if any(refusals.values()):
            raise ValueError("; ".join(reason for reason, refused in refusals.items() if refused))
        return self


_KEYWORDS = {"null": None, "true": True, "false": False}
_OVERRIDE = re.compile(r"(?P<prefix>\+{0,2})(?P<key>[A-Za-z_]\w*(?:\.\w+)*)=(?P<value>.*)", re.DOTALL)


def parse_value(text: str) -> Any:
    """Read a value as Hydra does: keyword, integer, float, quoted string, list or map, else a plain string."""
    if text.lower() in _KEYWORDS:
        return _KEYWORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    if text[:1] in {"[", "{"}:
        return yaml.safe_load(text)
    quoted = re.fullmatch(r"(['\"])(.*)\1", text, re.DOTALL)
    if quoted is None:
        return text
    # Backslashes are escapes only in front of a quote (hydra-core 1.3, QuotedString.with_quotes).
    escapes = re.compile(rf"(\\+)({quoted[1]}|$)")
    return escapes.sub(lambda run: "\\" * (len(run[1]) // 2) + run[2], quoted[2])


def apply_override(settings: Settings, override: str) -> None:
    """Apply one override in place.

    Raises:
        ConfigError: it is no override, sets a key that does not exist, or adds one that does.
    """
    match = _OVERRIDE.fullmatch(override)
    if match is None:
        raise ConfigError(f"'{override}' is no override: write key=value, for example grpo.max_num_steps=40")
    try:
        value = parse_value(match["value"])
    except yaml.YAMLError as error:
        raise ConfigError(f"the value of '{override}' cannot be read: {error}") from error
    *path, last = match["key"].split(".")
    section = settings
    for depth, name in enumerate(path):
        if name not in section and match["prefix"]:
            section[name] = {}
        if not isinstance(section.get(name), dict):
            raise ConfigError(_unknown(match["key"], ".".join(path[: depth + 1]), name, section))
        section = section[name]
    if match["prefix"] == "+" and last in section:
        raise ConfigError(f"{match['key']} cannot be added, it exists: write {match['key']}=..., without the +")
    if not match["prefix"] and last not in section:
        raise ConfigError(_unknown(match["key"], match["key"], last, section))
    section[last] = value


def _unknown(key: str, where: str, name: str, section: Settings) -> str:
    close = difflib.get_close_matches(name, section, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(section)}."
    return f"Could not override '{key}': there is no key {where}; {hint} To add a key, write +{key}=..."


def load_config(path: Path, overrides: list[str]) -> tuple[Settings, MasterConfig]:
    """Read the file and apply the overrides.

    Returns:
        The settings as they are saved with a checkpoint, and their typed view.

    Raises:
        ConfigError: the file, an override or a value cannot be used.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"the config {path} cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"the config {path} is no map of sections such as grpo, policy, checkpointing")
    for override in overrides:
        apply_override(settings, override)
    try:
        return settings, MasterConfig.model_validate(settings)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, problem['loc'])) or 'config'}: {problem['msg']}"
            + (f", got {problem['input']!r}" if problem["loc"] else "")
            for problem in error.errors()
        ]
        raise ConfigError("the config cannot be used:\n  " + "\n  ".join(lines)) from error
