"""Checkpoints in NeMo-RL's layout: written as tmp_step_N, flushed to disk, renamed to step_N, then pruned.

A save blocks the step, as every save does in NeMo-RL v0.4.0. A checkpoint exists when step_N does; whatever else lies
in the directory is left over from a save that was interrupted, and is replaced when its step is saved again.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from safetensors.numpy import load_file, save

from nemo_rl_cpu.model import Weights
from nemo_rl_cpu.optimizer import AdamState

_STEP = re.compile(r"step_(\d+)")
_WEIGHTS = Path("policy/weights/model.safetensors")
_MOMENTS = {name: Path(f"policy/optimizer/{name}.safetensors") for name in ("first", "second")}


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """All that a run needs to go on as if it had never stopped.

    Attributes:
        info: counters and metrics, `training_info.json`; NeMo-RL's names, and Adam's number of updates.
        weights: the policy's weights.
        optimizer: Adam's state.
        loader: the prompt loader's random and data state, `train_dataloader.json`.
    """

    info: dict[str, Any]
    weights: Weights
    optimizer: AdamState
    loader: dict[str, Any]


def write_durably(file: Path, content: bytes) -> None:
    """Write a file, making its directory, and flush it to disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class CheckpointManager:
    """Saves, prunes and finds checkpoints; the fields are named as NeMo-RL's keys."""

    checkpoint_dir: Path
    metric_name: str | None
    higher_is_better: bool
    keep_top_k: int | None

    def steps(self) -> dict[int, Path]:
        """List whole checkpoints by step, oldest first."""
        found = {
            int(match[1]): path for path in self.checkpoint_dir.glob("step_*") if (match := _STEP.fullmatch(path.name))
        }
        return dict(sorted(found.items()))

    def save(self, state: TrainingState, settings: dict[str, Any]) -> None:
        """Save a checkpoint under its total step and prune older ones.

        Raises:
            OSError: it could not be written. Older checkpoints are whole; tmp_step_N may be left.
        """
        step = state.info["total_steps"]
        partial, final, replaced = (self.checkpoint_dir / f"{kind}step_{step}" for kind in ("tmp_", "", "old_"))
        files = {
            Path("training_info.json"): json.dumps(state.info).encode(),
            Path("config.yaml"): yaml.safe_dump(settings).encode(),
            Path("train_dataloader.json"): json.dumps(state.loader).encode(),
            _WEIGHTS: save(state.weights),
            **{path: save(getattr(state.optimizer, name)) for name, path in _MOMENTS.items()},
        }
        try:
            for leftover in (partial, replaced):
                if leftover.exists():
                    shutil.rmtree(leftover)
            for file, content in files.items():
                write_durably(partial / file, content)
            for directory in (*(path for path in partial.rglob("*") if path.is_dir()), partial):
                _flush_directory(directory)
            if final.exists():
                final.rename(replaced)
            partial.rename(final)
            _flush_directory(self.checkpoint_dir)
        except OSError as error:
            print(f"Failed to save checkpoint to {partial}: {error}")
            raise
        if replaced.exists():
            shutil.rmtree(replaced)
        self._prune()

    def _prune(self) -> None:
        """Keep the best `keep_top_k`, by metric and then by step, and the newest in any case."""
        steps = self.steps()
        if self.keep_top_k is None:
            return
        sign = 1 if self.higher_is_better else -1

        def rank(step: int) -> tuple[float, int]:
            if self.metric_name is None:
                return 0.0, step
            value = self.read_info(steps[step]).get(self.metric_name)
            return (-float("inf") if value is None else sign * value), step

        for step in sorted(steps, key=rank, reverse=True)[self.keep_top_k :]:
            if step != max(steps):
                print(f"Removing checkpoint {steps[step]} due to being outside top-{self.keep_top_k}")
                shutil.rmtree(steps[step])

    def read_info(self, checkpoint: Path) -> dict[str, Any]:
        """Read a checkpoint's `training_info.json`."""
        info: dict[str, Any] = json.loads((checkpoint / "training_info.json").read_text(encoding="utf-8"))
        return info

    def load_latest(self) -> TrainingState | None:
        """Load the checkpoint of the highest step, if there is one."""
        steps = self.steps()
        if not steps:
            return None
        newest = steps[max(steps)]
        info = self.read_info(newest)
        moments = {name: load_file(newest / path) for name, path in _MOMENTS.items()}
        print(f"Resuming from checkpoint {newest}")
        return TrainingState(
            info=info,
            weights=load_file(newest / _WEIGHTS),
            optimizer=AdamState(**moments, updates=info["optimizer_updates"]),
            loader=json.loads((newest / "train_dataloader.json").read_text(encoding="utf-8")),
        )
