"""Build what is missing, one module at a time, with progress on the terminal.

A build that was interrupted goes on where it stopped: Go's build cache is kept until every module is built, then
removed (it grows to several GB). Two processes that build at once share the work through a lock file.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.errors import TwinError
from twin.toolchain import build_dir, cache_dir, find_tool, missing_programs
from twin.toolchain.go import go_program
from twin.toolchain.programs import BUILD_FLAGS, MODULES, Module

BUILD_TIMEOUT_S = 3600
PROGRESS_EVERY_S = 20
WAIT_EVERY_S = 0.5
# Between the start of a command and its builder taking the lock.
BUILDER_STARTS_WITHIN_S = 20


def say(text: str) -> None:
    """Print one line of progress."""
    print(text, file=sys.stderr, flush=True)


def build_all() -> None:
    """Build every module of which a program is missing, in the order in which `up` needs them.

    Raises:
        TwinError: a module does not build; names it, the compiler's last lines and what to do.
    """
    wanted = [module for module in MODULES if any(find_tool(program) is None for program in module.packages)]
    if not wanted:
        return
    cache_dir().mkdir(parents=True, exist_ok=True)
    with _build_lock():
        for module in wanted:
            if not build_dir(module).exists():
                _failure_file(module).unlink(missing_ok=True)
                _build(module)
        _remove_go_caches()


def wait_for_tools(timeout_s: float) -> None:
    """Wait until every program is there, while another process builds them.

    Raises:
        TwinError: a build failed, none is running, or the deadline passed.
    """
    started = time.monotonic()
    while missing := missing_programs():
        waited_s = time.monotonic() - started
        for module in MODULES:
            if _failure_file(module).exists():
                raise TwinError(_failure_file(module).read_text())
        if waited_s > timeout_s:
            message = f"{', '.join(missing)} not built after {timeout_s:.0f} s. Type: python -m twin.toolchain"
            raise TwinError(message)
        if waited_s > BUILDER_STARTS_WITHIN_S and not _builder_lives():
            message = f"{', '.join(missing)} missing and nobody builds them. Type: python -m twin.toolchain"
            raise TwinError(message)
        time.sleep(WAIT_EVERY_S)


def _build(module: Module) -> None:
    target = build_dir(module)
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(cache_dir() / "go-build"),
        "GOMODCACHE": str(cache_dir() / "go-mod"),
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false -modcacherw",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    go = str(go_program())
    link = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in module.link_variables.items())])
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{module.name}-") as scratch:
        log = Path(scratch) / "build.log"
        for program, package in module.packages.items():
            command = [go, "build", "-v", *BUILD_FLAGS, f"-ldflags={link}", "-o", f"{scratch}/{program}", package]
            if _run(command, module.directory, environment, log) != 0:
                _fail(module, program, log)
        for name, (go_module, glob) in module.data.items():
            listed = subprocess.run(
                [go, "list", "-m", "-f", "{{.Dir}}", go_module],
                cwd=module.directory, env=environment, check=True, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            (Path(scratch) / name).mkdir()
            for file in Path(listed.stdout.strip()).glob(glob):
                shutil.copyfile(file, Path(scratch) / name / file.name)
        log.unlink()
        Path(scratch).chmod(0o755)
        shutil.copytree(scratch, f"{target}.new", dirs_exist_ok=True)
    Path(f"{target}.new").rename(target)


def _run(command: list[str], directory: Path, environment: dict[str, str], log: Path) -> int:
    started = time.monotonic()
    shown_at = started
    program = Path(command[command.index("-o") + 1]).name
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (this process has one thread)
        )  # fmt: skip
    try:
        while True:
            try:
                return process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now - started > BUILD_TIMEOUT_S:
                    message = f"building {program} took longer than {BUILD_TIMEOUT_S} s and was stopped. Type the "
                    message += "command again: it goes on from there"
                    raise TwinError(message) from None
                if now - shown_at >= PROGRESS_EVERY_S:
                    shown_at = now
                    compiled = log.read_bytes().count(b"\n")
                    say(f"building {program}: {compiled} packages compiled, {now - started:.0f} s")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        elif time.monotonic() - started > PROGRESS_EVERY_S:
            say(f"built {program} in {time.monotonic() - started:.0f} s")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: no compiler outlives an interrupted command


def _fail(module: Module, program: str, log: Path) -> None:
    # -v prints one import path a line, without a space; what is wrong is said in sentences.
    said = [line for line in log.read_text(errors="replace").splitlines() if " " in line]
    tail = "\n".join(said[-15:])
    message = f"{program} cannot be built from twin/toolchain/modules/{module.name}: the twin cannot start.\n{tail}\n"
    message += "Mend what the lines above name (network? disk full?) and type the command again: it goes on from there"
    _failure_file(module).write_text(message)
    raise TwinError(message)


def _failure_file(module: Module) -> Path:
    return cache_dir() / f"{module.name}-{module.key}.failed"


def _remove_go_caches() -> None:
    for name in ("go-build", "go-mod"):
        shutil.rmtree(cache_dir() / name, ignore_errors=True)


@contextmanager
def _build_lock() -> Iterator[None]:
    with (cache_dir() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process builds the same programs; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _builder_lives() -> bool:
    with (cache_dir() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
