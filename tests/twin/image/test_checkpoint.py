from pathlib import Path

import numpy as np
import pytest
from nemo_rl_cpu.checkpoint import CheckpointManager, TrainingState
from nemo_rl_cpu.optimizer import AdamState


def _state(step: int, **metrics: float) -> TrainingState:
    weights = {"w": np.full(3, step, dtype=np.float32)}
    return TrainingState(
        info={"total_steps": step, "optimizer_updates": step, **metrics},
        weights=weights,
        optimizer=AdamState(first=weights, second=weights, updates=step),
        loader={"position": step},
    )


def _manager(directory: Path, keep_top_k: int | None, metric_name: str | None = None) -> CheckpointManager:
    return CheckpointManager(
        checkpoint_dir=directory, metric_name=metric_name, higher_is_better=True, keep_top_k=keep_top_k
    )


@pytest.mark.parametrize(
    ("keep_top_k", "metric_name", "kept"),
    [
        (2, None, [3, 4]),
        (None, None, [1, 2, 3, 4]),
        (2, "val:accuracy", [1, 2, 4]),  # the best two and the newest
        (1, "val:other", [4]),  # no metric: the newest
    ],
)
def test_the_best_and_the_newest_checkpoints_are_kept(
    tmp_path: Path, keep_top_k: int | None, metric_name: str | None, kept: list[int]
) -> None:
    manager = _manager(tmp_path, keep_top_k, metric_name)
    for step, accuracy in enumerate([0.9, 0.8, 0.1, 0.2], start=1):
        manager.save(_state(step, **{"val:accuracy": accuracy}), {})
    assert list(manager.steps()) == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step_{step}" for step in kept]


def test_the_highest_step_is_resumed_and_leftovers_are_not(tmp_path: Path) -> None:
    manager = _manager(tmp_path, None)
    for step in (9, 10):
        manager.save(_state(step), {})
    (tmp_path / "tmp_step_12").mkdir()
    (tmp_path / "old_step_11").mkdir()
    latest = manager.load_latest()
    assert latest is not None
    assert latest.info["total_steps"] == 10
    assert latest.weights["w"].tolist() == latest.optimizer.second["w"].tolist() == [10, 10, 10]
    assert (latest.loader, latest.optimizer.updates) == ({"position": 10}, 10)


def test_a_stale_partial_save_of_the_same_step_is_written_anew(tmp_path: Path) -> None:
    stale = tmp_path / "tmp_step_2" / "policy" / "stale"
    stale.mkdir(parents=True)
    manager = _manager(tmp_path, None)
    manager.save(_state(2), {"grpo": {"seed": 1}})
    files = {str(path.relative_to(tmp_path / "step_2")) for path in (tmp_path / "step_2").rglob("*")}
    assert "policy/stale" not in files
    assert {"training_info.json", "config.yaml", "train_dataloader.json", "policy/weights/model.safetensors"} <= files


def test_a_step_that_is_saved_again_replaces_the_old_one(tmp_path: Path) -> None:
    manager = _manager(tmp_path, None)
    manager.save(_state(2, note=1), {})
    manager.save(_state(2, note=2), {})
    assert manager.read_info(tmp_path / "step_2")["note"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["step_2"]


def test_an_empty_directory_starts_from_nothing(tmp_path: Path) -> None:
    assert _manager(tmp_path / "never made", 2).load_latest() is None
