"""What becomes of the codelab's own values: refused, warned about, or taken; README shows it as a table.

After a change that is meant: `UPDATE_GOLDEN=1 python -m pytest tests/components/rules/test_codelab_values.py`.
"""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from components.config import parse_config
from jobs.errors import ConfigError
from jobs.problems import Problem
from tests.program import REPOSITORY, changed, stack_settings

VALUES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("codelab_values.yaml").read_text())
README = REPOSITORY / "README.md"
TABLE = re.compile(r"(?<=<!-- codelab values: made by tests -->\n).*?(?=<!-- end of codelab values -->)", re.DOTALL)
# The codelab's stack without the one value of it that is warned about, so that each row's finding is its own.
SETTINGS = changed(stack_settings("dev"), job__grpo__val_period=2)


def findings(config: dict[str, Any]) -> list[Problem]:
    """Return everything that is said of a stack's file with these values in it."""
    settings = changed(SETTINGS)
    for path, value in config.items():
        *sections, key = path.split(".")
        target = settings
        for section in sections:
            target = target[section]
        target[key] = value
    try:
        return parse_config("dev", settings).warnings()
    except ConfigError as error:
        return list(error.problems)


def verdict(problems: list[Problem]) -> str:
    """Write findings as a cell: what happens, for which key, and why."""
    words = {"error": "**refused**", "warning": "*warned*"}
    lines = [f"{words[problem.severity]} `{problem.key}`: {problem.reason}" for problem in problems]
    return "<br>".join(line.replace("|", r"\|") for line in lines) or "taken"


def table() -> str:
    """Write all rows as a Markdown table."""
    rows = [f"| {row['from']} | {row['value']} | {verdict(findings(row['config']))} |" for row in VALUES]
    return "\n".join(["| from | value | at preview |", "|---|---|---|", *rows]) + "\n"


def test_the_codelab_s_stack_without_its_save_period_deserves_no_word() -> None:
    assert findings({}) == []


def test_readme_shows_what_becomes_of_each_value() -> None:
    text = README.read_text()
    if os.environ.get("UPDATE_GOLDEN"):
        text = TABLE.sub(lambda _: table(), text)
        README.write_text(text)
    print(table())
    assert TABLE.findall(text) == [table()]


def test_what_the_codelab_gets_wrong_is_refused_and_what_may_fail_is_warned_about() -> None:
    found = {row["value"]: {problem.key: problem.severity for problem in findings(row["config"])} for row in VALUES}
    assert {value: keys for value, keys in found.items() if keys} == {
        "Lustre 9,000 GiB at 1000 MB/s per TiB": {"job.grpo.save_period": "warning"},
        "system pool of e2-standard-16": {"cluster.system_pool.machine_type": "error"},
        "system pool of e2-standard-4": {"cluster.system_pool.machine_type": "error"},
        "`spot=true` beside the blueprint's reservation": {"gpu_pool.capacity.reservation": "error"},
        "NUM_NODES 8 as `static_node_count`, spot": {"gpu_pool.scaling": "warning"},
        "image nemo-rl:v0.4.0 with `rayVersion: 2.54.0`": {"ray.ray_version": "error"},
        "head limits 32 CPU, 1000Gi": {"ray.head.cpu": "error", "ray.head.memory_gib": "error"},
        "`save_period=2`, validation every 10 steps": {"job.grpo.save_period": "warning"},
        "`policy.megatron_cfg.converter_type=Qwen2ForCausalLM`": {
            "job.grpo.overrides.policy.megatron_cfg.converter_type": "warning"
        },
        "`cluster.num_nodes`, `cluster.gpus_per_node`": {
            "job.grpo.overrides.cluster.num_nodes": "error",
            "job.grpo.overrides.cluster.gpus_per_node": "error",
        },
        "`checkpointing.checkpoint_dir=/lustre/…`": {"job.grpo.overrides.checkpointing.checkpoint_dir": "error"},
    }
