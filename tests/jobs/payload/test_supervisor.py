"""The supervisor with real child processes, a table of nodes in memory, and a clock that runs twenty times as fast."""

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.payload.event_lines import EventWriter
from jobs.payload.lease import Lease, process_start
from jobs.payload.nodes import NodeView
from jobs.payload.options import Options, parse
from jobs.payload.supervisor import EXIT_FAILED, EXIT_PLANNED_STOP, EXIT_SIGNAL, Supervisor
from jobs.payload.trainer import Trainer

SCRIPT = Path(__file__).with_name("trainer_script.py")
LAST_STEP = 6
SPEED = 20
PATIENCE_S = 60
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


class FastClock:
    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds / SPEED)


class Nodes:
    """The head and GPU nodes by name; a test adds and removes them."""

    def __init__(self, *gpu_nodes: str) -> None:
        self.gpu_nodes = set(gpu_nodes)

    def view(self) -> NodeView:
        names = sorted(self.gpu_nodes)
        return NodeView(
            addresses={name: f"address of {name}" for name in ["head", *names]}, gpus=dict.fromkeys(names, 8)
        )


class Output(io.BytesIO):
    """Standard output; runs a test's reaction to a line while the supervisor goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.reactions: dict[str, Callable[[], None]] = {}

    def write(self, chunk: Any, /) -> int:
        for text in [text for text in self.reactions if text.encode() in chunk]:
            self.reactions.pop(text)()
        return super().write(chunk)

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.getvalue().decode().splitlines()
        return [json.loads(line.removeprefix("rlstack-event ")) for line in lines if line.startswith("rlstack-event ")]

    def names(self, *wanted: str) -> list[str]:
        return [event["event"] for event in self.events if not wanted or event["event"] in wanted]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]


class Run:
    """One run directory and what supervises it."""

    def __init__(self, run_dir: Path, nodes: Nodes, fault: str = "", **changes: Any) -> None:
        self.fault = run_dir / "fault"
        if fault:
            self.fault.write_text(fault)
        arguments = (
            f"--run-dir {run_dir} --checkpoint-dir {run_dir}/checkpoints --nodes 2 --gpus-per-node 8 "
            f"--max-steps {LAST_STEP} --workdir {run_dir} --settle-s 3 --node-loss-settle-s 8 "
            "--setup-limit-s 400 --step-limit-s 400 -- "
            f"{sys.executable} {SCRIPT} {run_dir}/checkpoints {LAST_STEP}"
        )
        self.options: Options = replace(parse(arguments.split()), **changes)
        self.output = Output()
        self.nodes = nodes
        self.trainers: list[Trainer] = []
        (run_dir / "supervisor").mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(
            self.options,
            events=EventWriter(self.output),
            nodes=nodes,
            lease=Lease(run_dir / "supervisor", owner="this test", ttl_s=60),
            clock=FastClock(),
            environment=os.environ,
            start_trainer=self._start,
        )

    def _start(self, *args: Any, **kwargs: Any) -> Trainer:
        self.trainers.append(Trainer(*args, **kwargs))
        return self.trainers[-1]

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.options.checkpoint_dir.iterdir())


@pytest.fixture
def nodes() -> Nodes:
    return Nodes("a", "b")


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
    control = tmp_path / "supervisor" / "control.json"
    control.write_text('{"action": "stop_now"}')  # meant for a run that has ended

    def ask_then_save() -> None:
        control.write_text('{"action": "stop_after_checkpoint"}')
        (run.options.checkpoint_dir / "step_4").mkdir()

    run.output.reactions["pondering"] = ask_then_save

    assert run.supervisor.run() == EXIT_PLANNED_STOP

    assert [(event["reason"], event["step"]) for event in run.output.of("stopped")] == [("control", 2)]
    assert not control.exists()


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
