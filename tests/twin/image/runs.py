"""Runs the trainer as its own process, without Ray, and reads what it left."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

IMAGE = Path(__file__).resolve().parents[3] / "twin" / "image"
PLAIN_RUN = """
import sys
from nemo_rl_cpu.main import main
from nemo_rl_cpu.rollouts import LocalWorkers
sys.exit(main(sys.argv[1:], connect=lambda cluster: LocalWorkers()))
"""
SMALL = (
    "policy.model_name=adder-4k",
    "policy.optimizer.kwargs.lr=2e-3",
    "grpo.max_num_steps=8",
    "grpo.val_period=4",
    "checkpointing.save_period=2",
    "checkpointing.keep_top_k=2",
)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Starts the trainer with overrides; all runs share one cache of base models."""

    model_cache: Path

    def environment(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return {**os.environ, **threads, "HF_HOME": str(self.model_cache), "PYTHONPATH": str(IMAGE / "nemo-rl")}

    def start(self, checkpoint_dir: Path, *overrides: str, before: str = "") -> subprocess.Popen[str]:
        """Start a run; `before` is Python that is executed first in its process."""
        return subprocess.Popen(
            [sys.executable, "-c", before + PLAIN_RUN, f"checkpointing.checkpoint_dir={checkpoint_dir}", *overrides],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, checkpoint_dir: Path, *overrides: str, before: str = "", exit_code: int = 0) -> str:
        """Run to the end, check the exit code and give back the log."""
        with self.start(checkpoint_dir, *overrides, before=before) as process:
            log, _ = process.communicate(timeout=120)
        assert process.returncode == exit_code, log
        return log


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run's log and checkpoints."""

    log: str
    checkpoint_dir: Path


def training_state(checkpoint: Path) -> dict[str, bytes]:
    """Read what a checkpoint holds of the training itself: all but the config, which names directories."""
    return {
        str(file.relative_to(checkpoint)): file.read_bytes()
        for file in checkpoint.rglob("*")
        if file.is_file() and file.name != "config.yaml"
    }
