"""Checkpoints on a real directory, in NeMo-RL's layout."""

from pathlib import Path

import pytest

from jobs.payload import checkpoints


def make(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "weights").write_bytes(name.encode())


def test_steps_are_ordered_as_numbers_and_leftovers_are_none(tmp_path: Path) -> None:
    make(tmp_path, "step_2", "step_10", "tmp_step_12", "old_step_10", "step_x")

    assert checkpoints.steps(tmp_path) == [2, 10]
    assert checkpoints.newest(tmp_path) == 10


def test_a_directory_that_is_not_there_has_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path / "none") == 0


def test_size_counts_files_at_every_depth(tmp_path: Path) -> None:
    make(tmp_path, "step_2/policy/weights")
    (tmp_path / "step_2" / "config.yaml").write_bytes(bytes(100))

    assert checkpoints.measure(tmp_path, 2) == (100 + len("step_2/policy/weights"), 2)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("policy:\n  model_name: Qwen/Qwen2.5-72B-Instruct\n", "Qwen/Qwen2.5-72B-Instruct"),
        ("cluster: {}\npolicy:\n  dtensor:\n    model_name: inner\n  model_name: 'outer'\nz: 1\n", "outer"),
        ("data:\n  model_name: other\npolicy:\n  lr: 1\n", None),
        ("", None),
    ],
)
def test_the_model_is_policys_own(tmp_path: Path, text: str, name: str | None) -> None:
    (tmp_path / "step_2").mkdir()
    (tmp_path / "step_2" / "config.yaml").write_text(text)

    assert checkpoints.model_of(tmp_path, 2) == name
