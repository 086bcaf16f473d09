"""What a supervisor makes of endings, stalls, lost nodes, requests and signals."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.payload.endings import EXIT_FAILED, EXIT_PLANNED_STOP, EXIT_SIGNAL
from jobs.payload.lease import Lease, process_start
from tests.jobs.payload.supervised import ENVIRONMENT, LAST_STEP, SCRIPT, TWO_TRAINERS, Nodes, Run

PATIENCE_S = 60


def test_a_run_is_done_at_its_last_step_and_every_line_of_the_trainer_passes(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes)

    assert run.supervisor.run() == 0

    assert [event["step"] for event in run.output.of("step")] == [1, 2, 3, 4, 5, 6]
    assert run.output.of("step")[3]["reward"] == 0.4
    assert [(event["step"], event["files"]) for event in run.output.of("checkpoint")] == [(2, 2), (4, 2), (6, 2)]
    assert run.output.names("started", "done") == ["started", "done"]
    text = run.output.getvalue().decode()
    assert text.count("  • Total step time: 0.01s\n") == LAST_STEP
    assert f"override 1 in {tmp_path}\n" in text


def test_training_starts_only_when_all_gpus_are_there_and_the_nodes_are_still(tmp_path: Path) -> None:
    nodes = Nodes("a")
    run = Run(tmp_path, nodes)
    run.output.reactions['"gpus_alive": 8'] = lambda: nodes.gpu_nodes.add("b")

    assert run.supervisor.run() == 0

    waits = [(event["reason"], event["gpus_alive"], event["gpus_needed"]) for event in run.output.of("waiting")]
    assert waits == [("gpus", 8, 16), ("settling", 16, 16)]
    assert run.output.of("started")[0]["gpus"] == 16


def test_without_capacity_the_run_fails_at_the_deadline_and_says_what_was_there(tmp_path: Path) -> None:
    run = Run(tmp_path, Nodes("a"), max_capacity_wait_s=4)

    assert run.supervisor.run() == EXIT_FAILED

    assert "only 8 of 16 GPUs" in run.output.of("failed")[0]["cause"]
    assert run.trainers == []


def test_a_lost_node_is_waited_for_and_training_resumes_from_the_newest_checkpoint(
    tmp_path: Path, nodes: Nodes
) -> None:
    run = Run(tmp_path, nodes, "hang 4")

    def lose_b() -> None:
        nodes.gpu_nodes.discard("b")
        (run.options.checkpoint_dir / "tmp_step_4").mkdir()
        os.kill(run.trainers[-1].pid, signal.SIGKILL)
        run.fault.unlink()

    run.output.reactions["pondering"] = lose_b
    run.output.reactions['"event": "lost_node"'] = lambda: nodes.gpu_nodes.add("c")

    assert run.supervisor.run() == 0

    assert run.output.of("lost_node")[0]["nodes"] == ["address of b"]
    assert run.output.names("lost_node", "resumed", "started", "crashed", "done") == [
        "started",
        "lost_node",
        "resumed",
        "started",
        "done",
    ]
    assert run.output.of("resumed")[0]["step"] == 2
    assert [event["attempt"] for event in run.output.of("started")] == [1, 2]
    assert [event["step"] for event in run.output.of("step")] == [1, 2, 3, 3, 4, 5, 6]
    assert (tmp_path / "set-aside" / "tmp_step_4.1").is_dir()
    assert run.checkpoints == ["step_2", "step_4", "step_6"]


def test_a_trainer_that_does_not_notice_a_lost_node_is_ended(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "hang 3", max_recovery_wait_s=3)
    run.output.reactions["pondering"] = lambda: nodes.gpu_nodes.discard("b")

    assert run.supervisor.run() == EXIT_FAILED

    assert run.output.of("stalled")[0]["phase"] == "node_loss"
    assert run.output.names("lost_node", "failed") == ["lost_node", "failed"]


def test_a_crash_at_the_same_step_ends_the_run_with_its_cause(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "crash 3", max_crashes=2)

    assert run.supervisor.run() == EXIT_FAILED

    assert [(event["crashes"], event["step"]) for event in run.output.of("crashed")] == [(1, 2), (2, 2)]
    assert "ValueError: the loss of step 3 is not finite" in run.output.of("failed")[0]["cause"]
    assert len(run.output.of("started")) == 2
    assert run.checkpoints == ["step_2"]


@pytest.mark.parametrize("mode", ["hang", "chatter"])
def test_a_step_that_does_not_end_is_ended_whatever_it_prints(tmp_path: Path, nodes: Nodes, mode: str) -> None:
    run = Run(tmp_path, nodes, f"{mode} 3", max_crashes=1, step_limit_s=6)

    assert run.supervisor.run() == EXIT_FAILED

    assert [(event["phase"], event["step"]) for event in run.output.of("stalled")] == [("step", 2)]
    assert run.trainers[0].exit_code() is not None


def test_an_exit_code_of_zero_before_the_last_step_is_no_end_of_the_run(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "leave 3")

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert [(event["reason"], event["step"]) for event in run.output.of("stopped")] == [("time", 2)]
    assert run.output.of("done") == []


def test_a_finished_run_needs_no_gpus(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / f"step_{LAST_STEP}").mkdir(parents=True)
    run = Run(tmp_path, Nodes())

    assert run.supervisor.run() == 0

    assert run.output.names() == ["done"]


def test_another_models_checkpoint_is_refused_before_gpus_are_asked_for(tmp_path: Path) -> None:
    saved = tmp_path / "checkpoints" / "step_2"
    saved.mkdir(parents=True)
    (saved / "config.yaml").write_text("policy:\n  model_name: big/other\n")
    run = Run(tmp_path, Nodes(), model_name="tiny/model")

    assert run.supervisor.run() == EXIT_FAILED

    assert run.output.names() == ["failed"]
    cause = run.output.of("failed")[0]["cause"]
    assert "big/other" in cause
    assert "tiny/model" in cause


def test_a_signal_stops_the_trainer_even_one_that_ignores_it(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "stubborn 3")
    run.output.reactions["ignoring SIGTERM"] = run.supervisor.stop

    assert run.supervisor.run() == EXIT_SIGNAL

    assert run.output.of("stopped")[0]["reason"] == "signal"
    assert process_start(run.trainers[0].pid) is None


def test_a_request_stops_the_run_after_its_next_checkpoint(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "hang 3")

    def ask_then_save() -> None:
        run.ask("stop_after_checkpoint")
        (run.options.checkpoint_dir / "step_4").mkdir()

    run.output.reactions["pondering"] = ask_then_save

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert [(event["reason"], event["step"]) for event in run.output.of("stopped")] == [("control", 2)]
    assert not (tmp_path / "supervisor" / "control.json").exists()


def test_a_request_for_a_job_that_has_ended_does_not_stop_its_successor(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes)
    run.ask("stop_now", submission_id="its predecessor")

    assert run.supervisor.run() == 0

    assert (tmp_path / "supervisor" / "control.ignored").exists()


def test_a_request_made_before_the_job_has_begun_is_obeyed(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes)
    run.ask("stop_now")

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert run.trainers == []


def test_a_second_supervisor_waits_until_the_first_has_let_go(tmp_path: Path, nodes: Nodes) -> None:
    first = Lease(tmp_path / "supervisor", owner="the first", ttl_s=60)
    assert first.try_take(0) is None
    run = Run(tmp_path, nodes)
    run.output.reactions['"reason": "lease"'] = first.release

    assert run.supervisor.run() == 0

    assert run.output.events[0]["reason"] == "lease"


def test_no_process_of_the_trainer_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from pathlib import Path; from jobs.payload.trainer import Trainer\n"
        "trainer = Trainer(sys.argv[1:], workdir=Path('.'), environment=os.environ,\n"
        "                  pass_through=lambda chunk: os.write(1, chunk))\n"
        "time.sleep(600)"
    )
    (tmp_path / "fault").write_text("grandchild 1")
    command = [sys.executable, str(SCRIPT), "checkpoints", "6"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *command], stdout=subprocess.PIPE, cwd=tmp_path, env=ENVIRONMENT
    ) as holder:
        assert holder.stdout is not None
        pid = next(int(line.split()[1]) for line in holder.stdout if line.startswith(b"grandchild"))
        grandchild = os.pidfd_open(pid)

        os.kill(holder.pid, signal.SIGKILL)

        ended, _, _ = select.select([grandchild], [], [], PATIENCE_S)
        os.close(grandchild)
    assert ended


def test_a_release_that_did_not_make_the_checkpoint_is_refused_before_gpus_are_asked_for(
    tmp_path: Path, nodes: Nodes
) -> None:
    assert Run(tmp_path, nodes, "leave 3", release="v0.4.0").supervisor.run() == EXIT_PLANNED_STOP
    run = Run(tmp_path, Nodes(), release="v0.5.0")

    assert run.supervisor.run() == EXIT_FAILED

    assert run.output.names() == ["failed"]
    cause = run.output.of("failed")[0]["cause"]
    assert "v0.4.0" in cause
    assert "v0.5.0" in cause


def test_every_event_is_kept_beside_the_checkpoints_and_starts_count_across_jobs(tmp_path: Path, nodes: Nodes) -> None:
    first = Run(tmp_path, nodes, "leave 3")
    first.supervisor.run()
    first.fault.unlink()
    second = Run(tmp_path, nodes)

    assert second.supervisor.run() == 0

    def without_ids(event: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in event.items() if key not in {"submission_id", "supervisor_id"}}

    written = [*first.output.events, *second.output.events]
    assert [*map(without_ids, second.record.read())] == [*map(without_ids, written)]
    assert second.output.of("started")[0]["attempt"] == 2


@pytest.mark.parametrize(
    ("limits", "reason"), [({"budget_gpu_hours": 1e-9}, "budget"), ({"max_run_s": 1e-9}, "run_limit")]
)
def test_a_limit_ends_a_run_even_before_gpus_are_asked_for(
    tmp_path: Path, nodes: Nodes, limits: dict[str, Any], reason: str
) -> None:
    interrupted = Run(tmp_path, nodes, "leave 3")
    interrupted.supervisor.run()
    run = Run(tmp_path, Nodes(), **limits)

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert [(event["reason"], event["step"]) for event in run.output.of("stopped")] == [(reason, 2)]
    assert run.output.names() == ["stopped"]


def test_a_limit_that_is_reached_in_training_waits_for_the_next_checkpoint(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "hang 1", budget_gpu_hours=1e-9, settle_s=0)
    run.output.reactions["pondering"] = lambda: (run.options.checkpoint_dir / "step_2").mkdir(parents=True)

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    stopped = run.output.of("stopped")[0]
    assert (stopped["reason"], list(stopped["kept"])) == ("budget", ["2"])
    assert "job.budget_gpu_hours" in stopped["cause"]


def test_a_limit_waits_for_a_checkpoint_no_longer_than_a_save_may_take(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "hang 1", max_run_s=1, save_limit_s=10, settle_s=0)

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert run.output.of("stopped")[0]["reason"] == "run_limit"
    assert run.output.of("checkpoint") == []


def test_a_run_that_reaches_its_last_step_is_done_though_a_stop_was_asked_for(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes)
    run.output.reactions["Max number of steps"] = lambda: run.ask("stop_after_checkpoint")

    assert run.supervisor.run() == 0

    assert run.output.names()[-1] == "done"


def test_set_up_and_save_have_limits_of_their_own(tmp_path: Path, nodes: Nodes) -> None:
    for mode, phase in (("hang-in-setup 1", "setup"), ("hang-in-save 2", "save")):
        limits: dict[str, Any] = {f"{phase}_limit_s": 5}
        run = Run(tmp_path / phase, nodes, mode, max_crashes=1, **limits)

        assert run.supervisor.run() == EXIT_FAILED

        assert run.output.of("stalled")[0]["phase"] == phase


def test_a_save_without_room_fails_the_run_with_its_reason_and_keeps_older_checkpoints(
    tmp_path: Path, nodes: Nodes
) -> None:
    run = Run(tmp_path, nodes, "full 4", max_crashes=2)

    assert run.supervisor.run() == EXIT_FAILED

    cause = run.output.of("failed")[0]["cause"]
    assert cause.count("OSError: [Errno 28] No space left on device") == 1
    assert run.checkpoints == ["step_2", "tmp_step_4"]
    assert (run.options.checkpoint_dir / "step_2" / "weights").stat().st_size == 1000


def test_an_owner_that_stays_alive_is_not_waited_for_for_ever(tmp_path: Path, nodes: Nodes) -> None:
    first = Lease(tmp_path / "supervisor", owner="the first", ttl_s=60)
    assert first.try_take(0) is None
    run = Run(tmp_path, nodes, lease_ttl_s=1)

    assert run.supervisor.run() == EXIT_FAILED

    assert "in the hands of the first" in run.output.of("failed")[0]["cause"]
    first.release()


def test_a_killed_trainer_is_started_again_from_the_newest_checkpoint(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, "hang 3")

    def kill() -> None:
        run.fault.unlink()
        os.kill(run.trainers[-1].pid, signal.SIGKILL)

    run.output.reactions["pondering"] = kill

    assert run.supervisor.run() == 0

    assert run.output.names("crashed", "resumed", "started", "done") == [
        "started",
        "crashed",
        "resumed",
        "started",
        "done",
    ]
    assert run.checkpoints == ["step_2", "step_4", "step_6"]
    assert not (tmp_path / TWO_TRAINERS).exists()


def test_after_a_killed_supervisor_the_next_resumes_and_there_are_never_two_trainers(
    tmp_path: Path, nodes: Nodes
) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.jobs.payload.supervised import Nodes, Run\n"
        "run = Run(Path(sys.argv[1]), Nodes('a', 'b'), 'hang 3')\n"
        "run.output.reactions['pondering'] = lambda: print('pondering', flush=True)\n"
        "run.supervisor.run()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"pondering\n"
        os.kill(first.pid, signal.SIGKILL)
    (tmp_path / "fault").unlink()
    run = Run(tmp_path, nodes)

    assert run.supervisor.run() == 0

    assert run.output.of("resumed")[0]["step"] == 2
    assert run.output.of("started")[0]["attempt"] == 2
    assert run.checkpoints == ["step_2", "step_4", "step_6"]
    assert not (tmp_path / TWO_TRAINERS).exists()
