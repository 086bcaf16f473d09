"""`check` prints what would run, or why it cannot, without an engine and without a cloud."""

import argparse
import shlex
from pathlib import Path

import pytest

from jobs import check
from jobs.errors import ConfigError, UsageError

ROOT = Path(__file__).parents[2]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    check.add_parser(parser.add_subparsers())
    args = parser.parse_args(["check", *words])
    code: int = args.run(args)
    return code


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "qwen.yaml"
    path.write_text(
        "release: v0.4.0\nnodes: 8\ngpus_per_node: 8\n"
        "grpo: {model_name: Qwen/Qwen2.5-72B-Instruct, max_num_steps: 20, save_period: 2}\n",
        encoding="utf-8",
    )
    return path


def test_codelab_stack_prints_its_command_and_its_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run("--stack", "dev") == 0
    output = capsys.readouterr()
    first, *command = output.out.splitlines()
    assert first == "cd /opt/nemo-rl"
    assert command[0] == (
        "uv run python examples/run_grpo_math.py --config examples/configs/grpo_math_70B_megatron.yaml \\"
    )
    overrides = [shlex.split(line.removesuffix("\\")) for line in command[1:]]
    assert all(len(words) == 1 for words in overrides)
    assert ["cluster.num_nodes=8"] in overrides
    assert ["policy.model_name=Qwen/Qwen2.5-72B-Instruct"] in overrides
    assert output.err.startswith("warning: job.grpo.save_period=2: ")


def test_full_stack_name_finds_the_same_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    run("--stack", "local")
    short = capsys.readouterr().out
    run("--stack", "organization/rlstack/local")
    assert capsys.readouterr().out == short


def test_broken_stack_lists_every_reason_under_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("node_count: 8", "node_count: 3"),
        ("zone: us-east1-b", "zone: us-west1-b"),
        ("v0.4.0", "v0.6.0"),
    ):
        assert old in text
        text = text.replace(old, new)
    text = text.replace("train_global_batch_size: 256", "train_global_batch_size: 100")
    (tmp_path / "Pulumi.dev.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        run("--stack", "dev")
    keys = {problem.key for problem in caught.value.problems}
    assert {"project.zone", "job.grpo.train_global_batch_size", "job.grpo.parallelism.tensor"} <= keys


def test_missing_stack_is_an_error_of_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"Pulumi\.nope\.yaml cannot be read"):
        run("--stack", "nope")


def test_recipe_file_prints_the_same_command(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--file", str(recipe)) == 0
    output = capsys.readouterr()
    assert "checkpointing.checkpoint_dir=/lustre/qwen/checkpoints" in output.out
    assert output.err.startswith("warning: grpo.save_period=2: ")


def test_recipe_that_cannot_train_prints_no_command(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("nodes: 8", "nodes: 3", 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"grpo\.parallelism\.tensor=4: .*24 that train.*2 or 4 nodes"):
        run("--file", str(recipe))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("words", [[], ["--stack", "dev", "--file", "x"]])
def test_exactly_one_source_is_asked_for(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 2
