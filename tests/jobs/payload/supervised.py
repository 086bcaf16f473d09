"""A supervisor with real child processes, nodes in memory, and a clock that runs twenty times as fast."""

import io
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.payload.event_lines import EventWriter
from jobs.payload.event_record import EventRecord
from jobs.payload.lease import Lease
from jobs.payload.nodes import NodeView
from jobs.payload.options import Options, parse
from jobs.payload.supervisor import Supervisor
from jobs.payload.trainer import Trainer
from jobs.payload.workers import ApiServer

SCRIPT = Path(__file__).with_name("trainer_script.py")
TWO_TRAINERS = "two-trainers"  # what the script leaves if it is not alone
LAST_STEP = 6
SPEED = 20
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
        self.reactions: dict[str, Callable[[], object]] = {}

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

    def __init__(
        self, run_dir: Path, nodes: Nodes, fault: str = "", *, api_server: ApiServer | None = None, **changes: Any
    ) -> None:
        (run_dir / "supervisor").mkdir(parents=True, exist_ok=True)
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
        self.submission_id = f"job {time.monotonic_ns()}"
        self.record = EventRecord(
            run_dir / "supervisor" / "events.jsonl", submission_id=self.submission_id, supervisor_id=self.submission_id
        )
        self.lease = Lease(run_dir / "supervisor", owner="this test", ttl_s=60)
        self.supervisor = Supervisor(
            self.options,
            events=EventWriter(self.output, record=self.record),
            nodes=nodes,
            lease=self.lease,
            clock=FastClock(),
            environment={**os.environ, "HF_HOME": str(run_dir / "cache")},
            start_trainer=self._start,
            submission_id=self.submission_id,
            api_server=api_server,
        )

    def _start(self, *args: Any, **kwargs: Any) -> Trainer:
        self.trainers.append(Trainer(*args, **kwargs))
        return self.trainers[-1]

    def ask(self, action: str, *, submission_id: str | None = None) -> None:
        """Leave a request, for this run's job where no other is named."""
        request = {"action": action, "submission_id": submission_id or self.submission_id}
        (self.options.run_dir / "supervisor" / "control.json").write_text(json.dumps(request))

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.options.checkpoint_dir.iterdir())
