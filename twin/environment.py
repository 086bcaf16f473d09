"""What every program of the twin finds in its environment, and the files that must be there before any starts."""

import os
import secrets
import shlex
import sys
from pathlib import Path

from twin.cloud.launchers import write_launchers
from twin.kubernetes.cluster import ensure_ca_bundle
from twin.state import REPOSITORY, STATE_VARIABLE, TwinState
from twin.toolchain import build_dir, found_on_path
from twin.toolchain.programs import MODULES

# Whatever the caller's shell says of a real cloud, a real cluster or a real Ray must not reach the twin.
_FOREIGN_PREFIXES = ("PULUMI_", "GOOGLE_", "CLOUDSDK_", "GCLOUD_", "KUBE", "RAY_")


def prepare(state: TwinState, *, program_dir: Path = REPOSITORY) -> None:
    """Make the state directory with everything that the engine needs to start.

    Args:
        state: the state directory.
        program_dir: where the program's own modules lie; its dynamic resources are run with these.
    """
    state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for directory in (state.bin_dir, state.backend_dir, state.pulumi_home, state.temporary):
        directory.mkdir(parents=True, exist_ok=True)
    for secret in (state.passphrase, state.access_token):
        if not secret.exists():
            secret.touch(mode=0o600)
            secret.write_text(secrets.token_urlsafe(32))
    ensure_ca_bundle(state)
    write_launchers(state, program_dir=program_dir)
    for module in MODULES:
        for program in module.packages:
            link = state.bin_dir / program
            link.unlink(missing_ok=True)
            # The target may still be building: a dangling link is no program until it is there.
            link.symlink_to(found_on_path(program) or build_dir(module) / program)


def variables(state: TwinState) -> dict[str, str]:
    """Return the variables that turn a shell into a client of the twin."""
    path = [str(state.bin_dir), str(Path(sys.executable).parent), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return {
        "PATH": os.pathsep.join(dict.fromkeys(path)),
        STATE_VARIABLE: str(state.root),
        "PULUMI_HOME": str(state.pulumi_home),
        "PULUMI_BACKEND_URL": f"file://{state.backend_dir}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(state.passphrase),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        # Where Google's certificates are known everywhere, the twin's are known to this machine only.
        "SSL_CERT_FILE": str(state.ca_bundle),
    }


def complete(state: TwinState) -> dict[str, str]:
    """Return the whole environment of a client of the twin: this process's, less what speaks of another cloud."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN_PREFIXES)}
    # pulumi-kubernetes leaves a file in the directory for temporary ones at each start.
    return {**own, **variables(state), "TMPDIR": str(state.temporary)}


def enter(state: TwinState) -> None:
    """Turn this process into a client of the twin: the engine and its providers inherit the environment."""
    wanted = complete(state)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def exports(state: TwinState) -> str:
    """Return `variables` as shell lines for `eval`."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables(state).items())
