"""Reads stack files and recipe files without the engine.

YAML is read as Pulumi reads it: `3e-7` is a number and `yes` is a word, unlike in YAML 1.1. A key that stands twice is
refused, as Pulumi does, since one of the two values would be lost in silence. Encrypted values are never looked at.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from jobs.errors import ConfigError, UsageError
from jobs.problems import Problem
from jobs.recipe import GrpoRecipe
from jobs.releases import RELEASES, Release

if TYPE_CHECKING:
    from components.config import StackConfig

_NAMESPACE = "rlstack:"
_SECURE = "secure"
# An unknown key may be a misplaced secret.
_UNSHOWN = {"missing": "(missing)", "extra_forbidden": "(not shown)"}


class _Loader(yaml.SafeLoader):
    """A safe loader with the scalars of YAML 1.2 that refuses duplicate keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        """Build a mapping, each key once."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"the key {key.value} stands twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


class RecipeFile(BaseModel):
    """A recipe outside a stack.

    Attributes:
        release: tag of a known NeMo-RL release, or a release described as in `ray.release`.
        nodes: GPU nodes of the run.
        gpus_per_node: GPUs of each.
        grpo: the recipe, as in a stack's `job.grpo`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    release: str | Release
    nodes: PositiveInt
    gpus_per_node: PositiveInt
    grpo: GrpoRecipe

    def known_release(self) -> Release:
        """Look the release up.

        Raises:
            ConfigError: nobody has read this release.
        """
        if isinstance(self.release, Release):
            return self.release
        if self.release in RELEASES:
            return RELEASES[self.release]
        problem = Problem(
            key="release",
            value=self.release,
            reason="what this release's image holds is not known",
            remedy=f"Use one of {', '.join(RELEASES)}, or describe the release as in `ray.release`",
        )
        raise ConfigError("The recipe", [problem])


def _read_mapping(path: Path, hint: str) -> dict[str, Any]:
    try:
        # The loader derives from SafeLoader: it builds plain values only.
        content = yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); nothing was checked. {hint}") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UsageError(
            f"{path} is no YAML that can be read; nothing was checked: {line}{error.problem}. Correct it there."
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is no YAML that can be read; nothing was checked. Write it as UTF-8 text, one key a line."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path} holds no mapping of keys to values; nothing was checked. {hint}")
    return content


def _is_encrypted(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {_SECURE}


def _holds_encrypted(value: object) -> bool:
    if isinstance(value, dict):
        return _is_encrypted(value) or any(_holds_encrypted(item) for item in value.values())
    return isinstance(value, list) and any(_holds_encrypted(item) for item in value)


def read_stack_sections(path: Path) -> dict[str, Any]:
    """Read the sections of a stack file, without their `rlstack:` prefix, secrets left out.

    Raises:
        UsageError: the file cannot be read, or a section hides an encrypted value.
    """
    content = _read_mapping(path, "Name a stack that has a Pulumi.<stack>.yaml in this directory.")
    config = content.get("config") or {}
    if not isinstance(config, dict):
        raise UsageError(
            f"`config` in {path} is no mapping; nothing was checked. Copy its form from Pulumi.local.yaml."
        )
    sections = {
        str(key).removeprefix(_NAMESPACE): value
        for key, value in config.items()
        if str(key).startswith(_NAMESPACE) and not _is_encrypted(value)
    }
    hidden = [name for name, value in sections.items() if _holds_encrypted(value)]
    if hidden:
        raise UsageError(
            f"{path} holds an encrypted value inside {', '.join(hidden)}; nothing was checked. "
            "Sections hold plain values; secrets are keys of their own, set by `pulumi config set --secret`."
        )
    return sections


def read_stack(stack: str) -> "StackConfig":
    """Read the config of a stack, named with or without its organisation, from its file in this directory.

    Raises:
        UsageError: the file cannot be read, or a section hides an encrypted value.
        ConfigError: the config cannot be used.
    """
    from components.config import parse_config  # noqa: PLC0415 - pulumi takes a second, which a recipe need not cost

    name = stack.rpartition("/")[2]
    return parse_config(name, read_stack_sections(Path(f"Pulumi.{name}.yaml")))


def read_recipe(path: Path) -> RecipeFile:
    """Read a recipe file.

    Raises:
        UsageError: the file cannot be read.
        ConfigError: it is no recipe; with every problem of its keys.
    """
    content = _read_mapping(path, "Write release, nodes, gpus_per_node and grpo.")
    try:
        return RecipeFile.model_validate(content)
    except ValidationError as error:
        problems = [
            Problem(
                key=".".join(str(part) for part in detail["loc"]),
                value=_UNSHOWN.get(detail["type"]) or str(detail["input"])[:80],
                reason=detail["msg"][0].lower() + detail["msg"][1:],
                remedy="jobs/recipe.py says what each key means",
            )
            for detail in error.errors(include_url=False)
        ]
        raise ConfigError(str(path), problems) from error
