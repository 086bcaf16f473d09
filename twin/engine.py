"""The real Pulumi engine, driven over the program beside Pulumi.yaml, with the twin's providers on its PATH."""

import fcntl
import gc
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pulumi import automation

from jobs.errors import RlstackError, TwinError
from twin import environment, settings
from twin.cloud.store import ResourceType, Store
from twin.kubernetes import cluster
from twin.state import REPOSITORY, TwinState
from twin.toolchain import missing_programs
from twin.toolchain.build import build_all

PROJECT = "rlstack"
STOP_BUILDER_WITHIN_S = 30


class EngineFailed(RlstackError):
    """The engine reported errors; it has printed them."""


@dataclass(frozen=True)
class Engine:
    """One stack in the twin. Holds the twin's lock while it works: two commands never change one project at once.

    Attributes:
        state: the twin's state directory.
        stack: name of a Pulumi.<stack>.yaml.
        settings_dir: where that file and Pulumi.yaml lie.
    """

    state: TwinState
    stack: str
    settings_dir: Path

    def preview(self) -> dict[str, int]:
        """Show what `up` would do; return how many resources each operation takes."""
        with self._open() as stack, _interrupts_reach_the_engine(), _errors_told():
            changes = stack.preview(on_output=_say, color="never").change_summary
            return {str(operation): count for operation, count in changes.items()}

    def up(self) -> dict[str, int]:
        """Create or change what the stack declares; return how many resources each operation took.

        Missing programs are built meanwhile: the twin's cluster is "creating" until they are there.
        """
        with self._open(build_aside=True) as stack, _interrupts_reach_the_engine(), _errors_told():
            return _counts(stack.up(on_output=_say, color="never").summary)

    def refresh(self) -> dict[str, int]:
        """Read what is really there into the stack's state."""
        with self._open() as stack, _interrupts_reach_the_engine(), _errors_told():
            return _counts(stack.refresh(on_output=_say, color="never").summary)

    def destroy(self) -> dict[str, int]:
        """Delete everything in the stack's state, without running the program."""
        with self._open() as stack, _interrupts_reach_the_engine(), _errors_told():
            return _counts(stack.destroy(on_output=_say, color="never").summary)

    def set_secret(self, key: str, value: str) -> None:
        """Keep a secret of the stack, encrypted, in the engine's copy of its settings."""
        with self._open() as stack, _interrupts_reach_the_engine(), _errors_told():
            stack.set_config(f"{PROJECT}:{key}", automation.ConfigValue(value=value, secret=True))

    @contextmanager
    def _open(self, *, build_aside: bool = False) -> Iterator[automation.Stack]:
        settings.stack_file(self.stack, self.settings_dir)  # a misspelt name must cost nothing
        # The SDKs' modules are half a million objects that live to the end: walking them costs a quarter of a preview.
        gc.disable()
        environment.prepare(self.state)
        environment.enter(self.state)
        with _lock(self.state), _tools(build_aside=build_aside):
            for name in settings.copy_settings(self.state, self.stack, self.settings_dir):
                _say(f"note: {name} is encrypted for another secrets provider; the twin goes on without it")
            for resource in Store.open(self.state).list(ResourceType.CLUSTER):
                cluster.ensure_running(self.state, resource.name)
            with _errors_told():
                stack = automation.create_or_select_stack(
                    stack_name=self.stack,
                    project_name=PROJECT,
                    program=_program,
                    opts=automation.LocalWorkspaceOptions(work_dir=str(self.state.workspace(self.stack))),
                )
                # We hold the twin's lock, so a lock in the backend is a killed command's.
                if any((self.state.backend_dir / ".pulumi" / "locks").rglob("*.json")):
                    stack.cancel()
            yield stack
        gc.freeze()  # nor does the interpreter's own end walk them


def _program() -> None:
    sys.path.insert(0, str(REPOSITORY))
    runpy.run_path(str(REPOSITORY / "__main__.py"), run_name="__main__")


def _counts(summary: automation.UpdateSummary) -> dict[str, int]:
    return {str(operation): count for operation, count in (summary.resource_changes or {}).items()}


def _say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def _errors_told() -> Iterator[None]:
    """Turn the engine's non-zero exit into one error: its diagnostics are on the terminal already."""
    try:
        yield
    except automation.CommandError as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        message = "the engine stopped with errors, shown above"
        if lines:
            message += f"; the first: {lines[0].strip()}"
        message += ". What was done before is kept: mend the cause and type the command again"
        raise EngineFailed(message) from error


@contextmanager
def _interrupts_reach_the_engine() -> Iterator[None]:
    """On Ctrl-C or SIGTERM let the engine end in order: it finishes what is under way and writes its state.

    A Ctrl-C at a terminal reaches the engine by itself, and a second one would make it drop everything.
    """
    received: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        received.append(number)
        at_terminal = sys.stdin is not None and sys.stdin.isatty()
        if number != signal.SIGINT or not at_terminal:
            for children in Path("/proc/self/task").glob("*/children"):
                for pid in children.read_text().split():
                    os.kill(int(pid), signal.SIGINT)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except EngineFailed:
        if received:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _lock(state: TwinState) -> Iterator[None]:
    with (state.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another command works on the twin in {state.root}. Wait for it, or stop it, and try again"
            raise TwinError(message) from None
        yield


@contextmanager
def _tools(*, build_aside: bool) -> Iterator[None]:
    """See to it that the engine can start; build the rest before it, or aside while it works."""
    if not missing_programs():
        yield
    elif not build_aside:
        build_all()
        yield
    else:
        builder = subprocess.Popen([sys.executable, "-m", "twin.toolchain"], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        try:
            while shutil.which("pulumi") is None:
                try:
                    code = builder.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    continue
                if code != 0:
                    message = "the engine could not be built; the builder has said why, above"
                    raise TwinError(message)
            yield
        finally:
            if builder.poll() is None:
                builder.send_signal(signal.SIGTERM)
                builder.wait(timeout=STOP_BUILDER_WITHIN_S)
