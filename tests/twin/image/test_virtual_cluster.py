import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.twin.image.ray_runs import GPU_NODES, GPUS_PER_NODE
from tests.twin.image.runs import SMALL, Runner, training_state


def _can_isolate() -> bool:
    """Say whether this user may make a network namespace."""
    command = ["unshare", "-rn", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


@pytest.mark.ray
@pytest.mark.skipif(not _can_isolate(), reason="Ray would listen beyond loopback: no network namespaces here")
def test_on_ray_the_bits_are_the_same_and_missing_gpus_end_the_run(runner: Runner, tmp_path: Path) -> None:
    short = (*SMALL, "grpo.max_num_steps=4", f"cluster.gpus_per_node={GPUS_PER_NODE}")
    fits = [*short, f"cluster.num_nodes={GPU_NODES}", f"checkpointing.checkpoint_dir={tmp_path / 'ray'}"]
    too_large = [*short, "cluster.num_nodes=4", f"checkpointing.checkpoint_dir={tmp_path / 'none'}"]
    runs = ["-m", "tests.twin.image.ray_runs", json.dumps([fits, too_large])]
    process = subprocess.run(
        ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *runs],
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HF_HOME": str(runner.model_cache),
            "NRL_VIRTUAL_CLUSTER_MAX_RETRIES": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    (fits_code, fits_log), (large_code, large_log) = json.loads(process.stdout.splitlines()[-1])

    assert fits_code == 0, fits_log
    runner.run(tmp_path / "local", *short, "cluster.num_nodes=2")
    assert training_state(tmp_path / "ray" / "step_4") == training_state(tmp_path / "local" / "step_4")

    assert large_code == 1
    assert "Not enough GPUs available. Requested 32 GPUs, but only 16 are available" in large_log
    assert "ResourceInsufficientError: Maximum number of retries reached (1)" in large_log
    assert not (tmp_path / "none").exists()
