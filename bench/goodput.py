"""Goodput of a spot run under this supervisor's own code and a simulated clock: `python -m bench.goodput`.

Goodput is the time of the steps that a run has gained after 20 hours, by those hours. Nodes are lost as
`preemptions.json` says, a trace drawn with a seed (`python -m bench.goodput --draw`). The supervisor is the real one,
with its real files; time, Ray's table of nodes and the trainer are simulated. Saves take what the codelab's checkpoint
takes on its Lustre at best (`jobs.checkpoint_maths`). Nobody has published a step's time for its model on its nodes,
nor the set-up's, nor how soon a spot node comes back: those three are assumptions, named below.

| row | what happens |
|---|---|
| optimum | Young/Daly's period, and no second lost to noticing a lost node or to waiting for still nodes: arithmetic |
| Young/Daly | the supervisor, and a save as often as `Preemption.best_save_period` says |
| every 2 steps | the supervisor, and the codelab's `save_period` |
| no recovery | the codelab's stack: the first lost node ends the run |
"""

import heapq
import io
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jobs.checkpoint_maths import Preemption, checkpoint_bytes, save_seconds
from jobs.payload import checkpoints
from jobs.payload.endings import EXIT_SIGNAL
from jobs.payload.event_lines import EVENT_PREFIX, EventWriter
from jobs.payload.event_record import EventRecord
from jobs.payload.lease import Lease
from jobs.payload.nodes import NodeView
from jobs.payload.options import Options, parse
from jobs.payload.supervisor import Supervisor

HOURS = 20
HOUR_S = 3600
PREEMPTIONS = 6
SEED = 0
TRACE = Path(__file__).with_name("preemptions.json")
ENOUGH_STEPS = 10_000
CODELAB_SAVE_PERIOD = 2
NODES, GPUS_PER_NODE = 8, 8
SAVE_S = save_seconds(checkpoint_bytes(72.7e9), capacity_gib=36_000, throughput_mbps_per_tib=500)
STEP_S = 300.0  # assumed
SETUP_S = 600.0  # assumed: engines, weights and graphs of a 72 B model
RETURN_S = 900.0  # assumed: a machine, and the image on it
DIES_AFTER_S = 10.0  # from a lost node to the trainer's own end, seen on Ray 2.60
FORGOTTEN_AFTER_S = 15.0  # from a lost node to Ray's word for it, seen on Ray 2.60


def draw_trace() -> list[int]:
    """Return the moments at which a node is lost, seconds from the start, each as likely as any other."""
    chance = random.Random(SEED)
    return sorted(chance.randrange(HOURS * HOUR_S) for _ in range(PREEMPTIONS))


class SimulatedTime:
    """A clock that stands still until somebody waits, and tells of its end."""

    def __init__(self, end_s: float) -> None:
        self.now = 0.0
        self.at_end: Callable[[], None] = lambda: None
        self._end_s = end_s

    def monotonic(self) -> float:
        """Return the simulated seconds."""
        return self.now

    def sleep(self, seconds: float, /) -> None:
        """Move on."""
        self.now += seconds
        if self.now >= self._end_s:
            self.at_end()


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A node that is away from `since` to `until`, seconds."""

    since: float
    until: float


class SimulatedNodes:
    """Ray's table: a lost node is called alive for a while more, a new one has another id."""

    def __init__(self, outages: Sequence[Outage], clock: SimulatedTime) -> None:
        self._outages = outages
        self._clock = clock

    def view(self) -> NodeView:
        """Return who is alive by Ray's word."""
        now = self._clock.now
        names = [f"node {index}" for index in range(NODES - 1)]
        generation = sum(outage.until <= now for outage in self._outages)
        if not any(outage.since + FORGOTTEN_AFTER_S <= now < outage.until for outage in self._outages):
            names.append(f"spot {generation}")
        return NodeView(addresses=dict.fromkeys(["head", *names], ""), gpus=dict.fromkeys(names, GPUS_PER_NODE))


class SimulatedTrainer:
    """A trainer that prints NeMo-RL's lines and makes NeMo-RL's directories at the simulated times."""

    pid = 0

    def __init__(self, options: Options, save_period: int, outages: Sequence[Outage], clock: SimulatedTime) -> None:
        self._clock = clock
        self._directory = options.checkpoint_dir
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._lines: list[str] = []
        self._code: int | None = None
        step = max((int(path.name[5:]) for path in self._directory.glob("step_*")), default=0)
        lost = min((outage.since for outage in outages if outage.since >= clock.now), default=float("inf"))
        self._say(lost + DIES_AFTER_S, "ray.exceptions.ActorDiedError: The actor died because its node has died")
        self._at(lost + DIES_AFTER_S, partial(self._end, 1))
        moment = clock.now + SETUP_S
        while step < options.max_steps and moment < lost:
            step += 1
            self._say(moment, f"{'=' * 25} Step 1/1 {'=' * 25}", before=lost)
            moment += STEP_S
            if step % save_period == 0:
                self._say(moment, f"Saving checkpoint for step {step}...", before=lost)
                moment += SAVE_S
                self._at(moment, partial(Path.mkdir, self._directory / f"step_{step}"), before=lost)
            self._say(moment, f"  • Total step time: {STEP_S:.2f}s", before=lost)

    def lines(self) -> list[str]:
        """Return the lines up to now."""
        while self._plan and self._plan[0][0] <= self._clock.now:
            heapq.heappop(self._plan)[2]()
        lines = self._lines.copy()
        self._lines.clear()
        return lines

    def exit_code(self) -> int | None:
        """Return 1 some time after a lost node."""
        return self._code

    def terminate(self) -> None:
        """End."""
        self._end(143)

    def kill(self) -> int:
        """End."""
        self._end(137)
        return self._code or 0

    def _say(self, moment: float, line: str, *, before: float = float("inf")) -> None:
        self._at(moment, partial(self._lines.append, line), before=before)

    def _at(self, moment: float, act: Callable[[], None], *, before: float = float("inf")) -> None:
        if moment < before:
            heapq.heappush(self._plan, (moment, next(self._order), act))

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a simulated run came to.

    Attributes:
        steps: complete steps that it stands at.
        saved_steps: those of its newest checkpoint.
        starts: how often the trainer was started.
        cpu_s: the supervisor's processor time, real seconds.
    """

    steps: int
    saved_steps: int
    starts: int
    cpu_s: float


def simulate(trace: Sequence[float], *, save_period: int, end_s: float = HOURS * HOUR_S) -> Result:
    """Run the supervisor with a node lost at each moment of a trace, and stop it at the end.

    Args:
        trace: seconds from the start.
        save_period: steps from checkpoint to checkpoint.
        end_s: seconds from the start.
    """
    clock = SimulatedTime(end_s)
    outages = [Outage(since=at, until=at + RETURN_S) for at in trace]
    output = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="rlstack-goodput-") as directory:
        run_dir = Path(directory)
        (run_dir / "supervisor").mkdir()
        (run_dir / "checkpoints").mkdir()
        options = parse(
            f"--run-dir {run_dir} --checkpoint-dir {run_dir}/checkpoints --nodes {NODES} --workdir {run_dir} "
            f"--gpus-per-node {GPUS_PER_NODE} --max-steps {ENOUGH_STEPS} -- simulated".split()
        )

        def start(
            _command: Sequence[str],
            /,
            *,
            workdir: Path,
            environment: Mapping[str, str],
            pass_through: Callable[[bytes], None],
        ) -> SimulatedTrainer:
            return SimulatedTrainer(options, save_period, outages, clock)

        supervisor = Supervisor(
            options,
            events=EventWriter(
                output,
                record=EventRecord(run_dir / "events.jsonl", submission_id="", supervisor_id=""),
                now=lambda: clock.now,
            ),
            nodes=SimulatedNodes(outages, clock),
            lease=Lease(run_dir / "supervisor", owner="bench", ttl_s=HOUR_S),
            clock=clock,
            environment={},
            start_trainer=start,
        )
        clock.at_end = supervisor.stop
        cpu_s = time.process_time()
        code = supervisor.run()
        cpu_s = time.process_time() - cpu_s
        saved = checkpoints.newest(options.checkpoint_dir)
    events = [json.loads(line.removeprefix(EVENT_PREFIX)) for line in output.getvalue().decode().splitlines()]
    if code != EXIT_SIGNAL:
        raise SystemExit(f"the simulated run ended with exit code {code}: {events[-1]}")
    starts = sum(event["event"] == "started" for event in events)
    return Result(steps=events[-1]["step"], saved_steps=saved, starts=starts, cpu_s=cpu_s)


def ideal_steps(trace: Sequence[float], *, period_s: float) -> float:
    """Return the steps of a run that loses work, set-up and the wait for a node, and no second more.

    Args:
        trace: seconds from the start at which a node is lost.
        period_s: seconds of training from save to save.
    """
    end_s, now, done_s = HOURS * HOUR_S, 0.0, 0.0
    for lost in [*trace, end_s]:
        trained_s = 0.0
        if lost > now:
            saves, rest_s = divmod(max(0.0, lost - now - SETUP_S), period_s + SAVE_S)
            trained_s = saves * period_s + (min(rest_s, period_s) if lost == end_s else 0)
        done_s += trained_s
        now = max(now, lost + RETURN_S)
    return done_s / STEP_S


def main() -> None:
    """Simulate and print."""
    trace = json.loads(TRACE.read_text(encoding="utf-8"))["lost_at_s"]
    preemption = Preemption(
        save_s=SAVE_S, mean_time_between_s=HOURS * HOUR_S / PREEMPTIONS, restart_s=RETURN_S + SETUP_S
    )
    period = preemption.best_save_period(STEP_S)
    possible = HOURS * HOUR_S / STEP_S
    optimum = ideal_steps(trace, period_s=preemption.best_period_s) / possible
    print(
        f"a node lost at {', '.join(f'{at / HOUR_S:.2f}' for at in trace)} h of {HOURS}; save {SAVE_S:.0f} s, ", end=""
    )
    print(f"step {STEP_S:.0f} s, set-up {SETUP_S:.0f} s, node back after {RETURN_S:.0f} s (the last three assumed)")
    print(f"optimum on this trace, a save every {preemption.best_period_s:.0f} s: goodput {optimum:.3f}")
    best = simulate(trace, save_period=period)
    codelab = simulate(trace, save_period=CODELAB_SAVE_PERIOD)
    ended = simulate(trace, save_period=CODELAB_SAVE_PERIOD, end_s=trace[0])
    for name, steps, starts in (
        (f"Young/Daly, a save every {period} steps", best.steps, best.starts),
        (f"a save every {CODELAB_SAVE_PERIOD} steps", codelab.steps, codelab.starts),
        (f"a save every {CODELAB_SAVE_PERIOD} steps, no recovery", ended.saved_steps, ended.starts),
    ):
        goodput = steps / possible
        print(f"{name}: goodput {goodput:.3f}, {goodput / optimum:.3f} of the optimum, {starts} starts")
    print(f"supervisor, without Ray's own client: {best.cpu_s / HOURS:.2f} CPU seconds an hour")


if __name__ == "__main__":
    if sys.argv[1:] == ["--draw"]:
        TRACE.write_text(json.dumps({"seed": SEED, "hours": HOURS, "lost_at_s": draw_trace()}) + "\n", encoding="utf-8")
    main()
