"""Files are read as Pulumi reads them, secrets are never looked at, and a bad file is an error of the caller's."""

from pathlib import Path

import pytest

from jobs.errors import ConfigError, UsageError
from jobs.stack_file import read_recipe, read_stack_sections

RECIPE = """\
release: v0.4.0
nodes: 8
gpus_per_node: 8
grpo:
  model_name: Qwen/Qwen2.5-72B-Instruct
  max_num_steps: 20
  save_period: 10
"""


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "Pulumi.s.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_sections_lose_their_prefix_and_other_namespaces_and_secrets_stay_out(tmp_path: Path) -> None:
    text = """\
    secretsprovider: passphrase
    config:
      gcp:project: p
      rlstack:hf_token:
        secure: v1:CANARY
      rlstack:job: {name: j}
    """
    sections = read_stack_sections(write(tmp_path, text))
    assert sections == {"job": {"name": "j"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-7", 3e-7),
        ("3.0e-7", 3e-7),
        ("1.", 1.0),
        (".5", 0.5),
        ("-12", -12),
        ("0", 0),
        ("true", True),
        ("yes", "yes"),
        ("off", "off"),
        ("10:00:00:00", "10:00:00:00"),
        ("2026-11-30", "2026-11-30"),
        ("2.60.0", "2.60.0"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("'12'", "12"),
    ],
)
def test_scalars_are_what_pulumi_makes_of_them(tmp_path: Path, text: str, value: object) -> None:
    sections = read_stack_sections(write(tmp_path, f"config:\n  rlstack:x: {text}\n"))
    assert sections == {"x": value}
    assert type(sections["x"]) is type(value)


def test_anchors_merge(tmp_path: Path) -> None:
    text = "config:\n  rlstack:a: &a {x: 1, y: 2}\n  rlstack:b:\n    <<: *a\n    y: 3\n"
    assert read_stack_sections(write(tmp_path, text))["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("config:\n  rlstack:a: 1\n  rlstack:a: 2\n", "line 3: the key rlstack:a stands twice"),
        ("config:\n  rlstack:a: {b: 1, b: 2}\n", "line 2: the key b stands twice"),
        ("config:\n  a: [1\n", "line 3"),
        ("config:\n\ta: 1\n", "line 2"),
        ("a: !!python/object/apply:os.system [x]\n", "line 1"),
        ("a: *nowhere\n", "line 1"),
        ("- a\n", "holds no mapping"),
        ("", "holds no mapping"),
        ("1: a\n", "holds no mapping"),
        ("config: [a]\n", "`config` in"),
        (b"config: \xff\xfe\n", "UTF-8"),
        ("a: " + "[" * 5000, "no YAML that can be read"),
    ],
)
def test_file_that_is_no_stack_file_is_said_so(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError, match=r"Pulumi\.s\.yaml") as caught:
        read_stack_sections(write(tmp_path, text))
    assert words in str(caught.value)
    assert "nothing was checked" in str(caught.value)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_file_that_is_not_there_names_itself(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_stack_sections(tmp_path / name)


def test_encrypted_value_inside_a_section_is_refused_unshown(tmp_path: Path) -> None:
    text = "config:\n  rlstack:job:\n    tokens: [{secure: v1:CANARY}]\n"
    with pytest.raises(UsageError, match="inside job") as caught:
        read_stack_sections(write(tmp_path, text))
    assert "CANARY" not in str(caught.value)


def test_recipe_names_a_known_release_or_describes_one(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, RECIPE))
    assert (recipe.nodes, recipe.gpus_per_node, recipe.known_release().ray_version) == (8, 8, "2.46.0")
    described = "{tag: x, ray_version: 2.60.0, entry_script: run.py, config_file: c.yaml, launcher: [python]}"
    release = read_recipe(write(tmp_path, RECIPE.replace("v0.4.0", described))).known_release()
    assert (release.ray_version, release.launcher) == ("2.60.0", ("python",))


def test_unknown_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"release=v0\.8\.0"):
        read_recipe(write(tmp_path, RECIPE.replace("v0.4.0", "v0.8.0"))).known_release()


def test_all_problems_of_a_recipe_come_at_once(tmp_path: Path) -> None:
    text = RECIPE.replace("nodes: 8", "nodes: '8'", 1).replace("save_period: 10", "save_perod: CANARY")
    with pytest.raises(ConfigError) as caught:
        read_recipe(write(tmp_path, text))
    assert {problem.key for problem in caught.value.problems} == {"nodes", "grpo.save_period", "grpo.save_perod"}
    assert "CANARY" not in str(caught.value)
