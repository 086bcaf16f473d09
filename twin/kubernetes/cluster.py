"""One GKE cluster of the twin: its control plane and its agent, from creation to deletion.

kwokctl writes the certificates and starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK as
plain processes that outlive the command; the agent (agent.py) does the rest. Ending them is done here, by recorded pid
and start time: kwokctl's own pid files would, after a reboot, name somebody else's process.
"""

import base64
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import certifi
import yaml

from jobs.errors import RlstackError, TwinError
from jobs.waiting import wait_until
from twin.cloud.durations import SPEED_VARIABLE
from twin.cloud.store import ProcessIdentity, ResourceType, Store
from twin.kubernetes import kwok
from twin.kubernetes.api import NODES, ApiClient, Manifest
from twin.kubernetes.nodes import SPOT_LABEL, cluster_of
from twin.kubernetes.processes import POLL_PERIOD_S, end
from twin.state import REPOSITORY, STATE_VARIABLE, TwinState
from twin.toolchain import tool_path

START_TIMEOUT_S = 120.0
"""A control plane is ready in 6 s on two cores; a loaded or slow machine takes a multiple of that."""
END_TIMEOUT_S = 10.0

_KWOKCTL_NAME = "gke"
_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
_BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
AGENT = "agent"
_AGENT_VARIABLES = ("XDG_CACHE_HOME", SPEED_VARIABLE)
# Debian and its kin; Fedora and its kin. Without either, the authorities that came with the Python packages.
_SYSTEM_AUTHORITIES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a cluster's API server answers.

    Attributes:
        server: `localhost:<port>`; the server's certificate is valid for that name.
        ca_certificate: base64 of the PEM of its certificate authority, as GKE gives it.
    """

    server: str
    ca_certificate: str


@dataclass(frozen=True)
class ClusterFiles:
    """What lies in the directory of one cluster."""

    root: Path

    @property
    def kwokctl(self) -> Path:
        """The directory that kwokctl keeps of the cluster."""
        return self.root / "clusters" / _KWOKCTL_NAME

    @property
    def configuration(self) -> Path:
        """The input of kwokctl."""
        return self.root / "kwok.yaml"

    @property
    def tokens(self) -> Path:
        """The static tokens of kube-apiserver; 0600."""
        return self.root / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig with client certificate, for KubeRay's operator."""
        return self.kwokctl / "kubeconfig.yaml"

    @property
    def ca_certificate(self) -> Path:
        """The authority of the API server's certificate, PEM."""
        return self.kwokctl / "pki" / "ca.crt"

    @property
    def agent_log(self) -> Path:
        """What the agent says, and every error that it met."""
        return self.root / "agent.log"

    def endpoint(self) -> Endpoint:
        """Read where the API server answers, as kwokctl wrote it down."""
        server = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return Endpoint(
            server=f"localhost:{server.rpartition(':')[2]}",
            ca_certificate=base64.b64encode(self.ca_certificate.read_bytes()).decode(),
        )


def client(state: TwinState, name: str) -> ApiClient:
    """Connect to a cluster's API server with the twin's access token."""
    files = ClusterFiles(state.cluster(name))
    return ApiClient(
        server=files.endpoint().server, ca_file=files.ca_certificate, token=state.access_token.read_text().strip()
    )


def create(state: TwinState, name: str) -> Endpoint:
    """Create a cluster, or complete one that is there, and return once its API server is ready.

    Raises:
        TwinError: a program is missing, or the control plane was not ready within 120 s. Nothing is left running.
    """
    files = ClusterFiles(state.cluster(name))
    try:
        files.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_secret(files.tokens, f"{state.access_token.read_text().strip()},twin,twin,system:masters\n")
        binaries = {program: tool_path(program) for program in _BINARIES}
        without_ray = state.without_ray.exists()
        files.configuration.write_text(
            kwok.configuration(
                binaries=binaries, token_file=files.tokens, pki=files.ca_certificate.parent, without_ray=without_ray
            )
        )
        _kwokctl(files, "create", "--config", str(files.configuration), "--kubeconfig", str(files.root / "kubeconfig"))
        _record(state, name)
        ensure_ca_bundle(state)
        _start_agent(state, name)
    except (RlstackError, OSError):
        with contextlib.suppress(RlstackError):
            delete(state, name)
        raise
    return files.endpoint()


def ensure_running(state: TwinState, name: str) -> None:
    """Start what is not running of a cluster: after a reboot, `twin stop` or a crash.

    Raises:
        TwinError: the control plane did not become ready within 120 s; its data is kept.
    """
    files = ClusterFiles(state.cluster(name))
    if not files.kubeconfig.exists():
        _count_as_deleted(state, name)
        return
    recorded = {process.name: process.identity for process in Store.open(state).processes()}
    living = {process for process, identity in recorded.items() if identity.alive}
    if living >= {process_name(name, program) for program in (*_COMPONENTS, AGENT)}:
        return
    # kwokctl takes a living pid for its own component; after a reboot it may be anyone's.
    for pid_file in (files.kwokctl / "pids").glob("*.pid"):
        identity = recorded.get(process_name(name, pid_file.stem))
        if identity is None or not identity.alive or str(identity.pid) != pid_file.read_text():
            pid_file.unlink()
    _kwokctl(files, "start")
    _record(state, name)
    ensure_ca_bundle(state)
    _start_agent(state, name)


def _count_as_deleted(state: TwinState, name: str) -> None:
    """Forget a cluster whose data somebody removed, as if it had been deleted in the console: the engine can cope."""
    stop(state, name)
    store = Store.open(state)
    lost = [each for each in store.list(ResourceType.CLUSTER) if each.name == name]
    pools = [pool for pool in store.list(ResourceType.NODE_POOL) if cluster_of(pool) == name]
    for resource in (*lost, *pools):
        store.delete(resource.type, resource.id)
    text = (
        f"its data is gone from {state.cluster(name)}, so it counts as deleted. Type: python -m twin refresh, then up"
    )
    store.add_event("ClusterLost", name, text)


def stop(state: TwinState, name: str) -> None:
    """Stop every process of a cluster and keep its data; the agent goes first, and all pods with it."""
    store = Store.open(state)
    prefix = process_name(name, "")
    mine = {p.name: p.identity for p in store.processes() if p.name.startswith(prefix)}
    agent = mine.get(prefix + AGENT)
    end([agent] if agent else [], timeout_s=END_TIMEOUT_S)
    end([*mine.values(), *_unrecorded(state, name)], timeout_s=END_TIMEOUT_S)
    for process in mine:
        store.forget_process(process)
    for pid_file in (ClusterFiles(state.cluster(name)).kwokctl / "pids").glob("*.pid"):
        pid_file.unlink()


def stop_all(state: TwinState) -> None:
    """Stop every cluster that has a directory."""
    for directory in sorted(state.cluster("x").parent.glob("*")):
        stop(state, directory.name)


def delete(state: TwinState, name: str) -> None:
    """Stop a cluster and remove all that it kept; one that is not there is no error."""
    stop(state, name)
    shutil.rmtree(state.cluster(name), ignore_errors=True)
    if not any(state.cluster(name).parent.glob("*")):
        # An agent removes what its pods kept, unless it was killed.
        shutil.rmtree(state.pods, ignore_errors=True)
    ensure_ca_bundle(state)


def names(state: TwinState) -> list[str]:
    """Name the clusters of the simulated project.

    Raises:
        TwinError: there is none.
    """
    found = [each.name for each in Store.open(state).list(ResourceType.CLUSTER)]
    if not found:
        raise TwinError(f"the twin in {state.root} has no cluster, so nothing was done. Type: python -m twin up")
    return found


def spot_nodes(state: TwinState, name: str) -> list[Manifest]:
    """List the Spot machines that a cluster has now."""
    api = client(state, name)
    try:
        nodes = api.list(NODES)
    finally:
        api.close()
    return [node for node in nodes if node["metadata"]["labels"].get(SPOT_LABEL) == "true"]


def ensure_ca_bundle(state: TwinState) -> None:
    """Write the certificate authorities that clients of the twin trust: the system's and one for each cluster."""
    system = next(path for path in (*_SYSTEM_AUTHORITIES, Path(certifi.where())) if path.exists())
    parts = [system, *sorted(state.cluster("x").parent.glob("*/clusters/*/pki/ca.crt"))]
    bundle = "".join(f"{part.read_text().strip()}\n" for part in parts)
    if not state.ca_bundle.exists() or state.ca_bundle.read_text() != bundle:
        state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=state.root, delete=False) as temporary:
            temporary.write(bundle)
        Path(temporary.name).chmod(0o644)
        Path(temporary.name).replace(state.ca_bundle)


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def process_name(cluster: str, program: str) -> str:
    """Name under which the store records a program of a cluster."""
    return f"cluster/{cluster}/{program}"


def _kwokctl(files: ClusterFiles, verb: str, *arguments: str) -> None:
    command = [str(tool_path("kwokctl")), verb, "cluster", "--name", _KWOKCTL_NAME, "--wait", f"{START_TIMEOUT_S:.0f}s"]
    # kwokctl asks the new API server through kubectl, which comes with the twin's Python packages.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {"PATH": path, "HOME": str(files.root), "KWOK_WORKDIR": str(files.root)}
    log = files.root / "kwokctl.log"
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                [*command, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=2 * START_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            raise TwinError(f"kwokctl {verb} did not end within {expired.timeout:.0f} s. Read {log}") from expired
    if done.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise TwinError(
            f"the control plane in {files.root} did not start (kwokctl {verb}: exit code {done.returncode}): "
            f"{''.join(last)[:500]}. Read {log} and {files.kwokctl / 'logs'}"
        )


def _record(state: TwinState, name: str) -> None:
    """Record kwokctl's processes and wait until the API server serves."""
    store = Store.open(state)
    files = ClusterFiles(state.cluster(name))
    for pid_file in (files.kwokctl / "pids").glob("*.pid"):
        if store.record_process(process_name(name, pid_file.stem), int(pid_file.read_text())) is None:
            raise TwinError(
                f"{pid_file.stem} of cluster {name} ended as soon as it was started. "
                f"Read {files.kwokctl / 'logs' / pid_file.with_suffix('.log').name}"
            )
    api = client(state, name)
    wait_until(
        api.ready,
        timeout_s=START_TIMEOUT_S,
        every_s=POLL_PERIOD_S,
        doing=f"cluster {name}'s API server to serve (its log: {files.kwokctl / 'logs' / 'kube-apiserver.log'})",
    )
    api.close()


def _unrecorded(state: TwinState, name: str) -> list[ProcessIdentity]:
    """Find what a killed `create` had started and not yet recorded: by its program's path, which is this cluster's."""
    directory = f"{ClusterFiles(state.cluster(name)).kwokctl}/bin/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes().startswith(directory):
                    found.append(ProcessIdentity.of(int(entry.name)))
    return [identity for identity in found if identity]


def _start_agent(state: TwinState, name: str) -> None:
    store = Store.open(state)

    def running() -> bool:
        mine = process_name(name, AGENT)
        return any(process.name == mine and process.identity.alive for process in store.processes())

    if running():
        return
    files = ClusterFiles(state.cluster(name))
    command = [sys.executable, "-m", "twin.kubernetes.agent", "--cluster", name]
    if os.geteuid():
        # Root of a user namespace of its own may make the namespaces that pods need; its files stay the user's.
        command = ["unshare", "--user", "--map-root-user", "--", *command]
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(Path.home()),
        "PYTHONPATH": str(REPOSITORY),
        STATE_VARIABLE: str(state.root),
    }
    environment |= {variable: os.environ[variable] for variable in _AGENT_VARIABLES if variable in os.environ}
    with files.agent_log.open("ab") as log:
        # setsid lets the agent outlive this process as nobody's child; it records itself.
        subprocess.run(
            ["setsid", "--fork", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            check=True,
        )
    wait_until(
        running,
        timeout_s=START_TIMEOUT_S,
        every_s=POLL_PERIOD_S,
        doing=f"cluster {name}'s agent to start (its log: {files.agent_log})",
    )
