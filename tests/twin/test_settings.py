"""The engine's copy of a stack's settings follows the file and keeps its own secrets."""

from pathlib import Path

import pytest
import yaml

from jobs.errors import UsageError
from twin.settings import copy_settings, merge
from twin.state import TwinState

SECRET = {"secure": "v1:abc"}


def test_a_changed_value_reaches_the_copy_and_a_removed_one_leaves_it() -> None:
    merged, left_out = merge({"config": {"rlstack:a": 2}}, {"config": {"rlstack:a": 1, "rlstack:b": 1}})
    assert merged == {"config": {"rlstack:a": 2}}
    assert left_out == []


def test_the_copys_own_secret_and_salt_survive() -> None:
    copy = {"encryptionsalt": "v1:s", "config": {"rlstack:hf_token": SECRET}}
    merged, left_out = merge({"config": {"rlstack:a": 1}}, copy)
    assert merged == {"encryptionsalt": "v1:s", "config": {"rlstack:a": 1, "rlstack:hf_token": SECRET}}
    assert left_out == []


def test_a_secret_encrypted_elsewhere_is_left_out_and_named() -> None:
    source = {"secretsprovider": "gcpkms://x", "encryptedkey": "k", "config": {"rlstack:hf_token": SECRET}}
    assert merge(source, {}) == ({"config": {}}, ["rlstack:hf_token"])


def test_an_own_secret_stands_in_for_one_encrypted_elsewhere() -> None:
    own = {"secure": "v1:own"}
    merged, left_out = merge({"config": {"rlstack:hf_token": SECRET}}, {"config": {"rlstack:hf_token": own}})
    assert merged["config"]["rlstack:hf_token"] == own
    assert left_out == []


def test_the_file_beside_the_program_is_never_written(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: rlstack\n")
    source = tmp_path / "Pulumi.local.yaml"
    source.write_text("config:\n  rlstack:a: 1 # why\n")
    before = source.read_bytes()
    state = TwinState(tmp_path / "state")
    copy_settings(state, "local", tmp_path)
    copied = yaml.safe_load((state.workspace("local") / "Pulumi.local.yaml").read_text())
    assert copied == {"config": {"rlstack:a": 1}}
    assert source.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [("config: [", "is not YAML"), ("- a\n", "no mapping `config:`"), ("config: 3\n", "no mapping `config:`")],
)
def test_a_broken_stack_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: rlstack\n")
    (tmp_path / "Pulumi.local.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"Pulumi\.local\.yaml") as raised:
        copy_settings(TwinState(tmp_path / "state"), "local", tmp_path)
    assert said in str(raised.value)


def test_a_misspelt_stack_is_told_those_that_exist(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text("")
    (tmp_path / "Pulumi.local.yaml").write_text("")
    with pytest.raises(UsageError, match=r"locla: .* dev, local"):
        copy_settings(TwinState(tmp_path / "state"), "locla", tmp_path)
