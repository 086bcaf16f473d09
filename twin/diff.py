"""`python -m twin diff`: what this working tree would change in a stack that stands as a commit says. No credentials.

The commit's stack is brought up on a twin of its own, without Ray and on the fast clock; then the working tree is
previewed against that state. It is a true diff: the engine compares with what the commit's program really made, where a
preview of a new stack shows nothing but creations.

Either side runs its own program, in a process of its own, with its own settings and its own `jobs.ray_job`; the twin
under both is this tree's. So the commit may be older than the twin, and a change of the twin itself is no change of the
stack. The commit is exported with `git archive`: a worktree would leave an entry in .git when it is killed.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from components.config import parse_config
from components.sections import CreateLustre
from jobs.checkpoint_maths import checkpoint_bytes, save_seconds
from jobs.errors import ConfigError, TwinError, UsageError
from jobs.model_size import named_parameters
from jobs.stack_file import read_stack_sections
from twin import environment, settings
from twin.cloud.durations import SPEED_VARIABLE
from twin.engine import PROJECT, EngineFailed
from twin.kubernetes import cluster
from twin.plan import Plan, markdown, read_plan
from twin.state import TwinState
from twin.toolchain import missing_programs
from twin.toolchain.build import build_all

_PROGRAM_RUN = Path(__file__).with_name("program_run.py")
_GIT_TIMEOUT_S = 120.0
_RUN_TIMEOUT_S = 900.0  # one `up` or `preview`


@dataclass(frozen=True, kw_only=True)
class BaseStack:
    """A stack as a commit declares it, up on a twin of its own.

    Attributes:
        state: that twin's state directory.
        stack: the stack's name.
        commit: the commit, abbreviated.
        is_new: whether the commit has no such stack; then nothing is up.
        plan: what bringing it up did; with errors when it did not come up.
    """

    state: TwinState
    stack: str
    commit: str
    is_new: bool
    plan: Plan

    def preview(self, directory: Path) -> Plan:
        """Preview the program in a directory against what is up."""
        return _run("preview", self.state, self.stack, directory)


@contextmanager
def base_stack(base: str, stack: str, *, directory: Path, state: TwinState) -> Iterator[BaseStack]:
    """Bring a commit's stack up; at the end, also after Ctrl-C or SIGTERM, nothing of it is left.

    Args:
        base: the commit, in any form that git reads.
        stack: name of a Pulumi.<stack>.yaml.
        directory: of the program, in a git repository.
        state: its directory holds that of the new twin meanwhile.

    Raises:
        UsageError: git does not know the commit.
        TwinError: git cannot export it, or a program of the twin is missing and could not be built.
    """
    commit = _commit(base, directory)
    if missing_programs():
        build_all()
    state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    root = Path(tempfile.mkdtemp(prefix="diff-", dir=state.root))
    own = TwinState(root / "state")
    with _interrupted_once():
        try:
            program = root / "base"
            _export(commit, directory, program)
            own.root.mkdir(mode=0o700)
            own.without_ray.touch()
            is_new = not (program / f"Pulumi.{stack}.yaml").exists()
            plan = read_plan([]) if is_new else _run("up", own, stack, program)
            yield BaseStack(state=own, stack=stack, commit=commit, is_new=is_new, plan=plan)
        finally:
            cluster.stop_all(own)
            shutil.rmtree(root, ignore_errors=True)


def _git(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(directory), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_GIT_TIMEOUT_S)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise TwinError(
            f"{' '.join(command)} could not be run to its end, so nothing was compared: {error}. Install git, or see "
            "why it does not answer"
        ) from error


def _commit(base: str, directory: Path) -> str:
    found = _git(directory, "rev-parse", "--verify", "--short", "--end-of-options", f"{base}^{{commit}}")
    if found.returncode:
        message = (
            f"--base {base}: git knows no such commit in {directory}, so nothing was compared. Name one of git log"
        )
        raise UsageError(f"{message}; a shallow clone may lack it: git fetch --unshallow")
    return found.stdout.strip()


def _export(commit: str, directory: Path, target: Path) -> None:
    archive = target.with_suffix(".tar")
    done = _git(directory, "archive", "--format=tar", f"--output={archive}", commit)
    if done.returncode:
        raise TwinError(
            f"--base {commit}: git cannot export it from {directory} ({done.stderr.strip()}), so nothing was compared. "
            f"See: git -C {directory} archive {commit} | tar t"
        )
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")


def _run(command: str, state: TwinState, stack: str, program: Path) -> Plan:
    """Run a program under the engine and read its plan; the engine's own lines go to standard error."""
    environment.prepare(state, program_dir=program)
    for key in settings.copy_settings(state, stack, program):
        print(f"note: {key} is encrypted for another secrets provider; the plan goes on without it", file=sys.stderr)
    process = subprocess.Popen(
        [sys.executable, "-P", str(_PROGRAM_RUN), command, PROJECT, stack, str(state.workspace(stack)), str(program)],
        env={**environment.complete(state), "PYTHONPATH": str(program), SPEED_VARIABLE: "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        # A Ctrl-C is this process's to answer: it ends the engine, and then removes what the engine had begun.
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired as expired:
        raise EngineFailed(
            f"{command} of stack {stack} did not end within {_RUN_TIMEOUT_S:.0f} s and was killed. Its last lines are "
            "above; type the command again"
        ) from expired
    finally:
        _end(process)
    plan = read_plan(_events(output))
    if process.returncode and not plan.errors:
        return replace(plan, errors=(f"the engine ended with exit code {process.returncode}; its lines say why",))
    return plan


def _events(output: str) -> Iterator[dict[str, Any]]:
    """Read the events; a program may print lines of its own among them."""
    for line in output.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of an engine and of all that it started: nothing of what they had begun is kept."""
    # Once more for what was started while the first round went on.
    for _ in range(2):
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
    process.wait()


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM interrupt, and no other one the cleaning up after it."""
    received: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def checkpoint_note(stack: str, sections: Mapping[str, Any]) -> list[str]:
    """Estimate what a checkpoint is and costs; nothing where the config is refused or the model's name states no size.

    Args:
        stack: the stack's name.
        sections: its config, as in its file without the `rlstack:` prefix.
    """
    try:
        config = parse_config(stack, sections)
    except ConfigError:
        return []
    grpo, lustre = config.job.grpo, config.lustre
    parameters = named_parameters(grpo.model_name)
    if parameters is None:
        return []
    size = checkpoint_bytes(parameters)
    note = f"Checkpoint, estimated from the name {grpo.model_name}: {size / 1e9:,.0f} GB"
    if isinstance(lustre, CreateLustre):
        tier = lustre.throughput_mbps_per_tib
        seconds = save_seconds(size, capacity_gib=lustre.capacity_gib, throughput_mbps_per_tib=tier)
        note += f", {seconds:.0f} s to save at best ({lustre.capacity_gib} GiB at {tier} MB/s per TiB)"
    return [f"{note}; {grpo.max_num_steps // grpo.save_period} saves in {grpo.max_num_steps} steps."]


def show(base: str, stack: str, *, directory: Path, state: TwinState) -> None:
    """Print the plan as Markdown on standard output.

    Raises:
        EngineFailed: either side was refused; the errors are printed.
        UsageError: there is no such commit or stack.
    """
    settings.stack_file(stack, directory)  # a misspelt name must cost nothing
    with base_stack(base, stack, directory=directory, state=state) as up:
        if up.plan.errors:
            print(markdown(up.plan, heading=f"Stack `{stack}` at {up.commit} does not come up"), flush=True)
            message = f"stack {stack} at {up.commit} does not come up on the twin, so there is nothing to compare with"
            raise EngineFailed(f"{message}. Mend it there, or name another --base")
        plan = up.preview(directory)
    new = [f"The stack is new: {up.commit} has no Pulumi.{stack}.yaml."] if up.is_new else []
    notes = [*new, *checkpoint_note(stack, read_stack_sections(settings.stack_file(stack, directory)))]
    heading = f"Stack `{stack}`: this tree against {up.commit}"
    print(markdown(plan, heading=heading, notes=notes), flush=True)
    if plan.errors:
        message = f"stack {stack} as this tree declares it is refused, as printed"
        raise EngineFailed(f"{message}. Mend it and type the command again")
