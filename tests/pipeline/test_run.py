"""The whole pipeline, in the order in which a person meets it: up, train, edit, lose a node, destroy.

The tests share one twin and build on each other; a failed one fails those after it.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import StackOutputs
from jobs.waiting import wait_until
from tests.pipeline.twin_session import CLUSTER, TwinSession, refusals, twin_session
from twin.cloud.store import Store

pytestmark = pytest.mark.ray

CANARY = "canary-3f1c9b7e5d"
RESOURCES = 56


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    with twin_session(tmp_path_factory.mktemp("run"), speed="240") as running:
        yield running


def read(path: Path) -> bytes:
    """Read a file of a living system: it may be gone by now."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def mounted_tokens(session: TwinSession) -> list[str]:
    """What the pods' processes read as the Hugging Face token."""
    roots = {Path(f"/proc/{pid}/root") for pid, command in session.processes().items() if "/raylet/raylet " in command}
    return [file.read_text() for root in roots if (file := root / "run/secrets/rlstack/hf-token").exists()]


def read_outputs(session: TwinSession) -> StackOutputs:
    names = ("kubeconfig", "ray", "job", "lustre", "next_steps")
    return StackOutputs.model_validate({name: session.output(name) for name in names})


def test_up_creates_the_stack_and_its_job_learns(session: TwinSession) -> None:
    assert session.changes("up") == {"create": RESOURCES}
    watch = session.start("jobs", "watch", "--stack", "local")
    assert watch.stdout is not None
    first = watch.stdout.readline()
    address = re.fullmatch(r"Ray dashboard: (http://127\.0\.0\.1:\d+)\n", first)
    assert address, first
    assert httpx.get(f"{address[1]}/api/version", trust_env=False).json()["ray_version"] == "2.60.0"
    rest, _ = watch.communicate(timeout=300)
    assert watch.returncode == 0, rest
    assert f"{session.output('job')['submission_id']}: SUCCEEDED" in rest
    rewards = re.search(r"mean reward: (\S+) over the first 5 steps, (\S+) over the last 5", rest)
    assert rewards, rest
    assert float(rewards[2]) - float(rewards[1]) >= 0.2
    assert re.search(r"checkpoints: step_38 1\.2 MB, step_40 1\.2 MB", rest)


def test_the_newest_checkpoint_is_copied_to_a_bucket_that_the_head_may_write(session: TwinSession) -> None:
    bucket = session.state.buckets / "weights"
    bucket.mkdir(parents=True)
    words = ("jobs", "export", "--stack", "local", "--step", "newest", "--to", "gs://weights/runs")
    session.twin("fault", "bucket-denied")
    assert "sa/rlstack-local-scaler --role=roles/storage.objectUser" in session.run(*words, code=1)
    session.twin("fault", "bucket-denied", "--clear")
    assert "step_40/ is complete" in session.run(*words)
    source, copied = session.checkpoint(40), bucket / "runs/step_40"
    files = {path.relative_to(source): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    complete = copied / "_COMPLETE.json"
    assert json.loads(complete.read_text())["bytes"] == sum(map(len, files.values()))
    complete.unlink()
    assert {path.relative_to(copied): path.read_bytes() for path in copied.rglob("*") if path.is_file()} == files
    assert re.search(r"step_40 .*exported", session.run("jobs", "checkpoints", "--stack", "local"))


def test_nothing_of_the_twin_listens_beyond_loopback(session: TwinSession) -> None:
    assert session.listening_addresses() == {"127.0.0.1"}


def test_an_unchanged_stack_stays_as_it_is(session: TwinSession) -> None:
    assert session.changes("up") == {"same": RESOURCES}
    assert session.changes("refresh") == {"same": RESOURCES}
    assert session.changes("preview") == {"same": RESOURCES}


def test_a_label_touches_neither_pods_nor_job(session: TwinSession) -> None:
    before = session.output("job"), {pod["metadata"]["uid"] for pod in session.pods("head")}
    session.edit("project", labels={"purpose": "relabelled"})
    changes = session.changes("up")
    assert set(changes) == {"same", "update"}
    assert (session.output("job"), {pod["metadata"]["uid"] for pod in session.pods("head")}) == before


def test_a_new_token_restarts_nothing(session: TwinSession) -> None:
    before = session.output("job")
    done = subprocess.run(
        ["python", "-m", "twin", "secret", "hf_token"],
        input=CANARY, cwd=session.settings, env=session.environment(), text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert CANARY not in done.stdout + done.stderr
    assert session.changes("up")["update"] >= 1
    assert session.output("job") == before


def test_more_steps_replace_only_the_job_which_resumes_and_survives_a_lost_node(session: TwinSession) -> None:
    session.edit("job", grpo={"max_num_steps": 60})
    output = session.twin("up")
    assert f"up: 1 replace, {RESOURCES - 1} same" in output
    assert CANARY not in output
    session.wait_for_checkpoint(44)
    # Workers that came after the token; the twin's kubelet does not renew the files of running containers.
    assert mounted_tokens(session) == [CANARY] * 2
    assert "preempted gke-" in session.twin("preempt", "--nodes", "1")
    watched = session.run("jobs", "watch", "--stack", "local")
    assert "resuming from step_40" in watched
    assert "SUCCEEDED" in watched
    assert "lost" in watched
    assert session.checkpoint(60).exists()
    steps = [int(step) for step in re.findall(r"^step (\d+)/60 ", watched, re.MULTILINE)]
    assert steps[0] == 41
    assert steps[-1] == 60
    assert set(steps) == set(range(41, 61))


def test_a_token_is_in_no_other_place_than_the_mounted_file_and_etcd(
    session: TwinSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in session.environment().items():
        monkeypatch.setenv(name, value)
    assert CANARY not in session.run("jobs", "logs", "--stack", "local")
    with open_stack_dashboard(read_outputs(session)) as dashboard:
        for path in ("/api/jobs/", "/api/v0/tasks?detail=1"):
            answer = httpx.get(dashboard.url + path, trust_env=False, timeout=30)
            assert answer.is_success
            assert CANARY not in answer.text
    assert not [pid for pid in session.processes() if CANARY.encode() in read(Path(f"/proc/{pid}/environ"))]
    # The state directory has the engine's state, the pods' temporary files with Ray's logs and the uploaded package.
    etcd = session.state.cluster(CLUSTER) / "clusters"
    files = [path for path in session.state.root.rglob("*") if path.is_file() and not path.is_relative_to(etcd)]
    assert any(path.name == "supervisor.py" for path in files)
    assert not [path for path in files if CANARY.encode() in read(path)]


def test_another_image_replaces_cluster_and_job_and_reaches_every_pod(session: TwinSession) -> None:
    session.edit("ray", image="rlstack/grpo-cpu:1.1", release={"tag": "1.1"})
    assert session.changes("preview")["replace"] == 2
    # Another release does not go on from the first one's checkpoints: the run needs a directory of its own.
    session.edit("job", name="grpo-cpu-2", grpo={"max_num_steps": 4})
    assert session.changes("up")["replace"] == 2
    workers = wait_until(
        lambda: session.pods("worker"), timeout_s=60, every_s=0.1, doing="the workers of the new run to be made"
    )
    pods = [*session.pods("head"), *workers]
    assert {container["image"] for pod in pods for container in pod["spec"]["containers"]} == {"rlstack/grpo-cpu:1.1"}
    assert "done at step 4" in session.run("jobs", "watch", "--stack", "local")


def test_destroy_meets_googles_refusal_and_leaves_nothing(session: TwinSession) -> None:
    output = session.twin("destroy")
    assert f"destroy: {RESOURCES} delete" in output
    assert "Producer services" in refusals(session)[0]
    assert list(Store.open(session.state).list()) == []
    assert Store.open(session.state).processes() == []
    assert session.processes() == {}
    assert not any(session.state.cluster("x").parent.iterdir())
    assert not session.state.lustre(CLUSTER).exists()
    assert session.changes("preview") == {"create": RESOURCES}
