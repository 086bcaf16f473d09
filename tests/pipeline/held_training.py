"""The CPU image's trainer, held or broken where a test wants it: the entry script of the runs in test_recovery.py.

It computes what `examples/run_grpo.py` does. Beside the run's directory on Lustre lies what it obeys:

| file | what it says |
|---|---|
| `<job>.go` | how far to go: with 5, step 6 does not begin; with 5.5, the save of step 6 does not become whole |
| `<job>.faults` | a JSON list of [kind, step], one for each start of the trainer; the last one for all later starts |
| `<job>.starts` | written here: a letter for each start |
| `<job>.overlaps` | written here: a start that found another trainer alive |

While it is held it goes on calling its workers, as training and saving do in NeMo-RL: a node that dies ends it then.
"""

import fcntl
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, "/opt/nemo-rl")
# What the trainer itself waits for GPUs: 1, 2 and 4 seconds.
os.environ["NRL_VIRTUAL_CLUSTER_MAX_RETRIES"] = "3"

from examples import run_grpo  # noqa: F401 - prepares the environment, as it does where it is the script
from nemo_rl_cpu import checkpoint
from nemo_rl_cpu.main import main
from nemo_rl_cpu.trainer import Trainer
from nemo_rl_cpu.virtual_cluster import connect_ray

PERIOD_S = 0.1

(run_dir,) = {Path(word.partition("=")[2]).parent for word in sys.argv if "checkpoint_dir=" in word}
real_step, real_flush = Trainer._step, checkpoint._flush_directory
trainers: list[Trainer] = []


def file(kind: str) -> Path:
    return run_dir.with_name(f"{run_dir.name}.{kind}")


def limit() -> float:
    """How far to go; a file that is being written says nothing."""
    try:
        return float(file("go").read_text())
    except FileNotFoundError:
        return math.inf
    except ValueError:
        return 0


def hold_until(wanted: float) -> None:
    while limit() < wanted:
        for trainer in trainers:
            trainer.workers.broadcast("set_weights", trainer.weights)
        time.sleep(PERIOD_S)


def fault_of_this_start() -> tuple[str, int] | None:
    if not file("faults").exists():
        return None
    with file("starts").open("a") as starts:
        starts.write("s")
    faults = json.loads(file("faults").read_text())
    kind, step = faults[min(file("starts").stat().st_size, len(faults)) - 1]
    return kind, step


def fail(kind: str) -> None:
    if kind == "crash":
        raise RuntimeError("the reward of a sample is not a number")
    while True:
        if kind == "chatter":
            print("Waiting for the generation workers...")
        time.sleep(PERIOD_S)


def step(self: Trainer, *arguments: Any) -> bool:
    trainers[:] = [self]
    number = self.info["total_steps"] + 1
    hold_until(number - 0.5)
    if fault and fault[1] == number:
        fail(fault[0])
    return real_step(self, *arguments)


def flush(directory: Path) -> None:
    real_flush(directory)
    if directory.name.startswith("tmp_step_"):
        hold_until(int(directory.name.rpartition("_")[2]))


if __name__ == "__main__":
    lock = os.open(run_dir.with_name(f"{run_dir.name}.lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file("overlaps").write_text("another trainer is alive")
    fault = fault_of_this_start()
    Trainer._step = step  # type: ignore[assignment, method-assign]
    checkpoint._flush_directory = flush
    sys.exit(main(sys.argv[1:], connect=connect_ray))
