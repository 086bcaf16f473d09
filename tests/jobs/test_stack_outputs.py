"""The engine's answers, given by a program called pulumi that is first on PATH."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import UsageError
from jobs.stack_outputs import read_stack_outputs

OUTPUTS: dict[str, Any] = {
    "kubeconfig": "{}",
    "ray": {"namespace": "ray", "cluster": "c", "head_service": "s", "image": "i", "ray_version": "2.46.0"},
    "job": {"name": "grpo", "submission_id": "grpo-1-a1", "identity": "1", "checkpoint_dir": "/c", "run_dir": "/r"},
    "lustre": {"instance_id": "l"},
}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "pulumi"


def answer(engine: Path, script: str) -> None:
    engine.write_text(f"#!/bin/sh\n{script}\n")
    engine.chmod(0o755)


def test_outputs_are_typed_and_the_stack_is_the_one_named(engine: Path, tmp_path: Path) -> None:
    answer(engine, f"echo \"$@\" > {tmp_path}/asked\ncat <<'END'\n{json.dumps(OUTPUTS)}\nEND")

    outputs = read_stack_outputs("dev")

    assert outputs.job.submission_id == "grpo-1-a1"
    assert outputs.ray.head_service == "s"
    assert (tmp_path / "asked").read_text() == "stack output --json --stack dev --non-interactive\n"


def test_without_an_engine_the_remedy_is_to_install_it(engine: Path) -> None:
    with pytest.raises(UsageError, match=r"not on PATH.*Install"):
        read_stack_outputs("dev")


def test_an_unknown_stack_is_told_in_the_engines_words(engine: Path) -> None:
    answer(engine, "echo \"error: no stack named 'dve' found\" >&2; exit 255")

    with pytest.raises(UsageError, match=r"no stack named 'dve' found.*pulumi stack ls"):
        read_stack_outputs("dve")


def test_a_stack_that_is_not_up_lacks_outputs_that_are_named(engine: Path) -> None:
    answer(engine, 'echo \'{"kubeconfig": "{}"}\'')

    with pytest.raises(UsageError, match="no output ray, job"):
        read_stack_outputs("dev")


def test_words_instead_of_json_are_refused(engine: Path) -> None:
    answer(engine, "echo hello")

    with pytest.raises(UsageError, match="no JSON"):
        read_stack_outputs("dev")
