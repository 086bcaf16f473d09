"""The engine's copy of a stack's settings.

The engine writes into the settings that it works on (the salt of its secrets), so it gets a copy under the state
directory; the files beside the program stay as they are. Secrets given to the twin live in that copy only, encrypted.
"""

import shutil
from pathlib import Path
from typing import Any

import yaml

from jobs.errors import UsageError
from twin.state import TwinState

_ENCRYPTION_KEYS = ("encryptionsalt", "encryptedkey", "secretsprovider")


def stack_file(stack: str, directory: Path) -> Path:
    """Return `Pulumi.<stack>.yaml`.

    Raises:
        UsageError: there is none; names those that there are.
    """
    file = directory / f"Pulumi.{stack}.yaml"
    if not file.exists():
        known = ", ".join(sorted(path.name.split(".")[1] for path in directory.glob("Pulumi.*.yaml")))
        message = f"--stack {stack}: there is no {file.name} in this directory, so nothing was done. Stacks that have "
        message += f"settings here: {known or 'none; go to where Pulumi.yaml lies'}"
        raise UsageError(message)
    return file


def copy_settings(state: TwinState, stack: str, directory: Path) -> list[str]:
    """Bring the engine's copy up to date and return the keys left out: secrets encrypted for another provider."""
    workspace = state.workspace(stack)
    workspace.mkdir(parents=True, exist_ok=True)
    source = stack_file(stack, directory)
    shutil.copyfile(directory / "Pulumi.yaml", workspace / "Pulumi.yaml")
    target = workspace / source.name
    merged, left_out = merge(_mapping(source), _mapping(target) if target.exists() else {})
    target.write_text(yaml.safe_dump(merged, sort_keys=False))
    return left_out


def merge(source: dict[str, Any], copy: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the source's plain settings with the copy's own salt and secrets, and the source's secret keys."""
    config = dict(source.get("config") or {})
    foreign = [key for key, value in config.items() if _is_secret(value)]
    own = {key: value for key, value in (copy.get("config") or {}).items() if _is_secret(value)}
    plain = {key: value for key, value in config.items() if key not in foreign}
    salt = {key: copy[key] for key in _ENCRYPTION_KEYS if key in copy}
    return {**salt, "config": plain | own}, [key for key in foreign if key not in own]


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"secure"}


def _mapping(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        message = f"{file.name} is not YAML: {' '.join(str(error).split())}. Nothing was done; mend the line it names"
        raise UsageError(message) from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("config", {}), dict):
        message = f"{file.name} has no mapping `config:`. Nothing was done; see Pulumi.local.yaml for the shape"
        raise UsageError(message)
    return loaded
