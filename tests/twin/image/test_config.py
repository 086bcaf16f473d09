import re
from pathlib import Path

import pytest
import yaml
from nemo_rl_cpu.config import ConfigError, load_config, parse_value
from nemo_rl_cpu.main import DEFAULT_CONFIG

from tests.twin.image.runs import Runner


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        ("True", True),
        ("40", 40),
        ("3e-4", 3e-4),
        ("/lustre/run", "/lustre/run"),
        ("00:03:30:00", "00:03:30:00"),
        ("[0.9, 0.95]", [0.9, 0.95]),
        ("{project: p}", {"project": "p"}),
        ("'null'", "null"),
        (r"'it\'s'", "it's"),
        (r"'a\b'", r"a\b"),
        (r"'ends in \\'", "ends in \\"),
        ("", ""),
    ],
)
def test_a_value_has_the_type_that_hydra_gives_it(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_overrides_reach_the_typed_config_and_the_settings_that_are_saved() -> None:
    settings, config = load_config(
        DEFAULT_CONFIG,
        [
            "grpo.max_num_steps=7",
            "checkpointing.keep_top_k=null",
            "policy.optimizer.kwargs.lr=1e-3",
            "+policy.generation.note=kept",
            "++logger.wandb.name=second",
        ],
    )
    assert (config.grpo.max_num_steps, config.checkpointing.keep_top_k) == (7, None)
    assert config.policy.optimizer.arguments.lr == 1e-3
    assert settings["policy"]["generation"] == {"note": "kept"}
    assert settings["logger"]["wandb"]["name"] == "second"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("grpo.max_steps=7", "there is no key grpo.max_steps; did you mean max_num_steps?"),
        ("gropo.seed=7", "there is no key gropo; did you mean grpo?"),
        ("grpo.seed.low=7", "there is no key grpo.seed"),
        ("+grpo.seed=7", "grpo.seed cannot be added, it exists"),
        ("--seed", "'--seed' is no override"),
        ("data.max_operand=[1", r"the value of 'data.max_operand=\[1' cannot be read"),
        ("grpo.max_num_steps=many", "grpo.max_num_steps: .* got 'many'"),
        ("checkpointing.metric_name=reward", "checkpointing.metric_name: "),
        ("policy.train_global_batch_size=96", "does not divide the 512 samples of a step"),
        ("cluster.num_nodes=3", "cannot be shared by 3 GPUs"),
        ("policy.train_micro_batch_size=48", "does not divide policy.train_global_batch_size=128"),
        ("policy.model_name=Qwen/Qwen2.5-72B", "which holds adder-100k"),
        ("logger.wandb_enabled=True", "needs wandb"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(DEFAULT_CONFIG, [override])


def test_all_reasons_against_a_config_are_given_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(DEFAULT_CONFIG, ["grpo.seed=-1", "data.max_operand=100"])
    assert re.search(r"grpo\.seed: .*\n.*data\.max_operand: ", str(caught.value))


def test_a_refused_config_ends_with_exit_code_2_and_no_traceback(runner: Runner, tmp_path: Path) -> None:
    log = runner.run(tmp_path, "grpo.max_steps=7", exit_code=2)
    assert log.startswith("error: Could not override 'grpo.max_steps'")
    assert "Traceback" not in log


def test_a_config_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path / "none.yaml"))):
        load_config(tmp_path / "none.yaml", [])


def test_a_key_missing_from_the_file_is_named(tmp_path: Path) -> None:
    settings = yaml.safe_load(DEFAULT_CONFIG.read_text())
    del settings["grpo"]["seed"]
    file = tmp_path / "short.yaml"
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigError, match=r"grpo\.seed: Field required"):
        load_config(file, [])
