"""The genuine engine and the genuine SDK on the simulated cloud: preview, up, refresh, destroy."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from twin.cloud import faults
from twin.cloud.durations import SPEED_VARIABLE
from twin.cloud.launchers import write_launchers
from twin.cloud.store import ResourceType, Store
from twin.state import REPOSITORY, TwinState
from twin.toolchain import find_tool

pytestmark = pytest.mark.engine

TIMEOUT_S = 180


@dataclass
class Engine:
    """The engine on one stack; see stack.py for what it holds."""

    root: Path
    store: Store
    variables: dict[str, str]
    deletion_policy: str = "REMOVE_PEERING"
    description: str = "first"

    def run(self, operation: str) -> dict[str, Any]:
        """Return what the engine tells of an operation."""
        command = [sys.executable, "-m", "tests.twin.cloud.stack", operation, self.deletion_policy, self.description]
        printed = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=self.variables,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        ).stdout
        told: dict[str, Any] = json.loads(printed)
        return told


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    program = shutil.which("pulumi") or find_tool("pulumi")
    if program is None:
        pytest.fail("the engine is not built. Type: python -m twin.toolchain")
    state = TwinState(tmp_path / ".twin")
    write_launchers(state)
    for name in ("home", "backend"):
        (tmp_path / name).mkdir()
    variables = {
        "PATH": os.pathsep.join([str(state.bin_dir), str(Path(program).parent), os.defpath]),
        "HOME": str(tmp_path),
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'backend'}",
        "PULUMI_CONFIG_PASSPHRASE": "passphrase",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        SPEED_VARIABLE: "0",
    }
    return Engine(tmp_path, Store.open(state), variables)


def test_a_stack_goes_up_stays_unchanged_and_comes_down(engine: Engine) -> None:
    assert engine.run("preview")["counts"] == {"create": 10}
    assert engine.store.list() == []
    assert engine.run("up")["address"].startswith("10.")
    assert len(engine.store.list()) == 8
    assert engine.run("refresh")["counts"] == {"same": 10}
    assert engine.run("preview")["counts"] == {"same": 10}
    engine.run("destroy")
    assert engine.store.list() == []
    assert [event.kind for event in engine.store.events_since()] == ["Google refused", "REMOVE_PEERING"]


def test_the_policy_delete_meets_googles_refusal_once_and_ends_the_next_time(engine: Engine) -> None:
    engine.deletion_policy = "DELETE"
    engine.run("up")
    refused = engine.run("destroy")["error"]
    assert "Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection" in refused
    assert "REMOVE_PEERING" in refused
    assert "Traceback" not in refused
    assert ".py" not in refused
    assert {each.type for each in engine.store.list()} >= {ResourceType.CONNECTION, ResourceType.NETWORK}
    engine.run("destroy")
    assert engine.store.list() == []


def test_a_failed_up_goes_on_where_it_stopped(engine: Engine) -> None:
    engine.store.set_fault(faults.API_ERROR)
    assert "Error 500" in engine.run("up")["error"]
    assert "error" not in engine.run("up")
    assert len(engine.store.list()) == 8


def test_an_edit_that_google_cannot_make_in_place_replaces_the_network_and_what_stands_in_it(engine: Engine) -> None:
    engine.run("up")
    engine.description = "second"
    # Network, subnetwork, range, connection and instance: each names the network.
    assert engine.run("preview")["counts"] == {"same": 5, "replace": 5}
    assert "error" not in engine.run("destroy")
