"""The release that made the checkpoints, on a real directory."""

from pathlib import Path

import pytest

from jobs.payload.endings import Unrecoverable
from jobs.payload.run_identity import ReleaseFile


@pytest.fixture
def release(tmp_path: Path) -> ReleaseFile:
    return ReleaseFile(tmp_path / "release.json")


def test_another_release_is_refused_with_both_names(tmp_path: Path, release: ReleaseFile) -> None:
    (tmp_path / "step_2").mkdir()
    release.write("v0.4.0")

    with pytest.raises(Unrecoverable, match=r"release v0\.4\.0 .* v0\.5\.0 is to go on"):
        release.refuse_other(tmp_path, "v0.5.0")
    release.refuse_other(tmp_path, "v0.4.0")


def test_without_a_checkpoint_any_release_may_begin(tmp_path: Path, release: ReleaseFile) -> None:
    release.write("v0.4.0")
    release.refuse_other(tmp_path, "v0.5.0")
    release.write("v0.5.0")
    (tmp_path / "step_2").mkdir()

    release.refuse_other(tmp_path, "v0.5.0")


@pytest.mark.parametrize("text", ["", "[]", '{"release": 4}'])
def test_a_file_that_says_nothing_refuses_nothing(tmp_path: Path, release: ReleaseFile, text: str) -> None:
    (tmp_path / "step_2").mkdir()
    (tmp_path / "release.json").write_text(text)

    release.refuse_other(tmp_path, "v0.5.0")
