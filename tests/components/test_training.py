"""The entrypoint is the supervisor's command with the recipe's training command behind it."""

import shlex

from components.config import parse_config
from components.training import training_entrypoint
from tests.program import changed, stack_settings


def test_the_supervisor_learns_what_the_trainer_is_told() -> None:
    config = parse_config("dev", stack_settings("dev"))
    words = shlex.split(training_entrypoint(config))
    supervisor, training = words[: words.index("--")], words[words.index("--") + 1 :]
    assert supervisor[supervisor.index("--max-steps") + 1] == "20"
    assert "grpo.max_num_steps=20" in training
    assert supervisor[supervisor.index("--checkpoint-dir") + 1] == config.checkpoint_dir
    assert f"checkpointing.checkpoint_dir={config.checkpoint_dir}" in training
    assert f"logger.log_dir={config.log_dir}" in training
    assert supervisor[supervisor.index("--nodes") + 1] == "8"
    assert "cluster.num_nodes=8" in training


def test_limits_are_passed_on_and_left_out_where_the_default_holds() -> None:
    limited = changed(stack_settings("dev"), job__limits={"max_crashes": 5})
    assert "--max-crashes 5" in training_entrypoint(parse_config("dev", limited))
    assert "--max-crashes" not in training_entrypoint(parse_config("dev", stack_settings("dev")))


def test_no_secret_and_no_label_is_part_of_the_job_s_identity() -> None:
    labelled = changed(stack_settings("dev"), project__labels={"team": "rl"})
    before = training_entrypoint(parse_config("dev", stack_settings("dev")))
    assert training_entrypoint(parse_config("dev", labelled)) == before


def option(entrypoint: str, name: str) -> str | None:
    words = shlex.split(entrypoint)
    return words[words.index(name) + 1] if name in words else None


def test_the_model_is_fetched_as_the_release_says_unless_the_config_says_not() -> None:
    for stack, model in (("dev", "Qwen/Qwen2.5-72B-Instruct"), ("local", "adder-100k")):
        command = option(training_entrypoint(parse_config(stack, stack_settings(stack))), "--prefetch")
        assert command is not None
        assert shlex.split(command)[:3] == ["uv", "run", "python"]
        assert shlex.split(command)[-1] == model
        without = changed(stack_settings(stack), job__prefetch=False)
        assert option(training_entrypoint(parse_config(stack, without)), "--prefetch") is None


def test_a_run_s_limits_and_its_release_reach_the_supervisor() -> None:
    settings = changed(stack_settings("dev"), job__budget_gpu_hours=64, job__limits={"max_run_s": 7200})
    entrypoint = training_entrypoint(parse_config("dev", settings))
    assert option(entrypoint, "--budget-gpu-hours") == "64.0"
    assert option(entrypoint, "--max-run-s") == "7200.0"
    assert option(entrypoint, "--release") == "v0.4.0"
