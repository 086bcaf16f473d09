import os
import subprocess
import sys
from pathlib import Path

import pytest

from twin.kubernetes.lustre_mounts import apply_layer
from twin.state import REPOSITORY


@pytest.mark.engine
def test_a_full_file_system_refuses_writes_of_running_and_new_containers_and_keeps_what_was_there(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "a, b: c" / "instance"
    for step, weights in (("step_1", "one"), ("step_2", "two")):
        (directory / step).mkdir(parents=True)
        (directory / step / "weights").write_text(weights)
    agent = Path(__file__).with_name("lustre_agent.py")
    own_root = ["unshare", "--user", "--map-root-user", "--"] if os.geteuid() else []
    done = subprocess.run(
        [*own_root, sys.executable, str(agent), str(directory)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.endswith("PASSED\n"), done.stdout + done.stderr


def test_what_was_written_above_goes_to_what_is_below(tmp_path: Path) -> None:
    layer, below = tmp_path / "layer", tmp_path / "below"
    (layer / "step_2").mkdir(parents=True)
    (layer / "step_2" / "weights").write_text("new")
    (layer / "latest").symlink_to("step_2")
    (below / "step_1").mkdir(parents=True)
    (below / "step_1" / "weights").write_text("old")
    (below / "latest").symlink_to("step_1")
    apply_layer(layer, below)
    assert sorted(path.name for path in below.iterdir()) == ["latest", "step_1", "step_2"]
    assert (below / "latest" / "weights").read_text() == "new"
    assert (below / "step_1" / "weights").read_text() == "old"
