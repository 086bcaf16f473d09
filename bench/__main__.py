"""Figures of the twin on this machine: `make bench`. Needs the built tools; takes about five minutes.

`python -m bench.goodput` prints what a supervised run makes of preemptions instead (`goodput.py`); it needs no tools.

| figure | what is measured |
|---|---|
| up to RUNNING | `python -m twin up` on an empty state directory, wall seconds |
| up, nothing to change | the same again |
| memory | proportional set size of all the twin's processes while Ray runs, and of the engine at its largest |
| recovery | a worker's node is lost in mid-run: what passes until the next step begins, by part (`recovery.py`) |
| preview of dev | wall seconds, and per resource above a program with one resource of each of the same providers |
| destroy | `python -m twin destroy` while the run trains, wall seconds; it ends at a checkpoint first |
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench import recovery
from twin import environment, program_run, settings
from twin.kubernetes import cluster
from twin.state import REPOSITORY, STATE_VARIABLE, TwinState

PREVIEWS = 5
MEMORY_EVERY_S = 1.0
FLOOR = REPOSITORY / "bench" / "floor"


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="rlstack-bench-") as directory:
        state = TwinState(Path(directory))
        os.environ[STATE_VARIABLE] = str(state.root)
        os.environ["PYTHONPATH"] = str(REPOSITORY)
        environment.prepare(state)
        long_run(Path(directory))
        peak = Peak(state.root)
        try:
            with peak:
                show("up to RUNNING", twin("up"), "s")
                show("up, nothing to change, while it trains", twin("up"), "s")
            show("memory, all processes, peak", peak.mib, "MiB")
            parts = recovery.measure(
                state, name="rlstack-local", run="local/grpo-cpu", preempt=lambda: twin("preempt", "--nodes", "1")
            )
            for part, value in parts.items():
                show(f"recovery: {part}", value, "s")
            show("destroy, in mid-run", twin("destroy"), "s")
            preview_of_dev(state)
        finally:
            cluster.stop_all(state)


def long_run(directory: Path) -> None:
    """Put settings of the local stack into a directory, with a run that outlasts the measurements, and go there."""
    for name in ("Pulumi.yaml", "Pulumi.local.yaml", "Pulumi.dev.yaml"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        (directory / name).write_text(text.replace("max_num_steps: 40", "max_num_steps: 100000"), encoding="utf-8")
    os.chdir(directory)


def preview_of_dev(state: TwinState) -> None:
    """Compare previews of the cloud's stack with those of the floor program."""
    output = quiet([sys.executable, "-m", "twin", "preview", "--stack", "dev"])
    resources = int(next(line for line in output.splitlines() if line.startswith("preview: ")).split()[1])
    os.environ.update(environment.variables(state))
    floor = median_preview(state, "floor", FLOOR)
    whole = median_preview(state, "dev", REPOSITORY)
    show(f"preview of dev ({resources} resources), median of {PREVIEWS}", whole, "s")
    show(f"preview of the floor program, median of {PREVIEWS}", floor, "s")
    show("preview of dev, per resource above the floor", 1000 * (whole - floor) / resources, "ms")


def median_preview(state: TwinState, stack: str, directory: Path) -> float:
    """Return the median seconds of previews of the program and the stack's settings in a directory."""
    settings.copy_settings(state, stack, directory)
    arguments = ["preview", "rlstack", stack, str(state.workspace(stack)), str(directory)]
    command = [sys.executable, program_run.__file__, *arguments]
    return sorted(seconds(lambda: quiet(command)) for _ in range(PREVIEWS))[PREVIEWS // 2]


class Peak:
    """The largest memory of everything below a state directory, asked every second."""

    def __init__(self, root: Path) -> None:
        self.mib = 0.0
        self._root = str(root).encode()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(MEMORY_EVERY_S):
            self.mib = max(self.mib, sum(self._pss_mib(entry) for entry in Path("/proc").glob("[0-9]*")))

    def _pss_mib(self, process: Path) -> float:
        with contextlib.suppress(OSError):
            if any(self._root in (process / file).read_bytes() for file in ("cmdline", "environ", "mountinfo")):
                rollup = (process / "smaps_rollup").read_text()
                return int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1]) / 1024
        return 0.0


def twin(*arguments: str) -> float:
    """Run `python -m twin`; return wall seconds."""
    return seconds(lambda: quiet([sys.executable, "-m", "twin", *arguments]))


def quiet(command: list[str]) -> str:
    """Run a command to its end; return what it printed, or show it and stop when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def seconds(work: Callable[[], object]) -> float:
    """Return how long it takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def show(what: str, value: float, unit: str) -> None:
    """Print one figure."""
    print(f"{what}: {value:.1f} {unit}", flush=True)


if __name__ == "__main__":
    main()
