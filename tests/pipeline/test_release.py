"""GPUs come when a run asks and go with it; the head may ask for that, by its own token, and for nothing else.

The tests share one twin and build on each other; a failed one fails those after it.
"""

import json
from collections.abc import Iterator

import pytest

from jobs.head_exec import exec_in_head
from jobs.waiting import wait_until
from tests.pipeline.twin_session import CLUSTER, TwinSession, twin_session
from twin.kubernetes import cluster
from twin.kubernetes.api import NODES, Manifest, Resource
from twin.kubernetes.nodes import SPOT_LABEL

pytestmark = pytest.mark.ray

RAY_CLUSTERS = Resource(api_version="ray.io/v1", plural="rayclusters")
PATH = f"/apis/ray.io/v1/namespaces/default/rayclusters/{CLUSTER}"
GROUP = "/spec/workerGroupSpecs/0"
EVIL = {"containers": [{"name": "evil", "image": "evil"}], "hostNetwork": True}
# Runs on the head, with the token and the way to the API server that the supervisor has.
ATTEMPTS = """
import json, os, ssl, sys, urllib.error, urllib.request
place = "/run/secrets/rlstack-scaler"
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
context = ssl.create_default_context(cafile=f"{place}/ca.crt")
answers = {}
for name, (method, path, operations) in json.loads(sys.argv[1]).items():
    request = urllib.request.Request(server + path, method=method)
    request.add_header("Authorization", f"Bearer {open(f'{place}/token').read()}")
    request.add_header("Content-Type", "application/json-patch+json")
    request.data = json.dumps(operations).encode() if operations else None
    try:
        with urllib.request.urlopen(request, context=context):
            answers[name] = "allowed"
    except urllib.error.HTTPError as error:
        answers[name] = json.load(error)["message"]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    with twin_session(tmp_path_factory.mktemp("release"), speed="240") as running:
        running.edit("job", grpo={"max_num_steps": 6})
        yield running


def ray_cluster(session: TwinSession) -> Manifest:
    api = cluster.client(session.state, CLUSTER)
    try:
        found = api.get(RAY_CLUSTERS, CLUSTER, "default")
    finally:
        api.close()
    assert found is not None
    return found


def replicas(session: TwinSession) -> int:
    return int(ray_cluster(session)["spec"]["workerGroupSpecs"][0]["replicas"])


def gpu_nodes(session: TwinSession) -> list[str]:
    api = cluster.client(session.state, CLUSTER)
    try:
        nodes = [node["metadata"] for node in api.list(NODES)]
    finally:
        api.close()
    return [node["name"] for node in nodes if node["labels"].get(SPOT_LABEL) == "true"]


def ready_workers(session: TwinSession) -> set[str]:
    """Uids of the worker pods that are Ready."""
    return {
        pod["metadata"]["uid"]
        for pod in session.pods("worker")
        if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
    }


def attempts_by_the_head(
    session: TwinSession, attempts: dict[str, tuple[str, str, list[Manifest] | None]]
) -> dict[str, str]:
    """Send requests to the API server from within the head; name to `allowed` or to the server's refusal."""
    output = exec_in_head(
        kubeconfig=session.output("kubeconfig"),
        namespace="default",
        ray_cluster=CLUSTER,
        command=["python3", "-c", ATTEMPTS, json.dumps(attempts)],
        timeout_s=60,
    )
    answers: dict[str, str] = json.loads(output)
    return answers


def test_a_run_that_succeeded_has_given_back_its_workers_and_their_nodes(session: TwinSession) -> None:
    session.twin("up")
    watched = session.run("jobs", "watch", "--stack", "local")
    assert "SUCCEEDED" in watched
    assert replicas(session) == 0
    wait_until(
        lambda: (not session.pods("worker") and not gpu_nodes(session)) or None,
        timeout_s=120, every_s=0.5, doing="the worker pods and the GPU nodes to go",
    )  # fmt: skip
    assert len(session.pods("head")) == 1


def test_a_changed_recipe_brings_them_back_and_runs(session: TwinSession) -> None:
    before = ray_cluster(session)["metadata"]["uid"]
    session.edit("job", grpo={"max_num_steps": 3000})
    assert session.changes("up")["replace"] == 1
    session.wait_for_checkpoint(8)
    assert len(ready_workers(session)) == len(gpu_nodes(session)) == 2
    assert ray_cluster(session)["metadata"]["uid"] == before


def test_refresh_and_a_label_in_mid_run_leave_workers_and_cluster_alone(session: TwinSession) -> None:
    workers, generation = ready_workers(session), ray_cluster(session)["metadata"]["generation"]
    session.edit("project", labels={"purpose": "relabelled"})
    assert set(session.changes("refresh")) == {"same"}
    assert set(session.changes("up")) == {"same", "update"}
    assert ready_workers(session) == workers
    assert ray_cluster(session)["metadata"]["generation"] == generation


def test_another_number_of_nodes_is_the_pool_s_and_the_job_s_business(session: TwinSession) -> None:
    session.edit("gpu_pool", node_count=3)
    preview = session.twin("preview")
    session.edit("gpu_pool", node_count=2)
    changed = [line for line in preview.splitlines() if "update" in line or "replace" in line]
    assert any("gpus-pool" in line and "update" in line for line in changed), preview
    assert any("RayJob" in line and "replace" in line for line in changed), preview
    assert not [line for line in changed if "ray-cluster" in line], preview


def test_the_head_s_token_changes_the_number_of_workers_and_nothing_else(
    session: TwinSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in session.environment().items():
        monkeypatch.setenv(name, value)

    def patch(path: str, value: object, operation: str = "replace") -> tuple[str, str, list[Manifest]]:
        return "PATCH", PATH, [{"op": operation, "path": path, "value": value}]

    allowed = {"replicas": patch(f"{GROUP}/replicas", replicas(session))}
    denied = {
        "image": patch(f"{GROUP}/template/spec/containers/0/image", "evil"),
        "head's image": patch("/spec/headGroupSpec/template/spec/containers/0/image", "evil"),
        "pod": patch(f"{GROUP}/template/spec", EVIL),
        "bound": patch(f"{GROUP}/minReplicas", 1),
        "name": patch(f"{GROUP}/groupName", "evil"),
        "group": ("PATCH", PATH, [{"op": "copy", "from": GROUP, "path": "/spec/workerGroupSpecs/-"}]),
        "no group": ("PATCH", PATH, [{"op": "remove", "path": GROUP}]),
        "setting": patch("/spec/enableInTreeAutoscaling", True, "add"),
        "suspension": patch("/spec/suspend", True, "add"),
        "label": patch("/metadata/labels", {"a": "b"}, "add"),
        "owner": patch(
            "/metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}], "add"
        ),
    }
    forbidden = {
        "status": ("PATCH", f"{PATH}/status", patch("/status/state", "ready")[2]),
        "deletion": ("DELETE", PATH, None),
        "another cluster": ("GET", f"{PATH}-2", None),
        "secrets": ("GET", "/api/v1/namespaces/default/secrets", None),
    }
    answers = attempts_by_the_head(session, {**allowed, **denied, **forbidden})
    assert {name for name, answer in answers.items() if answer == "allowed"} == set(allowed)
    for name in denied:
        assert "ValidatingAdmissionPolicy" in answers[name], (name, answers[name])
    for name in forbidden:
        assert "cannot" in answers[name], (name, answers[name])
