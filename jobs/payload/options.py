"""The supervisor's command line."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line; see `parse` for meanings, units and defaults."""

    run_dir: Path
    checkpoint_dir: Path
    nodes: int
    gpus_per_node: int
    max_steps: int
    model_name: str | None
    release: str | None
    prefetch: str | None
    scale_raycluster: str | None
    max_run_s: float | None
    budget_gpu_hours: float | None
    workdir: Path
    settle_s: float
    max_crashes: int
    max_capacity_wait_s: float
    max_recovery_wait_s: float
    prefetch_limit_s: float
    setup_limit_s: float
    step_limit_s: float
    save_limit_s: float
    node_loss_settle_s: float
    lease_ttl_s: float
    environment: Mapping[str, str]
    command: tuple[str, ...]


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _object(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not (namespace and name) or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return text


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line; exits with code 2 on a bad one."""
    parser = argparse.ArgumentParser(prog="supervisor", description="Keep a training run going.", allow_abbrev=False)
    add = parser.add_argument
    add("--run-dir", type=Path, required=True, help="the run's directory on Lustre")
    add("--checkpoint-dir", type=Path, required=True, help="where the trainer saves")
    add("--nodes", type=int, required=True, help="GPU nodes that training needs")
    add("--gpus-per-node", type=int, required=True, help="GPUs of each")
    add("--max-steps", type=int, required=True, help="the step at which the run is done")
    add("--model-name", help="the model that a checkpoint must hold to be resumed from")
    add("--release", help="the trainer's release, which must have made the checkpoint that is resumed from")
    add("--prefetch", help="shell words of a command that brings the model into the cache, before GPUs are asked for")
    add("--scale-raycluster", type=_object, help="NAMESPACE/NAME whose workers are asked for and given back")
    add("--max-run-s", type=float, help="seconds of the run, over all its Ray jobs, after which it is stopped")
    add("--budget-gpu-hours", type=float, help="GPU-hours of the run, over all its Ray jobs, after which it is stopped")
    add("--workdir", type=Path, default=Path("/opt/nemo-rl"), help="where the training command runs")
    add("--settle-s", type=float, default=30, help="seconds without a change of nodes before a start")
    add("--max-crashes", type=int, default=3, help="crashes in a row without a step gained")
    add("--max-capacity-wait-s", type=float, default=86_400, help="seconds to wait for the first GPUs")
    add("--max-recovery-wait-s", type=float, default=43_200, help="seconds to wait for GPUs after that")
    add("--prefetch-limit-s", type=float, default=1_800, help="seconds in which the cache must have grown")
    add("--setup-limit-s", type=float, default=7_200, help="seconds until the first step; a model download counts")
    add("--step-limit-s", type=float, default=3_600, help="seconds for a step, validation included")
    add("--save-limit-s", type=float, default=3_600, help="seconds for a save")
    add("--node-loss-settle-s", type=float, default=25, help="seconds in which Ray notices a dead node")
    add("--lease-ttl-s", type=float, default=60, help="seconds after which a silent supervisor counts as dead")
    add("--env", type=_variable, action="append", default=[], dest="environment", help="variable of the trainer")
    add("command", nargs="+", help="the training command, after --")
    values = vars(parser.parse_args(arguments))
    return Options(**{**values, "environment": dict(values["environment"]), "command": tuple(values["command"])})
