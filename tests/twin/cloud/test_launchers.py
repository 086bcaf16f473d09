"""The executables that stand on PATH for the engine and for clients of a cluster."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from twin.cloud.launchers import write_launchers
from twin.state import TwinState

TOKEN = "tok'en\"$(id)"


@pytest.fixture
def state(tmp_path: Path) -> TwinState:
    # A path that a shell would take apart.
    state = TwinState(tmp_path / "it's a state")
    write_launchers(state)
    return state


def test_the_auth_plugin_hands_out_the_twins_token_from_any_directory(state: TwinState, tmp_path: Path) -> None:
    state.access_token.write_text(TOKEN)
    printed = subprocess.run(
        [state.bin_dir / "gke-gcloud-auth-plugin"], capture_output=True, text=True, check=True, cwd=tmp_path, env={}
    ).stdout
    credential = json.loads(printed)
    assert (credential["kind"], credential["status"]["token"]) == ("ExecCredential", TOKEN)
    assert credential["apiVersion"] == "client.authentication.k8s.io/v1beta1"


def test_launchers_hold_no_token(state: TwinState) -> None:
    state.access_token.write_text(TOKEN)
    write_launchers(state)
    assert not [path.name for path in state.bin_dir.iterdir() if TOKEN in path.read_text()]


@pytest.mark.parametrize("program", ["pulumi-resource-gcp", "pulumi-resource-pulumi-python", "gke-gcloud-auth-plugin"])
def test_every_launcher_can_be_executed(state: TwinState, program: str) -> None:
    assert os.access(state.bin_dir / program, os.X_OK)


def test_the_provider_ends_with_the_engine_that_started_it(state: TwinState) -> None:
    # The shell between is the engine that dies; the provider inherits its output and closes it by ending.
    engine = subprocess.Popen(
        ["/bin/sh", "-c", f'"{state.bin_dir}/pulumi-resource-gcp" 127.0.0.1:1 & read _'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert engine.stdin is not None
    assert engine.stdout is not None
    assert engine.stdout.readline().strip().isdigit()
    engine.stdin.close()
    assert engine.wait(timeout=30) in {0, 1}
    assert engine.stdout.read() == ""
    engine.stdout.close()
