"""What the engine says, given by a program called pulumi that is first on PATH; its silence is no error."""

import json
from pathlib import Path

import pytest

from jobs.preflight.engine import Engine


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "pulumi"


def answer(pulumi: Path, script: str) -> None:
    pulumi.write_text(f"#!/bin/sh\n{script}\n")
    pulumi.chmod(0o755)


def test_the_stack_s_token_comes_before_the_environment_s(pulumi: Path, tmp_path: Path) -> None:
    answer(pulumi, f'echo "$@" > {tmp_path}/asked; echo hf_stack')

    assert Engine(stack="org/rlstack/dev").hf_token({"HF_TOKEN": "hf_environment"}) == "hf_stack"
    assert (tmp_path / "asked").read_text() == (
        "config get rlstack:hf_token --stack org/rlstack/dev --non-interactive\n"
    )


def test_a_token_that_the_stack_has_not_is_the_environment_s_or_none(pulumi: Path) -> None:
    answer(pulumi, "echo \"error: configuration key 'hf_token' not found\" >&2; exit 255")

    assert Engine(stack="dev").hf_token({"HF_TOKEN": "hf_environment"}) == "hf_environment"
    assert Engine(stack="dev").hf_token({}) is None


def test_the_ids_of_the_state_are_unquoted(pulumi: Path) -> None:
    resources = [{"id": "projects%2Fp%2Fglobal%2Fnetworks%2Fn:servicenetworking.googleapis.com"}, {"urn": "no id"}]
    answer(pulumi, f"cat <<'END'\n{json.dumps({'deployment': {'resources': resources}})}\nEND")

    assert Engine(stack="dev").resource_ids() == frozenset(
        {"projects/p/global/networks/n:servicenetworking.googleapis.com"}
    )


def test_a_stack_without_resources_owns_nothing(pulumi: Path) -> None:
    answer(pulumi, 'echo \'{"version": 3, "deployment": {"manifest": {}}}\'')

    assert Engine(stack="dev").resource_ids() == frozenset()


@pytest.mark.parametrize("script", ["exit 1", "echo words", "echo '[]'", None])
def test_a_state_that_cannot_be_read_is_unknown_and_not_empty(pulumi: Path, script: str | None) -> None:
    if script:
        answer(pulumi, script)

    assert Engine(stack="dev").resource_ids() is None
