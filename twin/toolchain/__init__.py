"""The twin's programs: taken from PATH where they serve, else built once from pinned Go modules into a cache.

Standard library only: `python3 -m twin.toolchain` builds before any package is installed. The cache lies outside the
clone ($XDG_CACHE_HOME/rlstack), keyed by the lock files, so that a second clone builds nothing.
"""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from jobs.errors import TwinError
from twin.toolchain.programs import MODULES, SERVES_FROM_PATH, Module, OnPath, module_of

_VERSION = re.compile(r"(\d+)\.(\d+)\.\d+")


def cache_dir() -> Path:
    """Where built programs are kept between clones."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlstack"


def build_dir(module: Module) -> Path:
    """Where `module`'s programs lie once they are built."""
    return cache_dir() / f"{module.name}-{module.key}"


def version_serves(printed: str, rule: OnPath) -> bool:
    """Tell whether the version in `printed` lies in the range of `rule`."""
    found = _VERSION.search(printed)
    if not found:
        return False
    version = (int(found[1]), int(found[2]))
    if rule.same_minor:
        return version == rule.minimum
    return version[0] == rule.minimum[0] and version >= rule.minimum


@functools.cache
def found_on_path(program: str) -> Path | None:
    """Return `program` from PATH if its version serves."""
    rule = SERVES_FROM_PATH.get(program)
    where = shutil.which(program)
    if rule is None or where is None:
        return None
    try:
        printed = subprocess.run([where, *rule.arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Path(where) if version_serves(printed.stdout + printed.stderr, rule) else None


def find_tool(program: str) -> Path | None:
    """Return where `program` is, or None while it is not built."""
    built = build_dir(module_of(program)) / program
    return found_on_path(program) or (built if built.exists() else None)


def tool_path(program: str) -> Path:
    """Return where `program` is.

    Raises:
        TwinError: it is neither on PATH in a version that serves nor built.
    """
    where = find_tool(program)
    if where is None:
        message = f"{program} is not built yet: the twin cannot start without it. Type: python -m twin.toolchain"
        raise TwinError(message)
    return where


def missing_programs() -> list[str]:
    """Return the programs that still have to be built."""
    return [program for module in MODULES for program in module.packages if find_tool(program) is None]


def kuberay_crds() -> list[Path]:
    """Return the manifests of KubeRay's custom resource definitions, of the operator's own version."""
    return sorted((tool_path("kuberay-operator").parent / "crds").glob("*.yaml"))
