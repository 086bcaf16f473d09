"""The rendered entrypoint, read back by the supervisor that it starts."""

import shlex
from pathlib import Path

from jobs.entrypoint import MODULE, SupervisorOptions, render_entrypoint
from jobs.payload.options import parse

TRAINING = ["uv", "run", "python", "examples/run_grpo.py", "policy.model_name='a b'", "--config", "x.yaml"]


def options(**changes: object) -> SupervisorOptions:
    plain = {
        "run_dir": "/lustre/dev/grpo",
        "checkpoint_dir": "/lustre/dev/grpo/checkpoints",
        "nodes": 8,
        "gpus_per_node": 8,
        "max_steps": 20,
        "model_name": "Qwen/Qwen2.5-72B-Instruct",
    }
    return SupervisorOptions(**{**plain, **changes})  # type: ignore[arg-type]


def test_the_supervisor_understands_every_option_and_gets_the_training_command_as_it_is() -> None:
    given = options(
        settle_s=2.5,
        max_crashes=5,
        save_limit_s=900.0,
        environment={"A": "1", "B": "x=y z"},
        release="v0.4.0",
        prefetch="python -c 'print(1)' tiny",
        scale_raycluster="ray/grpo",
        max_run_s=3600.0,
        budget_gpu_hours=12.5,
        prefetch_limit_s=60.0,
        node_loss_settle_s=5.0,
    )

    words = shlex.split(render_entrypoint(given, TRAINING))

    assert words[:3] == ["python", "-m", MODULE]
    read = parse(words[3:])
    assert read.command == tuple(TRAINING)
    assert read.environment == {"A": "1", "B": "x=y z"}
    assert (read.run_dir, read.nodes, read.max_steps) == (Path("/lustre/dev/grpo"), 8, 20)
    assert (read.settle_s, read.max_crashes, read.save_limit_s) == (2.5, 5, 900.0)
    assert (read.release, read.prefetch) == ("v0.4.0", "python -c 'print(1)' tiny")
    assert (read.scale_raycluster, read.prefetch_limit_s, read.node_loss_settle_s) == ("ray/grpo", 60.0, 5.0)
    assert (read.max_run_s, read.budget_gpu_hours) == (3600.0, 12.5)


def test_a_default_that_changes_with_the_supervisor_changes_no_command() -> None:
    assert "--settle-s" not in render_entrypoint(options(), TRAINING)
