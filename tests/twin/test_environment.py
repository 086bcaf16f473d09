"""The engine and its providers work inside the state directory and know nothing of the caller's clouds."""

import subprocess
import sys
from pathlib import Path

import pytest

from twin import environment
from twin.state import TwinState


@pytest.fixture
def state(tmp_path: Path) -> TwinState:
    state = TwinState(tmp_path / "state")
    environment.prepare(state)
    return state


def test_temporary_files_of_the_engines_programs_lie_in_the_state_directory(state: TwinState) -> None:
    program = "import tempfile; print(tempfile.mkstemp(prefix='kubeconfig')[1])"
    made = subprocess.run(
        [sys.executable, "-c", program], env=environment.complete(state), capture_output=True, text=True, check=True
    )

    assert Path(made.stdout.strip()).is_relative_to(state.root)


def test_nothing_of_the_callers_clouds_goes_along(state: TwinState, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "KUBECONFIG": "/kubeconfig", "RAY_ADDRESS": "ray://x"}
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)

    assert foreign.keys() & environment.complete(state).keys() == set()
