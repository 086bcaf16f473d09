"""Puts the image's package on the path, and makes the runs that several tests look at."""

import sys

import pytest

from tests.twin.image.runs import IMAGE, SMALL, FinishedRun, Runner

sys.path.insert(0, str(IMAGE / "nemo-rl"))


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(model_cache=tmp_path_factory.mktemp("huggingface"))


@pytest.fixture(scope="session")
def undisturbed(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """The small run, from its first step to its last in one go."""
    checkpoint_dir = tmp_path_factory.mktemp("undisturbed")
    return FinishedRun(log=runner.run(checkpoint_dir, *SMALL), checkpoint_dir=checkpoint_dir)
