"""Leftovers on a real directory, in the layouts of NeMo-RL and Megatron-Bridge."""

from pathlib import Path

import pytest

from jobs.payload import leftovers


def make(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "weights").write_bytes(name.encode())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_interrupted_save_is_moved_and_checkpoints_stay(tmp_path: Path) -> None:
    make(tmp_path / "checkpoints", "step_2", "tmp_step_4")

    told = leftovers.clear_saves(tmp_path / "checkpoints", tmp_path / "set-aside")

    assert names(tmp_path / "checkpoints") == ["step_2"]
    assert (tmp_path / "set-aside" / "tmp_step_4.1" / "weights").read_bytes() == b"tmp_step_4"
    assert len(told) == 1


def test_a_checkpoint_whose_removal_was_interrupted_is_set_aside_but_never_the_newest(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    make(directory, "step_2", "step_4", "step_6")
    (directory / "step_4" / "training_info.json").write_text("{}")

    (told,) = leftovers.clear_saves(directory, tmp_path / "set-aside")

    assert names(directory) == ["step_4", "step_6"]
    assert told.startswith("step_2, left by an interrupted removal, is set aside")


def test_of_many_leftovers_the_newest_is_kept_and_every_deletion_is_told(tmp_path: Path) -> None:
    directory, aside = tmp_path / "checkpoints", tmp_path / "set-aside"
    told = []
    for name in ("tmp_step_10", "tmp_step_4", "tmp_step_4"):
        make(directory, name)
        told += leftovers.clear_saves(directory, aside)

    assert names(aside) == ["tmp_step_4.3"]
    assert [sentence for sentence in told if "is deleted" in sentence] == [
        f"{aside / 'tmp_step_10.1'}, set aside earlier, is deleted: only the newest leftover is kept",
        f"{aside / 'tmp_step_4.2'}, set aside earlier, is deleted: only the newest leftover is kept",
    ]


def test_the_only_copy_of_a_checkpoint_gets_its_name_back(tmp_path: Path) -> None:
    make(tmp_path / "checkpoints", "old_step_4", "tmp_step_4")

    leftovers.clear_saves(tmp_path / "checkpoints", tmp_path / "set-aside")

    assert (tmp_path / "checkpoints" / "step_4" / "weights").read_text() == "old_step_4"
    assert names(tmp_path / "set-aside") == ["tmp_step_4.1"]


@pytest.mark.parametrize("variable", ["HF_HOME", "NRL_MEGATRON_CHECKPOINT_DIR"])
def test_a_partial_import_is_moved_and_a_whole_one_of_the_same_cache_stays(tmp_path: Path, variable: str) -> None:
    cache = tmp_path / "nemo_rl" if variable == "HF_HOME" else tmp_path
    make(cache, "Qwen/tiny/iter_0000000", "Qwen/tiny__hfovr_1a/iter_0000000", "Qwen/tiny-2/iter_0000000")
    (cache / "Qwen/tiny__hfovr_1a/iter_0000000/run_config.yaml").touch()

    told = leftovers.clear_import({variable: str(tmp_path)}, "Qwen/tiny")

    assert names(cache / "Qwen") == ["tiny-2", "tiny__hfovr_1a"]
    assert names(cache / "set-aside") == ["tiny.1"]
    assert len(told) == 1


def test_without_a_cache_there_is_no_import() -> None:
    assert leftovers.clear_import({}, "Qwen/tiny") == []
