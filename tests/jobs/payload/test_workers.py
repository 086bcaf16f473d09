"""Workers are there for training and gone after it, by a real API server's rules; it never decides a run's fate."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.payload import checkpoints
from jobs.payload.endings import EXIT_FAILED, EXIT_PLANNED_STOP, EXIT_SIGNAL
from jobs.payload.lease import Lease
from jobs.payload.workers import ApiServer
from tests.jobs.payload.api_server import RayClusterServer, make_certificate, serving
from tests.jobs.payload.supervised import LAST_STEP, Nodes, Run


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("credentials")
    make_certificate(directory)
    return directory


@pytest.fixture
def cluster(credentials: Path) -> Iterator[tuple[RayClusterServer, ApiServer]]:
    with serving(credentials) as served:
        yield served


def scaled_run(run_dir: Path, nodes: Nodes, api_server: ApiServer, fault: str = "", **changes: Any) -> Run:
    return Run(run_dir, nodes, fault, api_server=api_server, scale_raycluster="ray/grpo", **changes)


def test_workers_are_asked_for_before_the_wait_and_given_back_at_the_end(
    tmp_path: Path, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    nodes = Nodes()
    run = scaled_run(tmp_path, nodes, api_server)
    run.output.reactions['"workers": 2'] = lambda: nodes.gpu_nodes.update("ab")

    assert run.supervisor.run() == 0

    assert server.replicas == [2, 0]
    assert run.output.names("scaled", "started", "done") == ["scaled", "started", "scaled", "done"]


@pytest.mark.parametrize(
    ("fault", "changes", "exit_code"),
    [
        ("crash 3", {"max_crashes": 1}, EXIT_FAILED),
        ("leave 3", {}, EXIT_PLANNED_STOP),
        ("", {"budget_gpu_hours": 0.0}, EXIT_PLANNED_STOP),
        ("", {"gpus_per_node": 9, "max_capacity_wait_s": 2}, EXIT_FAILED),
    ],
)
def test_workers_are_given_back_whatever_ended_the_run(
    tmp_path: Path,
    nodes: Nodes,
    cluster: tuple[RayClusterServer, ApiServer],
    fault: str,
    changes: dict[str, Any],
    exit_code: int,
) -> None:
    server, api_server = cluster
    run = scaled_run(tmp_path, nodes, api_server, fault, **changes)

    assert run.supervisor.run() == exit_code

    assert server.replicas[-1] == 0
    assert run.output.names()[-2] == "scaled"


def test_after_a_signal_the_workers_stay_for_the_resubmission(
    tmp_path: Path, nodes: Nodes, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    run = scaled_run(tmp_path, nodes, api_server, "hang 3")
    run.output.reactions["pondering"] = run.supervisor.stop

    assert run.supervisor.run() == EXIT_SIGNAL

    assert server.replicas == [2]


def test_workers_are_given_back_when_the_lease_was_lost_to_nobody(
    tmp_path: Path, nodes: Nodes, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    run = scaled_run(tmp_path, nodes, api_server, "hang 3")
    # A file system that takes no heartbeat.
    run.output.reactions["pondering"] = lambda: setattr(run.lease, "_beaten_at", -math.inf)

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert run.output.of("stopped")[0]["reason"] == "lease"
    assert server.replicas[-1] == 0


def test_workers_are_given_back_when_the_supervisor_itself_fails(
    tmp_path: Path, nodes: Nodes, cluster: tuple[RayClusterServer, ApiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, api_server = cluster
    run = scaled_run(tmp_path, nodes, api_server, "hang 3")

    def fail(_directory: Path) -> list[int]:
        raise LookupError("a fault of this program")

    run.output.reactions["pondering"] = lambda: monkeypatch.setattr(checkpoints, "steps", fail)

    with pytest.raises(LookupError):
        run.supervisor.run()

    assert server.replicas[-1] == 0


def test_a_hand_over_leaves_the_workers_to_the_successor(
    tmp_path: Path, nodes: Nodes, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    run = scaled_run(tmp_path, nodes, api_server, "hang 3")

    def ask_then_save() -> None:
        run.ask("hand_over")
        (run.options.checkpoint_dir / "step_4").mkdir()

    run.output.reactions["pondering"] = ask_then_save

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert server.replicas == [2]
    assert run.output.of("stopped")[0]["reason"] == "hand_over"


def test_a_run_that_is_refused_gives_back_what_was_handed_over_to_it(
    tmp_path: Path, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    saved = tmp_path / "checkpoints" / "step_2"
    saved.mkdir(parents=True)
    (saved / "config.yaml").write_text("policy:\n  model_name: big/other\n")

    assert scaled_run(tmp_path, Nodes(), api_server, model_name="tiny/model").supervisor.run() == EXIT_FAILED

    assert server.replicas == [0]


def test_workers_of_another_supervisor_that_is_at_work_are_left_alone(
    tmp_path: Path, nodes: Nodes, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    owner = Lease(tmp_path / "supervisor", owner="the first", ttl_s=60)
    (tmp_path / "supervisor").mkdir()
    assert owner.try_take(0) is None

    assert scaled_run(tmp_path, nodes, api_server, lease_ttl_s=1).supervisor.run() == EXIT_FAILED

    assert server.replicas == []
    owner.release()


def test_a_finished_run_gives_back_and_asks_for_none(
    tmp_path: Path, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    (tmp_path / "checkpoints" / f"step_{LAST_STEP}").mkdir(parents=True)

    assert scaled_run(tmp_path, Nodes(), api_server).supervisor.run() == 0

    assert server.replicas == [0]


def test_a_refusal_is_tried_again_and_told_once(
    tmp_path: Path, nodes: Nodes, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    server.refusals = [(403, "forbidden by a role")] * 2
    run = scaled_run(tmp_path, nodes, api_server, settle_s=30)

    assert run.supervisor.run() == 0

    assert server.replicas == [2, 0]
    assert run.output.getvalue().decode().count("403 Forbidden: forbidden by a role") == 1


@pytest.mark.parametrize("answers", ["nobody", "another group"])
def test_a_run_is_done_though_its_workers_cannot_be_given_back(
    tmp_path: Path, nodes: Nodes, credentials: Path, answers: str
) -> None:
    nobody = ApiServer("https://127.0.0.1:1", token_file=credentials / "token", ca_file=credentials / "ca.crt")
    with serving(credentials) as (server, api_server):
        server.group = "other"
        run = scaled_run(tmp_path, nodes, nobody if answers == "nobody" else api_server)

        assert run.supervisor.run() == 0

    assert server.replicas == []
    assert "kubectl -n ray patch raycluster grpo --type=json" in run.output.getvalue().decode()


def test_a_wait_without_gpus_says_that_none_could_be_asked_for(
    tmp_path: Path, credentials: Path, cluster: tuple[RayClusterServer, ApiServer]
) -> None:
    server, api_server = cluster
    server.refusals = [(403, "forbidden by a role")] * 99
    run = scaled_run(tmp_path, Nodes(), api_server, max_capacity_wait_s=3)

    assert run.supervisor.run() == EXIT_FAILED

    assert "cannot be told to have 2 workers: 403 Forbidden" in run.output.of("failed")[0]["cause"]
