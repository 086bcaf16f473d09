"""The training loop: NeMo-RL's order of things, and its log lines, which monitoring and supervision read."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nemo_rl_cpu import rollouts
from nemo_rl_cpu.checkpoint import CheckpointManager, TrainingState
from nemo_rl_cpu.config import MasterConfig, Settings
from nemo_rl_cpu.data import PROMPT_LENGTH, PromptLoader, Tokens, answer_mask, draw_operands, encode_prompts, score
from nemo_rl_cpu.grpo import Learner, Samples, group_advantages
from nemo_rl_cpu.model import Weights
from nemo_rl_cpu.optimizer import AdamState

# What follows the run's seed in a random stream's key, so that no two uses share a stream.
_TRAINING_DATA, _VALIDATION_DATA, _TRAINING, _VALIDATION = range(4)

Metrics = dict[str, float]


def training_loader(config: MasterConfig) -> PromptLoader:
    """Draw the training set and set up its loader, both from the run's seed."""
    rng = np.random.default_rng([config.grpo.seed, _TRAINING_DATA])
    operands = draw_operands(rng, count=config.data.num_samples, max_operand=config.data.max_operand)
    return PromptLoader(operands, batch_size=config.grpo.num_prompts_per_step, rng=rng)


@dataclass
class Timer:
    """Seconds spent in the named parts of a step."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Add the seconds spent in the block to a part."""
        start = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - start


@dataclass(kw_only=True)
class Trainer:
    """One run, from its newest checkpoint or from the base model to its last step.

    Attributes:
        config: what to do.
        settings: the config as it is saved with each checkpoint.
        workers: rollout workers that have loaded the model.
        learner: what makes new weights.
        checkpoints: where the run is saved.
        metrics_file: file for one JSON object a step, if wanted.
        loader: source of prompts, at the run's position.
        state: the run's state at its start.
    """

    config: MasterConfig
    settings: Settings
    workers: rollouts.Workers
    learner: Learner
    checkpoints: CheckpointManager
    metrics_file: Path | None
    loader: PromptLoader
    weights: Weights
    optimizer: AdamState
    info: dict[str, Any]

    def train(self) -> None:
        """Run until the last step or epoch, or until the run must have saved.

        Raises:
            OSError: a checkpoint could not be saved.
        """
        grpo = self.config.grpo
        deadline = time.monotonic() + self.config.checkpointing.must_save_by_s
        if grpo.val_at_start and self.info["total_steps"] == 0:
            print("\n🔍 Running initial validation...")
            self.workers.broadcast("set_weights", self.weights)
            self._validate(step=0)
        while self.info["current_epoch"] < grpo.max_num_epochs and self.info["total_steps"] < grpo.max_num_steps:
            print(f"\n{'=' * 25} Epoch {self.info['current_epoch'] + 1}/{grpo.max_num_epochs} {'=' * 25}")
            for operands in self.loader:
                timed_out = self._step(operands, deadline)
                if timed_out:
                    print("Timeout has been reached, stopping training early")
                    return
                if self.info["total_steps"] >= grpo.max_num_steps:
                    print("Max number of steps has been reached, stopping training early")
                    return
            self.info |= {"current_epoch": self.info["current_epoch"] + 1, "current_step": 0}

    def _step(self, operands: Tokens, deadline: float) -> bool:
        """Make one step; say whether the time for the last save has come."""
        grpo, checkpointing = self.config.grpo, self.config.checkpointing
        steps_in_epoch = min(len(self.loader), grpo.max_num_steps)
        print(f"\n{'=' * 25} Step {self.info['current_step'] + 1}/{steps_in_epoch} {'=' * 25}")
        timer = Timer()
        with timer.time("total_step_time"):
            samples, metrics = self._rollout(operands, timer)
            print("▶ Training policy...")
            with timer.time("policy_training"):
                self.weights, self.optimizer, metrics["loss"] = self.learner.learn(
                    self.weights, self.optimizer, samples
                )
            step = self.info["total_steps"] + 1
            self.info |= {
                "current_step": self.info["current_step"] + 1,
                "total_steps": step,
                "total_valid_tokens": self.info["total_valid_tokens"] + int(metrics["global_valid_toks"]),
                "consumed_samples": self.info["consumed_samples"] + grpo.num_prompts_per_step,
                "optimizer_updates": self.optimizer.updates,
            }
            validation: Metrics = {}
            if grpo.val_period and step % grpo.val_period == 0:
                self.workers.broadcast("set_weights", self.weights)
                validation = self._validate(step=step)
            ends_here = step >= grpo.max_num_steps or (
                self.info["current_epoch"] + 1 == grpo.max_num_epochs and self.info["current_step"] == len(self.loader)
            )
            timed_out = time.monotonic() >= deadline
            if checkpointing.enabled and (ends_here or timed_out or step % checkpointing.save_period == 0):
                self._note_metric(metrics, validation)
                with timer.time("checkpointing"):
                    print(f"Saving checkpoint for step {step}...")
                    self._save()
        self._report(metrics, validation, timer)
        return timed_out

    def _rollout(self, operands: Tokens, timer: Timer) -> tuple[Samples, Metrics]:
        """Answer each prompt as often as configured, and judge the answers."""
        grpo, policy = self.config.grpo, self.config.policy
        print("▶ Preparing batch...")
        with timer.time("data_processing"):
            operands = np.repeat(operands, grpo.num_generations_per_prompt, axis=0)
            prompts = encode_prompts(operands)
        print(f"▶ Generating responses for batch of size {len(prompts)}...")
        with timer.time("prepare_for_generation/total"):
            self.workers.broadcast("set_weights", self.weights)
        with timer.time("generation"):
            key = (grpo.seed, _TRAINING, self.info["total_steps"])
            sequences = rollouts.generate(self.workers, prompts, batch_size=policy.generation_batch_size, key=key)
        answers = sequences[:, PROMPT_LENGTH:]
        print("▶ Processing rewards...,")
        with timer.time("reward_calculation"):
            rewards = score(operands, answers)
            print("▶ Computing advantages...")
            advantages = group_advantages(
                rewards.reshape(-1, grpo.num_generations_per_prompt),
                leave_one_out=grpo.use_leave_one_out_baseline,
                normalize=grpo.normalize_rewards,
            ).ravel()
        print("▶ Computing logprobs...")
        with timer.time("policy_and_reference_logprobs"):
            logprobs, reference = rollouts.logprobs(self.workers, sequences, batch_size=policy.logprob_batch_size)
        samples = Samples(
            sequences=sequences, advantages=advantages, policy_logprobs=logprobs, reference_logprobs=reference
        )
        tokens = float(samples.mask.sum())
        return samples, {
            "reward": float(rewards.mean()),
            "global_valid_toks": tokens,
            "mean_gen_tokens_per_sample": tokens / len(sequences),
        }

    def _validate(self, *, step: int) -> Metrics:
        grpo, policy = self.config.grpo, self.config.policy
        start = time.perf_counter()
        print(f"▶ Starting validation at step {step}...")
        rng = np.random.default_rng([grpo.seed, _VALIDATION_DATA])
        operands = draw_operands(rng, count=grpo.max_val_samples, max_operand=self.config.data.max_operand)
        sequences = rollouts.generate(
            self.workers,
            encode_prompts(operands),
            batch_size=policy.generation_batch_size,
            key=(grpo.seed, _VALIDATION, step),
        )
        answers = sequences[:, PROMPT_LENGTH:]
        metrics = {
            "accuracy": float(score(operands, answers).mean()),
            "avg_length": float(answer_mask(answers).sum(axis=1).mean()),
        }
        print("\n📊 Validation Results:")
        print(f"    • Accuracy: {metrics['accuracy']:.4f}")
        print(f"    • Average response length: {metrics['avg_length']:.1f} tokens")
        print(f"    • Samples processed: {len(operands)}")
        print("\n  ⏱️  Validation Timing:")
        print(f"    • Total validation time: {time.perf_counter() - start:.2f}s")
        return metrics

    def _note_metric(self, metrics: Metrics, validation: Metrics) -> None:
        """Put what ranks the checkpoint into its info; without a validation in this step it ranks last.

        Raises:
            ValueError: there are such metrics, but none of that name.
        """
        self.info.pop("val_reward", None)
        if validation:
            self.info["val_reward"] = validation["accuracy"]
        name = self.config.checkpointing.metric_name
        if name is None:
            return
        self.info.pop(name, None)
        prefix, _, metric = name.partition(":")
        source = metrics if prefix == "train" else validation
        if not source:
            print(f"You asked to save checkpoints based on {metric} but no {prefix} metrics were collected.")
        elif metric not in source:
            raise ValueError(f"Metric {metric} not found in {prefix} metrics, which are {', '.join(source)}")
        else:
            self.info[name] = source[metric]

    def _save(self) -> None:
        state = TrainingState(
            info=self.info, weights=self.weights, optimizer=self.optimizer, loader=self.loader.state_dict()
        )
        self.checkpoints.save(state, self.settings)

    def _report(self, metrics: Metrics, validation: Metrics, timer: Timer) -> None:
        print("\n📊 Training Results:")
        print(f"  • Loss: {metrics['loss']:.4f}")
        print(f"  • Avg Reward: {metrics['reward']:.4f}")
        print(f"  • Mean Generation Length: {metrics['mean_gen_tokens_per_sample']:.4f}")
        print("\n⏱️  Timing:")
        total_s = timer.seconds["total_step_time"]
        print(f"  • Total step time: {total_s:.2f}s")
        for part, seconds in sorted(timer.seconds.items(), key=lambda item: item[1], reverse=True):
            if part != "total_step_time":
                print(f"  • {part}: {seconds:.2f}s ({seconds / total_s:.1%})")
        if self.metrics_file is not None:
            record = {
                "step": self.info["total_steps"],
                **{f"train/{name}": value for name, value in metrics.items()},
                **{f"validation/{name}": value for name, value in validation.items()},
                **{f"timing/train/{part}": seconds for part, seconds in timer.seconds.items()},
            }
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
