"""The executables that the engine and its clients find on PATH in place of Google's and Pulumi's own."""

import shlex
import sys
from pathlib import Path

from twin.state import REPOSITORY, STATE_VARIABLE, TwinState

# Each runs a module of this repository with the interpreter that runs the twin.
_MODULES = {
    "pulumi-resource-gcp": "-m twin.cloud.provider",
    # Normally comes with the Pulumi CLI; -u because the engine reads the port from its first line.
    "pulumi-resource-pulumi-python": "-u -m pulumi.dynamic",
    "gke-gcloud-auth-plugin": "-m twin.cloud.auth_plugin",
}


def write_launchers(state: TwinState) -> None:
    """Write the launchers into the state's bin directory."""
    state.bin_dir.mkdir(parents=True, exist_ok=True)
    for name, module in _MODULES.items():
        _write(state.bin_dir / name, module, state)


def _write(path: Path, module: str, state: TwinState) -> None:
    text = (
        "#!/bin/sh\n"
        f"export PYTHONPATH={shlex.quote(str(REPOSITORY))} {STATE_VARIABLE}={shlex.quote(str(state.root))}\n"
        f'exec {shlex.quote(sys.executable)} {module} "$@"\n'
    )
    if not path.exists() or path.read_text() != text:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(path)
