"""NeMo-RL releases: which Ray, entry script, config file and config keys an image tag stands for.

The table was read at the tags of github.com/NVIDIA-NeMo/RL: Ray from `uv.lock`, Python from `pyproject.toml`, entry
scripts and key names from `examples/`. `trainer_configs.json` beside this file holds the config files of each tag with
their `defaults:` merged and their keys dotted; a list in them reads null. A tag that nobody has read is unknown
on purpose: its Ray version would be a guess, and a wrong one leaves pods that never become ready.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from jobs.errors import ConfigError
from jobs.problems import Problem

Scalar = bool | int | float | str | None

_CONFIGS_FILE = Path(__file__).with_name("trainer_configs.json")
_REPOSITORY = "nemo-rl"
_LAUNCHER = ("uv", "run", "python")
# The hub's client stands in uv.lock of every tag below, and goes on where an interrupted download stopped; that the
# launcher's environment has it was not run. `original/` holds some models a second time, in a format nobody here reads.
_DOWNLOAD = (
    "import os, sys, huggingface_hub as hub; name = sys.argv[1]; "
    "os.path.isdir(name) or hub.snapshot_download(name, ignore_patterns=['original/*'])"
)

MODEL_NAME_PLACEHOLDER = "{model_name}"


class Release(BaseModel):
    """What a tag of the trainer's image stands for.

    Attributes:
        tag: the image's tag.
        ray_version: Ray in the image; becomes `rayVersion` of the RayCluster, which KubeRay acts upon.
        python_version: Python in the image, where it is known.
        workdir: directory of the trainer in the image; entry script and config file are relative to it.
        launcher: what starts the entry script.
        entry_script: the GRPO entry script.
        config_file: the config file that a recipe starts from unless it names another.
        dataset_key: dotted key of the training set's name; it moved at v0.6.0.
        prefetch: command, as arguments, that brings the model `{model_name}` into the cache before GPUs are asked for;
            without one, training does so by itself, on all its GPUs.
        save_is_async: whether a save lets training go on; false means that every save blocks all GPUs.
        configs: config file to its dotted keys and their defaults. Without an entry, keys cannot be checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tag: str = Field(min_length=1)
    ray_version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    python_version: str | None = None
    workdir: str = "/opt/nemo-rl"
    launcher: tuple[str, ...] = Field(default=_LAUNCHER, strict=False)
    entry_script: str = Field(min_length=1)
    config_file: str = Field(min_length=1)
    dataset_key: str = "data.dataset_name"
    prefetch: tuple[str, ...] = Field(default=(), strict=False)
    save_is_async: bool = False
    configs: dict[str, dict[str, Scalar]] = Field(default_factory=dict)


def _configs(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Scalar]]:
    """Undo the file's compression: every config is the first one with keys set and unset."""
    base: dict[str, Scalar] = next(iter(entries.values()))["set"]
    return {
        path: {key: value for key, value in base.items() if key not in entry["unset"]} | entry["set"]
        for path, entry in entries.items()
    }


def _read_releases() -> dict[str, Release]:
    entries = json.loads(_CONFIGS_FILE.read_text(encoding="utf-8"))
    rows = {
        # tag: (Ray, Python, entry script, key of the training set's name)
        "v0.4.0": ("2.46.0", "3.12", "examples/run_grpo_math.py", "data.dataset_name"),
        "v0.5.0": ("2.49.2", "3.12", "examples/run_grpo.py", "data.dataset_name"),
        "v0.6.0": ("2.54.0", "3.13.13", "examples/run_grpo.py", "data.train.dataset_name"),
        "v0.7.0": ("2.55.1", "3.13.13", "examples/run_grpo.py", "data.train.dataset_name"),
    }
    return {
        tag: Release(
            tag=tag,
            ray_version=ray_version,
            python_version=python_version,
            entry_script=entry_script,
            config_file="examples/configs/grpo_math_70B_megatron.yaml",
            dataset_key=dataset_key,
            prefetch=(*_LAUNCHER, "-c", _DOWNLOAD, MODEL_NAME_PLACEHOLDER),
            configs=_configs(entries[tag]),
        )
        for tag, (ray_version, python_version, entry_script, dataset_key) in rows.items()
    }


RELEASES: Mapping[str, Release] = _read_releases()


def image_tag(image: str) -> tuple[str, str | None]:
    """Split an image reference into the last part of its repository and its tag, if it has one."""
    reference = image.partition("@")[0]
    repository, _, tag = reference.rpartition("/")[2].partition(":")
    return repository, tag or None


def release_for_image(image: str, explicit: Release | None) -> Release:
    """Find the release that an image carries.

    The registry and the path before the last part are free, so that a mirror serves as well as nvcr.io.

    Args:
        image: image reference, `[registry/path/]nemo-rl:tag[@digest]`.
        explicit: the config's own release entry, needed for any image that the table does not know.

    Raises:
        ConfigError: the tag is unknown and no entry was given, or the entry contradicts the image.
    """
    repository, tag = image_tag(image)
    known = RELEASES.get(tag or "") if repository == _REPOSITORY else None
    release = explicit or known
    problems = []
    if release is None:
        tags = ", ".join(RELEASES)
        problems.append(
            Problem(
                key="ray.image",
                value=image,
                reason="which Ray and which trainer this image holds is not known, "
                "and a wrong rayVersion leaves pods that never become ready",
                remedy=f"Use {_REPOSITORY} with one of the tags {tags}, or describe the image in `ray.release`",
            )
        )
    if explicit is not None and tag is not None and explicit.tag != tag:
        problems.append(
            Problem(
                key="ray.release.tag",
                value=explicit.tag,
                reason=f"the image {image} has the tag {tag}, so this entry describes another image",
                remedy=f"Bring the entry up to date with the image and set its tag to {tag}",
            )
        )
    if explicit is not None and known is not None and explicit.ray_version != known.ray_version:
        problems.append(
            Problem(
                key="ray.release.ray_version",
                value=explicit.ray_version,
                reason=f"{_REPOSITORY}:{known.tag} holds Ray {known.ray_version}",
                remedy="Remove `ray.release`: this tag is known",
            )
        )
    if release is None or problems:
        raise ConfigError("The trainer's release", problems)
    return release
