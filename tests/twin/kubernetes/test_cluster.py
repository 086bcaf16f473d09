import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import kr8s
import pytest
from kr8s.objects import Service

from jobs.errors import WaitTimeout
from jobs.waiting import wait_until
from tests.twin.kubernetes import rows
from twin import preemption
from twin.cloud.faults import GPU_QUOTA
from twin.cloud.store import ProcessIdentity, Store
from twin.kubernetes import cluster
from twin.kubernetes.api import DEFINITIONS, NODES, PODS, SECRETS, ApiClient, Manifest, Resource
from twin.kubernetes.processes import send
from twin.preemption import Preemption
from twin.state import TwinState

LEASES = Resource(api_version="coordination.k8s.io/v1", plural="leases")
RAY_CLUSTERS = Resource(api_version="ray.io/v1", plural="rayclusters")
CANARY = "Y2FuYXJ5LXZhbHVl"
TIMEOUT_S = 120.0


class Gke:
    """A cluster named `c` of a simulated project."""

    def __init__(self, state: TwinState) -> None:
        self.state = state
        self.store = Store.open(state)
        self.endpoint = cluster.create(state, "c")
        self.api = cluster.client(state, "c")

    def wait(self, condition: Callable[[], bool], doing: str) -> None:
        log = cluster.ClusterFiles(self.state.cluster("c")).agent_log
        try:
            wait_until(condition, timeout_s=TIMEOUT_S, every_s=0.2, doing=doing)
        except WaitTimeout as timeout:
            raise AssertionError(f"{timeout}; the agent said: {log.read_text()[-3000:]}") from timeout

    def node_of(self, name: str) -> str | None:
        pod = self.api.get(PODS, name, "default")
        return pod["spec"].get("nodeName") if pod else None

    def processes(self) -> set[int]:
        """Pids of all that works for this cluster: what names its state directory, and what that has started."""
        root = str(self.state.root).encode()
        parents = {int(entry.name): _parent(entry) for entry in Path("/proc").glob("[0-9]*")}
        found = {
            pid for pid in parents if any(root in _read(pid, file) for file in ("cmdline", "environ", "mountinfo"))
        }
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def told(self) -> list[str]:
        """What the simulated project says of itself."""
        return [event.text for event in self.store.events_since()]

    def kill_agent(self) -> None:
        agent = next(process for process in self.store.processes() if process.name.endswith("/agent"))
        send(agent.identity, signal.SIGKILL)


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _parent(entry: Path) -> int:
    fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


@pytest.fixture
def gke(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Gke]:
    state = TwinState(tmp_path / "state")
    state.root.mkdir()
    state.access_token.write_text("a-token-of-this-test")
    store = Store.open(state)
    store.put(rows.cluster(ray_operator=request.param))
    for row in (rows.system_pool(), rows.spot_pool()):
        store.put(row)
    running = Gke(state)
    try:
        yield running
    finally:
        running.api.close()
        cluster.delete(state, "c")


def run_in_pod(gke: Gke, pod: str, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `kubectl exec` to its end."""
    kubectl = [str(Path(sys.executable).with_name("kubectl")), "exec", "-i", pod, "--container=worker", "--", *command]
    kubeconfig = str(cluster.ClusterFiles(gke.state.cluster("c")).kubeconfig)
    return subprocess.run(
        kubectl, input=stdin, env={"KUBECONFIG": kubeconfig, "HOME": str(gke.state.root)},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def listening(pids: set[int]) -> set[str]:
    """Addresses on which processes listen, in this network namespace."""
    lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    of = [line for line in lines if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & pids]
    return {line.split()[3].rpartition(":")[0] for line in of}


@pytest.mark.engine
@pytest.mark.parametrize("gke", [False], indirect=True)
def test_the_scheduler_places_gpu_pods_on_nodes_that_come_for_them_and_delete_leaves_nothing(gke: Gke) -> None:
    api = gke.api
    gke.wait(lambda: len(api.list(NODES)) == 1, "the system pool's node")
    gke.store.set_fault(GPU_QUOTA)
    for name in ("a", "b"):
        api.create(PODS, rows.gpu_pod(name) | {"status": {}})
    gke.wait(lambda: any("GCE_QUOTA_EXCEEDED" in said for said in gke.told()), "the refusal of machines beyond quota")
    gke.store.clear_fault(GPU_QUOTA)
    gke.wait(lambda: all(gke.node_of(name) for name in ("a", "b")), "the scheduling of two pods with 8 GPUs each")
    assert gke.node_of("a") != gke.node_of("b")
    assert api.get(DEFINITIONS, "rayclusters.ray.io") is None
    assert gke.store.observed("c") > 0
    # Controller manager and scheduler have worked, and hang on no lease that a busy machine would make them miss.
    assert not {lease["metadata"]["name"] for lease in api.list(LEASES)} & {"kube-controller-manager", "kube-scheduler"}

    preemption.replay(gke.state, [Preemption(at_s=1, nodes=1, return_after_s=0)])
    gke.wait(lambda: len(cluster.spot_nodes(gke.state, "c")) == 1, "the end of a preempted node")

    cluster.stop(gke.state, "c")
    assert gke.processes() == set()
    cluster.ensure_running(gke.state, "c")
    assert any(gke.node_of(name) for name in ("a", "b"))
    assert listening(gke.processes()) == {"127.0.0.1"}

    gke.kill_agent()
    cluster.delete(gke.state, "c")
    assert gke.processes() == set()
    assert not gke.state.cluster("c").exists()
    assert not [p for p in gke.store.processes() if p.identity.alive]


def ray_cluster() -> Manifest:
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}
    secret = {"name": "credentials", "secret": {"secretName": "credentials"}}
    mounts = [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "credentials", "mountPath": "/run/secrets/rlstack", "readOnly": True},
    ]

    def template(name: str, resources: dict[str, Any], **spec: Any) -> Manifest:
        container = {
            "name": name,
            "image": "rlstack/grpo-cpu:1.0",
            "resources": {"requests": resources, "limits": resources},
            "volumeMounts": mounts,
        }
        return {"spec": {"containers": [container], "volumes": [shm, secret], **spec}}

    worker = {"cpu": "100", "memory": "1000Gi", "nvidia.com/gpu": 8}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": "default"},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "1"},
                "template": template("head", {"cpu": "2", "memory": "4Gi"}),
            },
            "workerGroupSpecs": [
                {
                    "groupName": "gpu",
                    "replicas": 2,
                    "minReplicas": 0,
                    "maxReplicas": 2,
                    "rayStartParams": {},
                    "template": template("worker", worker, **rows.GPU_SPEC),
                }
            ],
        },
    }


def ray_status(api: ApiClient) -> Manifest:
    found = api.get(RAY_CLUSTERS, "ray", "default")
    status: Manifest = (found or {}).get("status", {})
    return status


def workers(api: ApiClient) -> dict[str, str]:
    pods = [pod for pod in api.list(PODS) if pod["metadata"]["labels"].get("ray.io/node-type") == "worker"]
    return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")
@pytest.mark.parametrize("gke", [True], indirect=True)
def test_a_ray_cluster_runs_as_processes_and_a_lost_worker_is_replaced(gke: Gke) -> None:
    api = gke.api
    secret = {"name": "credentials", "namespace": "default"}
    api.apply(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "data": {"hf-token": CANARY}})

    def defined() -> bool:
        definition = api.get(DEFINITIONS, "rayclusters.ray.io") or {}
        conditions = definition.get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    gke.wait(defined, "KubeRay's definitions")
    api.apply(RAY_CLUSTERS, ray_cluster())
    gke.wait(lambda: ray_status(api).get("readyWorkerReplicas") == 2, "the start of two Ray workers")
    conditions = {each["type"]: each["status"] for each in ray_status(api)["conditions"]}
    assert conditions["HeadPodReady"] == "True"
    assert listening(gke.processes()) == {"127.0.0.1"}

    kubernetes = kr8s.api(kubeconfig=str(cluster.ClusterFiles(gke.state.cluster("c")).kubeconfig))
    service = Service.get("ray-head-svc", namespace="default", api=kubernetes)
    with service.portforward(remote_port=8265, local_port="auto") as port:
        version = httpx.get(f"http://127.0.0.1:{port}/api/version", trust_env=False).json()
    assert version["ray_version"] == "2.60.0"

    worker = next(iter(workers(api).values()))
    inside = run_in_pod(
        gke, worker, "sh", "-c", "hostname; cat /run/secrets/rlstack/hf-token; cat >&2; exit 7", stdin="e"
    )
    assert (inside.returncode, inside.stdout) == (7, f"{worker}\ncanary-value")
    assert inside.stderr.startswith("e")
    python = run_in_pod(gke, worker, "python3", "-c", "import ray; print(ray.__version__)")
    assert (python.returncode, python.stdout) == (0, "2.60.0\n")

    before = set(workers(api))
    preemption.preempt(gke.state, nodes=1, return_after_s=1200)
    gke.wait(lambda: any("not to be had yet: 1 of 2" in said for said in gke.told()), "the pool's wait for a machine")
    gke.wait(
        lambda: before - set(workers(api)) != set() and ray_status(api).get("readyWorkerReplicas") == 2,
        "the replacement of a lost worker",
    )
    kept = [file for file in gke.state.root.glob("pods/**/*") if file.is_file()]
    assert kept
    assert not [file for file in kept if b"canary-value" in file.read_bytes()]

    started = [ProcessIdentity.of(pid) for pid in gke.processes()]
    assert len(started) > len(gke.store.processes())
    gke.kill_agent()
    cluster.delete(gke.state, "c")
    assert not [identity for identity in started if identity and identity.alive]
    assert not gke.state.pod("default", "x").parent.exists()
