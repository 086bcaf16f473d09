"""The image's prefetch puts into the cache what training would have made for itself."""

import subprocess
import sys
from pathlib import Path

from tests.twin.image.runs import IMAGE, FinishedRun, Runner

SCRIPT = IMAGE / "nemo-rl" / "examples" / "prefetch.py"
WEIGHTS = Path("base_models/adder-4k/model.safetensors")


def prefetch(cache: Path, name: str) -> subprocess.CompletedProcess[str]:
    environment = {**Runner(model_cache=cache).environment()}
    return subprocess.run(
        [sys.executable, str(SCRIPT), name], env=environment, capture_output=True, text=True, check=False
    )


def test_the_cache_holds_the_bits_that_training_makes(runner: Runner, undisturbed: FinishedRun, tmp_path: Path) -> None:
    assert "SETUP COMPLETE" in undisturbed.log

    assert prefetch(tmp_path, "adder-4k").returncode == 0

    assert (tmp_path / WEIGHTS).read_bytes() == (runner.model_cache / WEIGHTS).read_bytes()


def test_a_model_in_the_cache_is_left_alone(tmp_path: Path) -> None:
    prefetch(tmp_path, "adder-4k")
    made = (tmp_path / WEIGHTS).stat()

    assert prefetch(tmp_path, "adder-4k").returncode == 0

    assert (tmp_path / WEIGHTS).stat().st_mtime_ns == made.st_mtime_ns


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    done = prefetch(tmp_path, "adder-9t")

    assert done.returncode == 2
    assert "adder-9t" in done.stdout
