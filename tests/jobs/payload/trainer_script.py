"""A training command of a few milliseconds: NeMo-RL's lines and checkpoint layout, and ways to go wrong.

`python trainer_script.py CHECKPOINT_DIR LAST_STEP`; saves every second step and resumes from the newest. A file `fault`
in its directory, "MODE STEP", says how and where it goes wrong. It holds a lock while it lives, and leaves a file
`two-trainers` if another one holds it.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def say(text: str) -> None:
    print(text, flush=True)


def wait_for_ever() -> None:
    while True:
        time.sleep(60)


def misbehave(mode: str, step: int) -> None:
    if mode == "crash":
        say("Traceback (most recent call last):")
        say(f"ValueError: the loss of step {step} is not finite")
        sys.exit(1)
    if mode in {"hang", "hang-in-setup", "hang-in-save"}:
        say("pondering")
        wait_for_ever()
    if mode == "chatter":
        while True:
            say("pondering")
            time.sleep(0.01)
    if mode == "leave":
        say("Timeout has been reached, stopping training early")
        sys.exit(0)
    if mode == "grandchild":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        say(f"grandchild {child.pid}")
        wait_for_ever()
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("ignoring SIGTERM")
        wait_for_ever()


def save(directory: Path, step: int, *, without_room: bool) -> None:
    draft = directory / f"tmp_step_{step}"
    draft.mkdir(parents=True, exist_ok=True)
    if without_room:
        Path("/dev/full").write_bytes(bytes(1000))
    (draft / "weights").write_bytes(bytes(1000))
    (draft / "config.yaml").write_text("grpo:\n  max_num_steps: 6\npolicy:\n  model_name: tiny/model\n")
    draft.rename(directory / f"step_{step}")


def main() -> None:
    directory, last = Path(sys.argv[1]), int(sys.argv[2])
    alone = Path("alone").open("w")  # noqa: SIM115 - held until the end
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        Path("two-trainers").touch()
    fault = Path("fault")
    mode, at = fault.read_text().split() if fault.exists() else ("", "0")
    begin = max([int(path.name[5:]) for path in directory.glob("step_*")], default=0)
    say(f"override {os.environ.get('RAY_OVERRIDE_JOB_RUNTIME_ENV')} in {Path.cwd()}")
    if mode == "hang-in-setup":
        misbehave(mode, 0)
    for step in range(begin + 1, last + 1):
        say(f"========================= Step {step}/{last} =========================")
        if step == int(at) and mode != "hang-in-save":
            misbehave(mode, step)
        if step % 2 == 0 or step == last:
            say(f"Saving checkpoint for step {step}...")
            if step == int(at):
                misbehave(mode, step)
            save(directory, step, without_room=mode == "full" and step == int(at))
        say("📊 Training Results:")
        say(f"  • Avg Reward: {step / 10}")
        say("⏱️  Timing:")
        say("  • Total step time: 0.01s")
        if step % 2 == 0:
            say("  • checkpointing: 0.00s (1.0%)")
    say("Max number of steps has been reached, stopping training early")


main()
