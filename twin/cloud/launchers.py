"""The executables that the engine and its clients find on PATH in place of Google's and Pulumi's own."""

import shlex
import sys
from pathlib import Path

from twin.state import REPOSITORY, STATE_VARIABLE, TwinState

# Each runs a module with the interpreter that runs the twin: the twin's own from this repository, dynamic resources
# from where the program lies.
_DYNAMIC = "pulumi-resource-pulumi-python"
_MODULES = {
    "pulumi-resource-gcp": "-m twin.cloud.provider",
    # Normally comes with the Pulumi CLI; -u because the engine reads the port from its first line.
    _DYNAMIC: "-u -m pulumi.dynamic",
    "gke-gcloud-auth-plugin": "-m twin.cloud.auth_plugin",
}


def write_launchers(state: TwinState, *, program_dir: Path = REPOSITORY) -> None:
    """Write the launchers into the state's bin directory.

    Args:
        state: the state directory.
        program_dir: where the modules of the program's dynamic resources lie.
    """
    state.bin_dir.mkdir(parents=True, exist_ok=True)
    for name, module in _MODULES.items():
        _write(state.bin_dir / name, module, state, program_dir if name == _DYNAMIC else REPOSITORY)


def _write(path: Path, module: str, state: TwinState, modules: Path) -> None:
    text = (
        "#!/bin/sh\n"
        f"export PYTHONPATH={shlex.quote(str(modules))} {STATE_VARIABLE}={shlex.quote(str(state.root))}\n"
        f'exec {shlex.quote(sys.executable)} {module} "$@"\n'
    )
    if not path.exists() or path.read_text() != text:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(path)
