"""One twin for a row of tests: a state directory and settings of its own, the commands that people type, its end."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.waiting import wait_until
from twin import environment
from twin.cloud.durations import SPEED_VARIABLE
from twin.cloud.store import ResourceType, Store
from twin.kubernetes import cluster
from twin.kubernetes.api import PODS, Manifest
from twin.plan import Plan, read_plan
from twin.settings import copy_settings
from twin.state import REPOSITORY, TwinState

COMMAND_TIMEOUT_S = 600
CLUSTER = "rlstack-local"
TURNED_ROUND = Path(__file__).with_name("turned_round")
"""The program with some of its declared order turned round."""


@dataclass(frozen=True, kw_only=True)
class Deletions:
    """When the engine began and ended to delete each resource, as places in the row of its events."""

    begun: Mapping[str, int]
    ended: Mapping[str, int]

    def out_of_order(self, pairs: Set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Keep the pairs whose second began to go before their first was gone; what was not there is passed over."""
        there = {(first, second) for first, second in pairs if first in self.ended and second in self.begun}
        assert there
        return {(first, second) for first, second in there if self.begun[second] < self.ended[first]}


@dataclass(frozen=True)
class TwinSession:
    """A twin and the directory of its settings."""

    state: TwinState
    settings: Path
    speed: str
    stack: str = "local"

    def start(self, module: str, *arguments: str, stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        """Start `python -m MODULE` in the settings' directory, as a client of the twin."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.settings,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, module: str, *arguments: str, code: int = 0) -> str:
        """Run it to its end; return what it printed, and fail unless it exits with `code`."""
        process = self.start(module, *arguments)
        try:
            output, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        assert process.returncode == code, output
        return output

    def twin(self, *arguments: str, code: int = 0) -> str:
        """Run `python -m twin`."""
        return self.run("twin", *arguments, code=code)

    def bring_up(self) -> None:
        """Bring the stack up, without Ray, unless it is."""
        if not self.state.cloud_db.exists() or not Store.open(self.state).list(ResourceType.CLUSTER):
            self.twin("up", "--without-ray", "--stack", self.stack)

    def changes(self, command: str) -> dict[str, int]:
        """Run an engine's command; return what its last line counts."""
        counts = next(
            line.removeprefix(f"{command}: ")
            for line in reversed(self.twin(command).splitlines())
            if line.startswith(f"{command}: ")
        )
        return {each.partition(" ")[2]: int(each.partition(" ")[0]) for each in counts.split(", ")}

    def environment(self) -> dict[str, str]:
        """What the commands of this twin find in their environment."""
        variables = {**os.environ, **environment.variables(self.state), SPEED_VARIABLE: self.speed}
        return {**variables, "PYTHONPATH": str(REPOSITORY), "PULUMI_STACK": self.stack}

    def edit(self, section: str, **values: Any) -> None:
        """Change keys of a section in the stack's file; a mapping is merged into the one that is there."""
        file = self.settings / f"Pulumi.{self.stack}.yaml"
        settings = yaml.safe_load(file.read_text())
        target = settings["config"].setdefault(f"rlstack:{section}", {})
        for key, value in values.items():
            target[key] = {**target.get(key, {}), **value} if isinstance(value, dict) else value
        file.write_text(yaml.safe_dump(settings, sort_keys=False))

    def settings_of(self, section: str) -> dict[str, Any]:
        """Read a section of the stack's file."""
        settings = yaml.safe_load((self.settings / f"Pulumi.{self.stack}.yaml").read_text())
        found: dict[str, Any] = settings["config"][f"rlstack:{section}"]
        return found

    def replace(self, section: str, value: dict[str, Any]) -> None:
        """Put another section in place of one in the stack's file."""
        file = self.settings / f"Pulumi.{self.stack}.yaml"
        settings = yaml.safe_load(file.read_text())
        settings["config"][f"rlstack:{section}"] = value
        file.write_text(yaml.safe_dump(settings, sort_keys=False))

    def plan(self, edits: Mapping[str, Mapping[str, Any]], *, secrets: Mapping[str, str] | None = None) -> Plan:
        """Preview the stack that is up with other settings, on a copy of them; several may do so at once."""
        with tempfile.TemporaryDirectory(dir=self.settings.parent) as directory:
            workspace = Path(directory)
            shutil.copytree(self.state.workspace(self.stack), workspace, dirs_exist_ok=True)
            file = workspace / f"Pulumi.{self.stack}.yaml"
            settings = yaml.safe_load(file.read_text())
            for section, values in edits.items():
                settings["config"][f"rlstack:{section}"] = _merged(settings["config"][f"rlstack:{section}"], values)
            file.write_text(yaml.safe_dump(settings, sort_keys=False))
            for name, value in (secrets or {}).items():
                self.pulumi("config", "set", "--secret", f"rlstack:{name}", value, directory=workspace)
            return self.run_program("preview", workspace=workspace)

    def run_program(self, command: str, *, workspace: Path | None = None, program: Path = REPOSITORY) -> Plan:
        """Run a program's `up` or `preview` on the stack; return what the engine did, or would do."""
        script = REPOSITORY / "twin" / "program_run.py"
        if workspace is None:
            workspace = self.state.workspace(self.stack)
            copy_settings(self.state, self.stack, self.settings)
        done = subprocess.run(
            [sys.executable, "-P", str(script), command, "rlstack", self.stack, str(workspace), str(program)],
            env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        plan = read_plan(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        assert bool(done.returncode) == bool(plan.errors), done.stdout + done.stderr
        return plan

    def pulumi(self, *arguments: str, directory: Path | None = None) -> str:
        """Run the engine's own command line on the stack; return what it printed."""
        command = ["pulumi", *arguments, "--stack", self.stack, "--non-interactive"]
        # The engine hides the option that keeps its events in a file.
        variables = {**self.environment(), "PULUMI_DEBUG_COMMANDS": "true"}
        done = subprocess.run(
            command, cwd=directory or self.state.workspace(self.stack), env=variables,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def destroy(self, *options: str) -> Deletions:
        """Run a plain `pulumi destroy` to its end; return in which order things went."""
        with tempfile.TemporaryDirectory(dir=self.settings.parent) as directory:
            log = Path(directory) / "events"
            self.pulumi("destroy", "--yes", "--skip-preview", "--event-log", str(log), *options)
            events = [json.loads(line) for line in log.read_text().splitlines()]
        moments: dict[str, dict[str, int]] = {"resourcePreEvent": {}, "resOutputsEvent": {}}
        for place, event in enumerate(events):
            for kind, places in moments.items():
                step = event.get(kind, {}).get("metadata", {})
                if step.get("op") == "delete":
                    places[step["urn"].rpartition("::")[2]] = place
        return Deletions(begun=moments["resourcePreEvent"], ended=moments["resOutputsEvent"])

    def lose_cluster(self, name: str) -> None:
        """Delete a cluster behind the stack's back, as somebody does in the console."""
        store = Store.open(self.state)
        cluster.delete(self.state, name)
        for kind in (ResourceType.NODE_POOL, ResourceType.CLUSTER):
            for row in store.list(kind):
                store.delete(kind, row.id)

    def deployment(self) -> list[dict[str, Any]]:
        """Read the resources in the engine's state of the stack."""
        resources: list[dict[str, Any]] = json.loads(self.pulumi("stack", "export"))["deployment"].get("resources", [])
        return resources

    def output(self, name: str) -> Any:
        """Read one output of the stack, as `python -m jobs` does."""
        pulumi = ["pulumi", "stack", "output", "--json", "--stack", "local", name]
        done = subprocess.run(
            pulumi, cwd=self.settings, env=self.environment(), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def pods(self, node_type: str) -> list[Manifest]:
        """List the cluster's Ray pods of one type, head or worker."""
        api = cluster.client(self.state, CLUSTER)
        try:
            return [pod for pod in api.list(PODS) if pod["metadata"]["labels"].get("ray.io/node-type") == node_type]
        finally:
            api.close()

    def checkpoint(self, step: int) -> Path:
        """Where a checkpoint of the run lies on the twin's Lustre."""
        return self.state.lustre(CLUSTER) / "local" / "grpo-cpu" / "checkpoints" / f"step_{step}"

    def wait_for_checkpoint(self, step: int) -> None:
        """Wait until a checkpoint is there."""
        wait_until(
            lambda: self.checkpoint(step).exists() or None, timeout_s=120, every_s=0.1, doing=f"step_{step} to be saved"
        )

    def processes(self) -> dict[int, str]:
        """Command lines of the living processes that know this twin's state directory."""
        root = str(self.state.root).encode()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(root in (entry / file).read_bytes() for file in ("cmdline", "environ", "mountinfo")):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def listening_addresses(self) -> set[str]:
        """Addresses on which the twin's processes in the host's own network namespace listen."""
        own = Path("/proc/self/ns/net").readlink()
        inodes = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").readlink() != own:
                    continue
                for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
        found = set()
        for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                    raw = bytes.fromhex(fields[1].partition(":")[0])
                    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                    found.add(socket.inet_ntop(family, words))
        return found


@contextmanager
def twin_session(directory: Path, *, speed: str, stack: str = "local") -> Iterator[TwinSession]:
    """Make a twin with a shipped stack; at the end nothing of it is left running, whatever happened."""
    settings = directory / "settings"
    settings.mkdir()
    for name in ("Pulumi.yaml", f"Pulumi.{stack}.yaml"):
        (settings / name).write_bytes((REPOSITORY / name).read_bytes())
    session = TwinSession(TwinState(directory / "state"), settings, speed, stack)
    try:
        yield session
    finally:
        cluster.stop_all(session.state)
        for pid in session.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Lay values over a section; a variant of a union, which names its kind, takes the other's place."""
    return dict(old) | {
        key: _merged(old[key], value) if isinstance(value, dict) and "kind" not in value and key in old else value
        for key, value in new.items()
    }


def refusals(session: TwinSession) -> list[str]:
    """What the simulated Google refused so far."""
    return [event.text for event in Store.open(session.state).events_since() if event.kind == "Google refused"]
