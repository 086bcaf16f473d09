"""Sets a run up, in the order and with the lines of NeMo-RL's entry script."""

import argparse
import os
import pprint
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nemo_rl_cpu.base_model import BASE_MODELS, load_base_model
from nemo_rl_cpu.checkpoint import CheckpointManager
from nemo_rl_cpu.config import ClusterConfig, ConfigError, MasterConfig, Settings, load_config
from nemo_rl_cpu.grpo import Learner, LossTerms
from nemo_rl_cpu.optimizer import Adam, AdamState
from nemo_rl_cpu.rollouts import Workers
from nemo_rl_cpu.trainer import Trainer, training_loader

DEFAULT_CONFIG = Path(__file__).resolve().parent.parent / "examples" / "configs" / "grpo_cpu.yaml"


def model_cache() -> Path:
    """Where base models are kept: beside the hub's in $HF_HOME, else in its default place."""
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(home).expanduser() / "base_models"


def next_experiment_dir(log_dir: Path) -> Path:
    """Make the directory exp_NNN that follows those in `log_dir`."""
    numbers = [int(match[1]) for path in log_dir.glob("exp_*") if (match := re.fullmatch(r"exp_(\d+)", path.name))]
    directory = log_dir / f"exp_{max(numbers, default=0) + 1:03d}"
    directory.mkdir(parents=True)
    return directory


def setup(config: MasterConfig, settings: Settings, connect: Callable[[ClusterConfig], Workers]) -> Trainer:
    """Find the newest checkpoint, get workers and model, and put the run together."""
    policy = config.policy
    metrics_file = None
    if config.logger.log_dir is not None:
        experiment_dir = next_experiment_dir(config.logger.log_dir)
        print(f"📊 Using log directory: {experiment_dir}")
        metrics_file = experiment_dir / "metrics.jsonl"
    checkpointing = config.checkpointing
    if checkpointing.enabled:
        print(f"📊 Using checkpoint directory: {checkpointing.checkpoint_dir}")
    checkpoints = CheckpointManager(**checkpointing.model_dump(include=set(CheckpointManager.__dataclass_fields__)))
    resumed = checkpoints.load_latest()

    print("\n▶ Setting up compute cluster...")
    workers = connect(config.cluster)
    print("\n▶ Setting up model and training...")
    shape = BASE_MODELS[policy.model_name].shape
    reference = load_base_model(policy.model_name, model_cache())
    workers.broadcast("load", shape, reference)

    loader = training_loader(config)
    if resumed is not None:
        loader.load_state_dict(resumed.loader)
    counters = ("current_step", "total_steps", "current_epoch", "total_valid_tokens", "consumed_samples")
    trainer = Trainer(
        config=config,
        settings=settings,
        workers=workers,
        learner=Learner(
            shape=shape,
            terms=LossTerms(**config.loss_fn.model_dump()),
            adam=Adam(**policy.optimizer.arguments.model_dump(), max_grad_norm=policy.max_grad_norm),
            global_batch_size=policy.train_global_batch_size,
            micro_batch_size=policy.train_micro_batch_size,
        ),
        checkpoints=checkpoints,
        metrics_file=metrics_file,
        loader=loader,
        weights=resumed.weights if resumed else reference,
        optimizer=resumed.optimizer if resumed else AdamState.zero(reference),
        info=resumed.info if resumed else dict.fromkeys(counters, 0),
    )
    print("\n" + "=" * 60 + "\n" + " " * 18 + "SETUP COMPLETE\n" + "=" * 60 + "\n")
    return trainer


def main(arguments: Sequence[str], *, connect: Callable[[ClusterConfig], Workers]) -> int:
    """Run GRPO to its end.

    Args:
        arguments: `--config FILE` and overrides.
        connect: gives the workers for a cluster config.

    Returns:
        0 at the end of the run, 2 for a config that cannot be used. Whatever ends a run early is raised, and stands in
        the log with its traceback, as it does for NeMo-RL: supervision reads it there.
    """
    # A line is in the log when it is printed, so that a run that is killed has said what it did.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description="Run GRPO training with configuration")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="Path to YAML config file")
    options, overrides = parser.parse_known_args(arguments)
    try:
        settings, config = load_config(options.config, overrides)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"Loaded configuration from: {options.config}")
    if overrides:
        print(f"Overrides: {overrides}")
    print("Final config:")
    pprint.pprint(settings)
    trainer = setup(config, settings, connect)
    print("🚀 Running synchronous GRPO training")
    trainer.train()
    return 0
