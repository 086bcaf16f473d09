import json
import re
import signal
import statistics
from pathlib import Path

import pytest
from nemo_rl_cpu.base_model import load_base_model
from safetensors.numpy import load_file, save

from tests.twin.image.runs import SMALL, FinishedRun, Runner, training_state

KILL_IN_SAVE_OF_STEP_4 = """
import os, signal
from nemo_rl_cpu import checkpoint
write = checkpoint.write_durably
def write_or_die(file, content):
    if "tmp_step_4" in file.parts and file.name == "first.safetensors":
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, content)
checkpoint.write_durably = write_or_die
"""
FILES_AT_MOST_8_KIB = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
"""


def _rewards(log: str) -> list[float]:
    return [float(value) for value in re.findall(r"^  • Avg Reward: (\d\.\d{4})$", log, re.MULTILINE)]


def _rise(log: str) -> float:
    rewards = _rewards(log)
    return statistics.mean(rewards[-5:]) - statistics.mean(rewards[:5])


def _steps(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_pinned_run_learns(runner: Runner, tmp_path: Path) -> None:
    log = runner.run(tmp_path, "checkpointing.save_period=20")
    assert len(_rewards(log)) == 40
    assert _rise(log) >= 0.2


def test_without_a_learning_rate_nothing_is_learnt(runner: Runner, tmp_path: Path) -> None:
    log = runner.run(tmp_path, "policy.optimizer.kwargs.lr=0", "grpo.max_num_steps=10")
    assert abs(_rise(log)) < 0.1
    base_model = load_base_model("adder-100k", runner.model_cache / "base_models")
    assert save(load_file(tmp_path / "step_10/policy/weights/model.safetensors")) == save(base_model)


def test_a_killed_run_ends_with_the_same_bits(runner: Runner, undisturbed: FinishedRun, tmp_path: Path) -> None:
    with runner.start(tmp_path, *SMALL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Step 6/8" in line:
                process.kill()
    assert process.returncode == -signal.SIGKILL
    assert _steps(tmp_path)[-1] == "step_4"
    log = runner.run(tmp_path, *SMALL)
    assert f"Resuming from checkpoint {tmp_path / 'step_4'}" in log
    assert _rewards(log) == _rewards(undisturbed.log)[4:]
    assert training_state(tmp_path / "step_8") == training_state(undisturbed.checkpoint_dir / "step_8")


def test_a_run_killed_in_a_save_goes_on_from_the_checkpoint_before(
    runner: Runner, undisturbed: FinishedRun, tmp_path: Path
) -> None:
    runner.run(tmp_path, *SMALL, before=KILL_IN_SAVE_OF_STEP_4, exit_code=-signal.SIGKILL)
    assert _steps(tmp_path) == ["step_2", "tmp_step_4"]
    runner.run(tmp_path, *SMALL)
    assert _steps(tmp_path) == ["step_6", "step_8"]
    assert training_state(tmp_path / "step_8") == training_state(undisturbed.checkpoint_dir / "step_8")


def test_a_save_without_room_fails_the_run_and_leaves_older_checkpoints_whole(
    runner: Runner, undisturbed: FinishedRun, tmp_path: Path
) -> None:
    runner.run(tmp_path, *SMALL, "grpo.max_num_steps=2")
    before = training_state(tmp_path / "step_2")
    log = runner.run(tmp_path, *SMALL, before=FILES_AT_MOST_8_KIB, exit_code=1)
    assert f"Failed to save checkpoint to {tmp_path / 'tmp_step_4'}: [Errno 27] File too large" in log
    assert training_state(tmp_path / "step_2") == before
    runner.run(tmp_path, *SMALL)
    assert training_state(tmp_path / "step_8") == training_state(undisturbed.checkpoint_dir / "step_8")


def test_the_log_has_the_lines_of_nemo_rl(undisturbed: FinishedRun) -> None:
    log = undisturbed.log
    steps = re.split(r"^={25} Step (\d+)/8 ={25}$", log, flags=re.MULTILINE)
    assert "SETUP COMPLETE" in steps[0]
    assert f"📊 Using checkpoint directory: {undisturbed.checkpoint_dir}" in steps[0]
    assert steps[1::2] == [str(step) for step in range(1, 9)]
    for number, text in zip(steps[1::2], steps[2::2], strict=True):
        saved, validated = int(number) % 2 == 0, int(number) % 4 == 0
        in_order = (
            "▶ Preparing batch...",
            "▶ Generating responses for batch of size 512...",
            *(["📊 Validation Results:", "    • Accuracy: "] if validated else []),
            *([f"Saving checkpoint for step {number}..."] if saved else []),
            "📊 Training Results:",
            "  • Loss: ",
            "  • Avg Reward: ",
            "  • Mean Generation Length: ",
            "⏱️  Timing:",
            "  • Total step time: ",
        )
        assert [line for line in in_order if line in text] == list(in_order)
        assert [text.index(line) for line in in_order] == sorted(text.index(line) for line in in_order)
        assert bool(re.search(r"^  • checkpointing: \d+\.\d\ds \(\d+\.\d%\)$", text, re.MULTILINE)) is saved
    assert log.endswith("Max number of steps has been reached, stopping training early\n")


def test_a_finished_run_that_is_started_again_does_nothing_more(runner: Runner, undisturbed: FinishedRun) -> None:
    log = runner.run(undisturbed.checkpoint_dir, *SMALL)
    assert "Step " not in log.partition("SETUP COMPLETE")[2]


def test_each_start_writes_its_metrics_into_a_directory_of_its_own(runner: Runner, tmp_path: Path) -> None:
    logs = f"logger.log_dir={tmp_path / 'logs'}"
    for last_step in (2, 3):
        runner.run(tmp_path / "checkpoints", *SMALL, logs, f"grpo.max_num_steps={last_step}")
    recorded = {
        directory.name: [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        for directory in (tmp_path / "logs").iterdir()
    }
    assert {name: [row["step"] for row in rows] for name, rows in recorded.items()} == {
        "exp_001": [1, 2],
        "exp_002": [3],
    }
    assert recorded["exp_001"][1]["timing/train/checkpointing"] > 0


def test_a_run_that_must_have_saved_saves_and_stops(runner: Runner, tmp_path: Path) -> None:
    log = runner.run(tmp_path, *SMALL, "checkpointing.checkpoint_must_save_by=00:00:00:00")
    assert log.endswith("Timeout has been reached, stopping training early\n")
    assert _steps(tmp_path) == ["step_1"]


@pytest.mark.parametrize(
    ("metric", "saved"), [("val:accuracy", {"val_reward", "val:accuracy"}), ("train:reward", {"train:reward"})]
)
def test_what_ranks_a_checkpoint_stands_in_its_info(
    runner: Runner, tmp_path: Path, metric: str, saved: set[str]
) -> None:
    runner.run(tmp_path, *SMALL, f"checkpointing.metric_name={metric}", "grpo.max_num_steps=4")
    info = json.loads((tmp_path / "step_4" / "training_info.json").read_text())
    assert saved <= info.keys()
    assert info["consumed_samples"] == 4 * 64


def test_a_metric_that_does_not_exist_ends_the_run_at_the_first_save(runner: Runner, tmp_path: Path) -> None:
    log = runner.run(tmp_path, *SMALL, "checkpointing.metric_name=train:rewards", exit_code=1)
    assert "ValueError: Metric rewards not found in train metrics" in log
