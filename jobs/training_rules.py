"""What NeMo-RL refuses or regrets, checked on the merged config before a GPU is asked for.

Each rule is a pure function of the plan and names its source in NeMo-RL at v0.4.0; a wrong batch shape, for one, ends a
run in its first step, after 64 GPUs have generated the samples. A rule whose inputs are unknown says nothing.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobs.problems import Problem, Severity
from jobs.releases import Scalar


class Backend(StrEnum):
    """What trains the policy, by the name of its section in the trainer's config."""

    MEGATRON = "megatron_cfg"
    DTENSOR = "dtensor_cfg"


_GENERATION_TENSOR = "policy.generation.vllm_cfg.tensor_parallel_size"
_GENERATION_PIPELINE = "policy.generation.vllm_cfg.pipeline_parallel_size"
_COLOCATED = "policy.generation.colocated.enabled"
_GENERATION_NODES = "policy.generation.colocated.resources.num_nodes"
_GENERATION_GPUS = "policy.generation.colocated.resources.gpus_per_node"


def backend_of(config: Mapping[str, Scalar]) -> Backend | None:
    """The backend that a merged config switches on; none for a trainer that knows neither."""
    return next((backend for backend in Backend if config.get(f"policy.{backend}.enabled") is True), None)


def parallelism_keys(backend: Backend | None) -> dict[str, str]:
    """Keys of the parallel sizes in a backend's section, by the recipe's names for them."""
    match backend:
        case Backend.MEGATRON:
            names = {
                "tensor": "tensor_model_parallel_size",
                "pipeline": "pipeline_model_parallel_size",
                "context": "context_parallel_size",
            }
        case Backend.DTENSOR:
            names = {"tensor": "tensor_parallel_size", "context": "context_parallel_size"}
        case None:
            return {}
    return {
        **{name: f"policy.{backend}.{key}" for name, key in names.items()},
        "generation_tensor": _GENERATION_TENSOR,
    }


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A merged config on a number of nodes.

    Attributes:
        config: NeMo-RL's dotted keys and the values that the trainer will see.
        nodes: GPU nodes of the run.
        gpus_per_node: GPUs of each.
        names: dotted key to the name under which the user writes it.
        section: where the recipe stands in the user's file.
        overridden: keys that the user set through `overrides`.
    """

    config: Mapping[str, Scalar]
    nodes: int
    gpus_per_node: int
    names: Mapping[str, str]
    section: str
    overridden: frozenset[str] = frozenset()

    @property
    def backend(self) -> Backend | None:
        """What trains the policy."""
        return backend_of(self.config)

    def number(self, key: str) -> int | None:
        """A key's value where it is a number, not an interpolation."""
        value = self.config.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def is_on(self, key: str) -> bool:
        """Whether a switch is true; absent and interpolated ones are not."""
        return self.config.get(key) is True

    def name(self, key: str) -> str:
        """How the user writes a NeMo-RL key."""
        return self.names.get(key, f"{self.section}.overrides.{key}")

    def problem(self, key: str, reason: str, remedy: str, *, severity: Severity = Severity.ERROR) -> Problem:
        """State a problem of one key under the user's name for it."""
        return Problem(
            key=self.name(key), value=str(self.config.get(key)), reason=reason, remedy=remedy, severity=severity
        )


def _backend_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """Megatron or DTensor, not both and not neither (`models/policy/lm_policy.py`, `Policy.__init__`)."""
    switches = [f"policy.{backend}.enabled" for backend in Backend]
    if not any(switch in plan.config for switch in switches):
        return
    on = [switch for switch in switches if plan.is_on(switch)]
    if len(on) != 1:
        yield plan.problem(
            switches[0],
            f"{'both training backends are' if on else 'no training backend is'} switched on, and NeMo-RL wants one",
            f"Set one of {' and '.join(switches)} to true, the other to false",
        )


def _generation_world(plan: TrainingPlan) -> int:
    """GPUs of generation where it has some of its own, else all."""
    if plan.config.get(_COLOCATED) is not False:
        return plan.nodes * plan.gpus_per_node
    if plan.nodes == 1:
        return plan.number(_GENERATION_GPUS) or 0
    return (plan.number(_GENERATION_NODES) or 0) * plan.gpus_per_node


def _training_world(plan: TrainingPlan) -> int:
    """GPUs of training: all of them unless generation has its own."""
    world = plan.nodes * plan.gpus_per_node
    return world - _generation_world(plan) if plan.config.get(_COLOCATED) is False else world


def _generation_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """Where generation runs (`algorithms/grpo.py`, `setup`), and vLLM's size (`vllm_generation.py`)."""
    if plan.is_on("grpo.async_grpo.enabled"):
        if plan.config.get(_COLOCATED) is not False:
            yield plan.problem(
                _COLOCATED,
                "asynchronous GRPO generates while it trains, so generation needs GPUs of its own",
                f"Set {_COLOCATED} to false with {_GENERATION_NODES}, or switch grpo.async_grpo.enabled off",
            )
        if plan.config.get("loss_fn.use_importance_sampling_correction") is False:
            yield plan.problem(
                "loss_fn.use_importance_sampling_correction",
                "asynchronous GRPO trains on samples of an older policy and refuses to do so uncorrected",
                "Set it to true",
            )
    if plan.config.get(_COLOCATED) is False:
        yield from _split_problems(plan)
    tensor = plan.number(_GENERATION_TENSOR)
    if tensor is None:
        return
    copy = tensor * (plan.number(_GENERATION_PIPELINE) or 1)
    world = _generation_world(plan)
    if world % copy or world < copy:
        yield plan.problem(
            _GENERATION_TENSOR,
            f"one vLLM copy takes {copy} GPUs, which does not divide the {world} GPUs that generate",
            f"Use a divisor of {world}, or nodes so that {copy} divides their GPUs",
        )


def _split_problems(plan: TrainingPlan) -> Iterator[Problem]:
    if plan.nodes == 1:
        if not 0 < (plan.number(_GENERATION_GPUS) or 0) < plan.gpus_per_node:
            yield plan.problem(
                _GENERATION_GPUS,
                f"generation and training share one node of {plan.gpus_per_node} GPUs and each needs some",
                f"Use 1 to {plan.gpus_per_node - 1}",
            )
        return
    if not 0 < (plan.number(_GENERATION_NODES) or 0) < plan.nodes:
        yield plan.problem(
            _GENERATION_NODES,
            f"generation takes whole nodes of the {plan.nodes}, and training needs at least one",
            f"Use 1 to {plan.nodes - 1}",
        )
    if plan.number(_GENERATION_GPUS) != plan.gpus_per_node:
        yield plan.problem(
            _GENERATION_GPUS,
            "generation nodes are taken whole",
            f"Set it to {plan.gpus_per_node}",
        )


def _parallel_sizes(plan: TrainingPlan) -> dict[str, int]:
    keys = parallelism_keys(plan.backend)
    return {name: plan.number(key) or 1 for name, key in keys.items() if name != "generation_tensor"}


def _copy_gpus(plan: TrainingPlan) -> int:
    """GPUs that hold one copy of the model in training."""
    return math.prod(_parallel_sizes(plan).values())


def data_parallel_size(plan: TrainingPlan) -> int | None:
    """Copies of the model that train side by side; none if they do not fit or the trainer knows no backend."""
    copy, world = _copy_gpus(plan), _training_world(plan)
    return world // copy if plan.backend and world > 0 and world % copy == 0 else None


def _world_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """Training GPUs are a whole number of copies of the model (`models/policy/lm_policy.py`, `Policy.__init__`)."""
    world = _training_world(plan)
    if plan.backend is None or world <= 0 or data_parallel_size(plan) is not None:
        return
    copy = _copy_gpus(plan)
    sizes = " x ".join(f"{name} {size}" for name, size in _parallel_sizes(plan).items())
    step = copy // math.gcd(copy, plan.gpus_per_node)
    below = world // plan.gpus_per_node // step * step
    nodes = " or ".join(str(count) for count in (below, below + step) if count)
    yield plan.problem(
        parallelism_keys(plan.backend)["tensor"],
        f"one copy of the model takes {copy} GPUs ({sizes}), and the {world} that train are no multiple of it",
        f"Train on {nodes} nodes of {plan.gpus_per_node} GPUs, or change the parallel sizes",
    )


def _batch_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """Samples, global batch and data parallel size fit (`Policy.train`, `BatchedDataDict.shard_by_batch_size`)."""
    prompts = plan.number("grpo.num_prompts_per_step")
    generations = plan.number("grpo.num_generations_per_prompt")
    batch = plan.number("policy.train_global_batch_size")
    ranks = data_parallel_size(plan)
    samples = prompts * generations if prompts and generations else None
    if samples and batch and samples % batch:
        yield plan.problem(
            "policy.train_global_batch_size",
            f"a step makes {prompts} x {generations} = {samples} samples, which are no multiple of it, "
            "and the first step would fail after it has generated them",
            f"Use a divisor of {samples}, for example {math.gcd(samples, batch)}",
        )
    if samples and ranks and samples % ranks:
        yield plan.problem(
            "grpo.num_prompts_per_step",
            f"{prompts} x {generations} = {samples} samples cannot be shared evenly by {ranks} data parallel ranks",
            f"Make the samples of a step a multiple of {ranks}",
        )
    if batch and ranks and batch % ranks:
        yield plan.problem(
            "policy.train_global_batch_size",
            f"it cannot be shared evenly by {ranks} data parallel ranks",
            f"Use a multiple of {ranks}",
        )
    # Sequence packing and dynamic batching make micro-batches by tokens.
    packed = plan.is_on("policy.sequence_packing.enabled") or plan.is_on("policy.dynamic_batching.enabled")
    micro = plan.number("policy.train_micro_batch_size")
    if not packed and batch and ranks and micro and batch % ranks == 0 and batch // ranks % micro:
        yield plan.problem(
            "policy.train_micro_batch_size",
            f"each of {ranks} data parallel ranks gets {batch // ranks} samples, which are no multiple of it",
            f"Use a divisor of {batch // ranks}",
        )


def _dynamic_batching_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """Dynamic batching wants one pipeline stage and no packing (`models/policy/lm_policy.py`, `Policy.__init__`)."""
    key = "policy.dynamic_batching.enabled"
    if not plan.is_on(key):
        return
    stages = _parallel_sizes(plan).get("pipeline", 1)
    if stages != 1:
        yield plan.problem(
            key,
            f"dynamic batching works with one pipeline stage, and this config has {stages}",
            "Set the pipeline parallel size to 1, or use policy.sequence_packing.enabled instead",
        )
    if plan.is_on("policy.sequence_packing.enabled"):
        yield plan.problem(
            key,
            "dynamic batching and sequence packing exclude each other",
            "Set policy.sequence_packing.enabled to false, or leave dynamic batching off",
        )


def _checkpoint_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """What is saved, when, and by which metric (`algorithms/grpo.py`, `grpo_train`)."""
    key = "checkpointing.metric_name"
    metric = plan.config.get(key)
    save_period = plan.number("checkpointing.save_period")
    val_period = plan.number("grpo.val_period")
    max_num_steps = plan.number("grpo.max_num_steps")
    if isinstance(metric, str) and not re.fullmatch(r"(train|val):.+", metric):
        yield plan.problem(
            key,
            "NeMo-RL finds a metric by val: or train: before its name, and would stop at the first save",
            f"Write val:{metric} or train:{metric}, or null to keep the newest checkpoints",
        )
    if (
        save_period
        and val_period
        and isinstance(metric, str)
        and metric.startswith("val:")
        and save_period % val_period
    ):
        yield plan.problem(
            key,
            f"checkpoints come every {save_period} steps, validation every {val_period}: those saved between "
            "validations have no such metric and are the first to be removed",
            f"Make save_period a multiple of {val_period}, or set metric_name to null",
            severity=Severity.WARNING,
        )
    if save_period and val_period and save_period < val_period:
        yield plan.problem(
            "checkpointing.save_period",
            f"saving more often than validating (every {val_period} steps) has run out of GPU memory "
            "(NeMo-RL's public issue 1137)",
            f"Use at least {val_period}, or validate as often as you save",
            severity=Severity.WARNING,
        )
    if save_period and max_num_steps and save_period > max_num_steps:
        yield plan.problem(
            "checkpointing.save_period",
            f"the run ends at step {max_num_steps}, so nothing is saved before that and a preemption costs all",
            f"Use less than {max_num_steps}",
            severity=Severity.WARNING,
        )


def _dead_key_problems(plan: TrainingPlan) -> Iterator[Problem]:
    """Keys that a config file holds and no code reads (searched for at v0.4.0 and v0.6.0)."""
    key = "policy.megatron_cfg.converter_type"
    if plan.backend is Backend.MEGATRON and key in plan.overridden:
        yield plan.problem(
            key,
            "no code of NeMo-RL reads this key, so it changes nothing",
            "Remove it: the model's own config says what it is",
            severity=Severity.WARNING,
        )


_RULES = (
    _backend_problems,
    _world_problems,
    _generation_problems,
    _batch_problems,
    _dynamic_batching_problems,
    _checkpoint_problems,
    _dead_key_problems,
)


def training_problems(plan: TrainingPlan) -> list[Problem]:
    """Apply every rule to a plan."""
    return [problem for rule in _RULES for problem in rule(plan)]
