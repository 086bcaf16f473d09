import base64
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import TwinError
from twin.kubernetes.containers import API_SERVER, GOOGLE, command, environment
from twin.kubernetes.images import IMAGES, find, not_found
from twin.kubernetes.mounts import Sources

IMAGE = IMAGES["rlstack/grpo-cpu:1.0"]
POD = {"metadata": {"name": "p", "namespace": "ray", "uid": "u", "labels": {"ray.io/cluster": "r"}}, "spec": {}}
SOURCES = Sources(
    claims={},
    secrets={"s": {"k": base64.b64encode(b"v").decode()}},
    config_maps={"c": {"k": "w"}},
    directory=Path("/x"),
)


def variables(*env: dict[str, Any], **container: Any) -> dict[str, str]:
    return environment(POD, {"name": "ray", "env": list(env), **container}, IMAGE, SOURCES, "10.4.0.2")


def test_nothing_of_this_machines_environment_reaches_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_ACCESS_TOKEN", "canary")
    monkeypatch.setenv("RAY_ADDRESS", "canary")
    assert variables() == {**IMAGE.environment, **API_SERVER, **GOOGLE}
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in variables()


def test_references_to_fields_secrets_and_config_maps_are_resolved() -> None:
    got = variables(
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CLUSTER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "BOTH", "value": "$(IP):$(UNKNOWN)"},
    )
    assert got["IP"] == "10.4.0.2"
    assert got["CLUSTER"] == "r"
    assert got["SECRET"] == "v"
    assert got["SETTING"] == "w"
    assert got["BOTH"] == "10.4.0.2:$(UNKNOWN)"


def test_env_wins_over_env_from_and_that_over_the_image() -> None:
    sources = [{"prefix": "X_", "configMapRef": {"name": "c"}}]
    assert variables(envFrom=sources)["X_k"] == "w"
    assert variables({"name": "X_k", "value": "z"}, envFrom=sources)["X_k"] == "z"
    assert variables({"name": "HOME", "value": "/h"})["HOME"] == "/h"


def test_a_field_that_the_twin_does_not_fill_is_named() -> None:
    with pytest.raises(TwinError, match=r"spec\.hostname"):
        variables({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostname"}}})


def test_command_and_args_are_one_list_of_words_with_variables() -> None:
    assert command({"name": "c", "command": ["bash", "-c"], "args": ["echo $(A) $B"]}, {"A": "1"}) == [
        "bash",
        "-c",
        "echo 1 $B",
    ]


def test_images_are_found_behind_any_registry_and_a_missing_one_names_those_there_are() -> None:
    assert find("localhost:5000/rlstack/grpo-cpu:1.1") is not None
    assert find("nvcr.io/nvidia/nemo-rl:v0.4.0") is None
    assert "rlstack/grpo-cpu:1.0" in not_found("nvcr.io/nvidia/nemo-rl:v0.4.0")
