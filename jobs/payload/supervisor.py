"""The Ray job's entrypoint: keeps a training run going on nodes that come and go, and ends with the truth.

`python -m jobs.payload.supervisor --run-dir D --checkpoint-dir D --nodes N --gpus-per-node G --max-steps S -- COMMAND`

It waits for GPUs, starts the trainer, restarts it from the newest checkpoint after a lost node or a crash, and writes
an event line for each (`event_lines.py`; the options stand in `options.py`). Requests come by file:
`<run-dir>/supervisor/control.json` with `{"action": "stop_after_checkpoint"}` or `{"action": "stop_now"}`.

| exit code | meaning | Ray's status |
|---|---|---|
| 0 | the last step is reached | SUCCEEDED |
| 1 | it will not get there by itself | FAILED |
| 75 | a planned stop before the last step; a resubmission goes on from there | FAILED |
| 143 | it was told to stop by Ray | STOPPED |

75 and not 0, as SUCCEEDED would keep the next `up` from resuming.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from jobs.payload import checkpoints
from jobs.payload.control import Action, Control
from jobs.payload.decisions import Ending, Judge, Verdict
from jobs.payload.event_lines import EventWriter
from jobs.payload.lease import Lease
from jobs.payload.nodes import NodeTable, NodeView, RayNodeTable
from jobs.payload.options import Options, parse
from jobs.payload.progress import Phase, Progress
from jobs.payload.trainer import Trainer

EXIT_FAILED = 1
EXIT_PLANNED_STOP = 75  # EX_TEMPFAIL of sysexits.h: try again later
EXIT_SIGNAL = 128 + signal.SIGTERM

_TICK_S = 0.2
_WAIT_TICK_S = 1.0
_NODES_EVERY_S = 3.0
_FILES_EVERY_S = 2.0
_STATUS_EVERY_S = 60.0
_SIGNAL_GRACE_S = 1.5  # Ray kills 3 s after its SIGTERM (RAY_JOB_STOP_WAIT_TIME_S)
_STOP_GRACE_S = 30.0


class Clock(Protocol):
    """Time, so that tests and simulations bring their own."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Let seconds pass."""
        ...


class _StopRequested(Exception):
    """Training must end now, for the reason given."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Unrecoverable(Exception):
    """The run cannot go on; the text is the cause."""


@dataclass(frozen=True, kw_only=True)
class _Watched:
    """What one start of the trainer came to."""

    exit_code: int
    progress: Progress
    stalled: bool


class Supervisor:
    """One Ray job's worth of supervision."""

    def __init__(
        self,
        options: Options,
        *,
        events: EventWriter,
        nodes: NodeTable,
        lease: Lease,
        clock: Clock,
        environment: Mapping[str, str],
        start_trainer: Callable[..., Trainer],
    ) -> None:
        self._options = options
        self._events = events
        self._nodes = nodes
        self._lease = lease
        self._clock = clock
        self._environment = {**environment, "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1", **options.environment}
        self._start_trainer = start_trainer
        self._judge = Judge(max_steps=options.max_steps, max_crashes=options.max_crashes)
        self._control = Control(options.run_dir / "supervisor" / "control.json")
        self._signalled = False
        self._stop_after_checkpoint = False
        self._step = 0
        self._progress = Progress(step=0, since=0)

    def stop(self) -> None:
        """Take note of a signal; acted upon within a tick."""
        self._signalled = True

    def run(self) -> int:
        """Supervise until the run is done, has failed or is stopped; returns the exit code."""
        try:
            self._refuse_other_model()
            self._take_lease()
            self._control.discard()
            return self._train_until_the_end()
        except _StopRequested as stop:
            # After a signal every moment counts.
            kept = None if stop.reason == "signal" else self._kept()
            self._events.emit("stopped", step=self._step, reason=stop.reason, kept=kept)
            return EXIT_SIGNAL if stop.reason == "signal" else EXIT_PLANNED_STOP
        except (_Unrecoverable, OSError) as failure:
            self._events.emit("failed", step=self._step, cause=str(failure), kept=self._kept())
            return EXIT_FAILED
        finally:
            self._lease.release()

    def _train_until_the_end(self) -> int:
        limit_s = self._options.max_capacity_wait_s
        while True:
            self._step = checkpoints.newest(self._options.checkpoint_dir)
            if self._step >= self._options.max_steps:
                self._events.emit("done", step=self._step, kept=self._kept())
                return 0
            view = self._wait_for_gpus(limit_s)
            watched = self._train(view)
            verdict = self._judge_ending(watched, view)
            match verdict:
                case Verdict.DONE:
                    self._events.emit("done", step=self._step, kept=self._kept())
                    return 0
                case Verdict.STOPPED:
                    raise _StopRequested("time" if watched.progress.ran_out_of_time else "early_exit")
                case Verdict.FAILED:
                    cause = watched.progress.cause or f"the training command ended with exit code {watched.exit_code}"
                    raise _Unrecoverable(f"{cause} ({self._judge.crashes} times in a row without a step gained)")
            limit_s = self._options.max_recovery_wait_s

    # Before training.

    def _refuse_other_model(self) -> None:
        directory, wanted = self._options.checkpoint_dir, self._options.model_name
        self._step = checkpoints.newest(directory)
        found = checkpoints.model_of(directory, self._step) if self._step else None
        if wanted and found and found != wanted:
            raise _Unrecoverable(
                f"{directory}/step_{self._step} holds a checkpoint of {found}, and {wanted} is to be trained: "
                "NeMo-RL would load the one into the other. Give the job another name, or move the directory away"
            )

    def _take_lease(self) -> None:
        began = self._clock.monotonic()
        told = None
        while owner := self._lease.try_take(self._clock.monotonic()):
            if owner != told:
                self._events.emit("waiting", reason="lease", waited_s=round(self._clock.monotonic() - began, 1))
                told = owner
            self._pause(_WAIT_TICK_S)

    def _wait_for_gpus(self, limit_s: float) -> NodeView:
        """Wait until all GPUs are there and the nodes have been the same for a while."""
        options, began = self._options, self._clock.monotonic()
        known: frozenset[str] = frozenset()
        still_since = told_at = -float("inf")
        told = None
        while True:
            view, now = self._nodes.view(), self._clock.monotonic()
            if known != (known := frozenset(view.addresses)):
                still_since = now
            enough = view.has(options.nodes, options.gpus_per_node)
            if enough and now - still_since >= options.settle_s:
                return view
            status = ("settling" if enough else "gpus", sum(view.gpus.values()), len(view.addresses))
            if status != told or now - told_at >= _STATUS_EVERY_S:
                self._events.emit(
                    "waiting",
                    reason=status[0],
                    gpus_alive=status[1],
                    gpus_needed=options.nodes * options.gpus_per_node,
                    nodes_alive=status[2],
                    waited_s=round(now - began, 1),
                    limit_s=limit_s,
                )
                told, told_at = status, now
            if now - began > limit_s:
                raise _Unrecoverable(
                    f"only {status[1]} of {options.nodes * options.gpus_per_node} GPUs on {status[2]} nodes after "
                    f"{limit_s:.0f} s. Submit again when there is capacity; the run goes on from step {self._step}"
                )
            self._obey()
            if self._stop_after_checkpoint:
                raise _StopRequested("control")  # the newest checkpoint is all there is
            self._pause(_WAIT_TICK_S)

    # Training.

    def _train(self, view: NodeView) -> _Watched:
        options = self._options
        for told in checkpoints.clear_leftovers(options.checkpoint_dir, options.run_dir / "set-aside"):
            self._events.pass_through(f"{told}\n".encode())
        self._step = checkpoints.newest(options.checkpoint_dir)
        if self._step:
            self._events.emit("resumed", step=self._step, kept=self._kept())
        try:
            trainer = self._start_trainer(
                options.command,
                workdir=options.workdir,
                environment=self._environment,
                pass_through=self._events.pass_through,
            )
        except OSError as error:
            raise _Unrecoverable(f"{options.command[0]} cannot be started in {options.workdir}: {error}") from error
        self._progress = Progress(step=self._step, since=self._clock.monotonic())
        with self._ended_with(trainer):
            self._lease.record_trainer(trainer.pid)
            self._events.emit(
                "started",
                attempt=self._count_start(),
                step=self._step,
                max_steps=options.max_steps,
                nodes=len(view.gpus),
                gpus=sum(view.gpus.values()),
                submission_id=_submission_id(),
            )
            return self._watch(trainer, view)

    def _watch(self, trainer: Trainer, view: NodeView) -> _Watched:
        """Follow one start of the trainer to its end, or end it."""
        options, clock = self._options, self._clock
        limits = {
            Phase.SETUP: options.setup_limit_s,
            Phase.STEP: options.step_limit_s,
            Phase.SAVE: options.save_limit_s,
        }
        progress = self._progress
        known = set(checkpoints.steps(options.checkpoint_dir))
        nodes_at = files_at = clock.monotonic()
        node_lost_at: float | None = None
        while True:
            code = trainer.exit_code()
            self._take_in(trainer)
            now = clock.monotonic()
            if code is not None or now - files_at >= _FILES_EVERY_S:
                files_at = now
                self._obey()
                self._report_checkpoints(known)
            if code is not None:
                return _Watched(exit_code=code, progress=progress, stalled=False)
            if now - nodes_at >= _NODES_EVERY_S:
                nodes_at = now
                gone = view.addresses.keys() - self._nodes.view().addresses.keys()
                node_lost_at = (node_lost_at or now) if gone else None
            phase: str | None = progress.stalled(now, limits)
            limit_s = limits[progress.phase]
            if node_lost_at is not None and now - node_lost_at > options.node_loss_settle_s:
                # A trainer that has not noticed by now waits for an answer that never comes.
                phase, limit_s = "node_loss", options.node_loss_settle_s
            if phase:
                self._events.emit("stalled", step=progress.step, phase=phase, limit_s=limit_s)
                return _Watched(exit_code=self._end(trainer, _STOP_GRACE_S), progress=progress, stalled=True)
            self._pause()

    def _take_in(self, trainer: Trainer) -> None:
        for line in trainer.lines():
            done = self._progress.read(line, self._clock.monotonic())
            if done:
                self._step = done.step
                self._events.emit(
                    "step",
                    step=done.step,
                    max_steps=self._options.max_steps,
                    reward=done.reward,
                    step_time_s=done.step_time_s,
                )

    def _report_checkpoints(self, known: set[int]) -> None:
        """Tell of each checkpoint that has got its final name."""
        fresh = sorted(set(checkpoints.steps(self._options.checkpoint_dir)) - known)
        for step in fresh:
            size, files = checkpoints.measure(self._options.checkpoint_dir, step)
            self._events.emit("checkpoint", step=step, bytes=size, files=files, blocking_s=self._progress.blocking_s)
        known.update(fresh)
        if fresh and self._stop_after_checkpoint:
            raise _StopRequested("control")

    # After training.

    def _judge_ending(self, watched: _Watched, view: NodeView) -> Verdict:
        lost = () if watched.exit_code == 0 and not watched.stalled else self._lost_nodes(view)
        verdict = self._judge.judge(
            Ending(
                exit_code=watched.exit_code,
                step=watched.progress.step,
                newest_checkpoint=checkpoints.newest(self._options.checkpoint_dir),
                reached_last_step=watched.progress.reached_last_step,
                nodes_lost=bool(lost),
                stalled=watched.stalled,
            )
        )
        if verdict is Verdict.RECOVER:
            now = self._nodes.view()
            self._events.emit(
                "lost_node",
                step=watched.progress.step,
                nodes=sorted(lost),
                nodes_alive=len(now.addresses),
                gpus_alive=sum(now.gpus.values()),
                exit_code=watched.exit_code,
            )
        elif verdict in {Verdict.RETRY, Verdict.FAILED}:
            self._events.emit(
                "crashed",
                step=watched.progress.step,
                exit_code=watched.exit_code,
                cause=watched.progress.cause,
                crashes=self._judge.crashes,
                max_crashes=self._options.max_crashes,
            )
        return verdict

    def _lost_nodes(self, view: NodeView) -> tuple[str, ...]:
        """Return the addresses of nodes gone since the start, once Ray's table has had the time to say so."""
        deadline = self._clock.monotonic() + self._options.node_loss_settle_s
        while True:
            gone = view.addresses.keys() - self._nodes.view().addresses.keys()
            if gone or self._clock.monotonic() >= deadline:
                return tuple(view.addresses[node] for node in gone)
            self._pause()

    # Throughout.

    def _kept(self) -> dict[str, int]:
        """Return the bytes of each checkpoint on disk, by step."""
        directory = self._options.checkpoint_dir
        return {str(step): checkpoints.measure(directory, step)[0] for step in checkpoints.steps(directory)}

    def _pause(self, seconds: float = _TICK_S) -> None:
        """Let a moment pass; raises if somebody wants an end."""
        self._clock.sleep(seconds)
        if self._signalled:
            raise _StopRequested("signal")
        if self._lease.is_lost:
            raise _StopRequested("lease")

    def _obey(self) -> None:
        """Act upon a request by file."""
        match self._control.take():
            case Action.STOP_NOW:
                raise _StopRequested("control")
            case Action.STOP_AFTER_CHECKPOINT:
                self._stop_after_checkpoint = True

    @contextmanager
    def _ended_with(self, trainer: Trainer) -> Iterator[None]:
        """Leave no trainer behind, whatever ends its supervision."""
        try:
            yield
        except _StopRequested as stop:
            self._end(trainer, {"signal": _SIGNAL_GRACE_S, "lease": 0.0}.get(stop.reason, _STOP_GRACE_S))
            raise
        finally:
            trainer.kill()
            self._take_in(trainer)
            self._lease.record_trainer(None)

    def _end(self, trainer: Trainer, grace_s: float) -> int:
        """Ask the trainer to end, then make it; returns its exit code."""
        deadline = self._clock.monotonic() + grace_s
        if grace_s:
            trainer.terminate()
        while (code := trainer.exit_code()) is None and self._clock.monotonic() < deadline:
            self._clock.sleep(_TICK_S)
        return trainer.kill() if code is None else code

    def _count_start(self) -> int:
        """Count the starts of the trainer in this run directory, across Ray jobs."""
        path = self._options.run_dir / "supervisor" / "starts"
        count = int(path.read_text(encoding="utf-8")) + 1 if path.exists() else 1
        draft = path.with_suffix(".draft")
        draft.write_text(str(count), encoding="utf-8")
        draft.replace(path)
        return count


def _submission_id() -> str | None:
    """Return the id of the Ray job that this process is the entrypoint of."""
    config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    submission_id: str | None = config.get("metadata", {}).get("job_submission_id")
    return submission_id


def main(arguments: Sequence[str]) -> int:
    """Supervise one run on the Ray cluster that this process was started on."""
    options = parse(arguments)
    environment = dict(os.environ)  # before Ray adds its own
    (options.run_dir / "supervisor").mkdir(parents=True, exist_ok=True)
    options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(
        options,
        events=EventWriter(sys.stdout.buffer),
        nodes=RayNodeTable(),
        lease=Lease(
            options.run_dir / "supervisor", owner=_submission_id() or f"pid {os.getpid()}", ttl_s=options.lease_ttl_s
        ),
        clock=time,
        environment=environment,
        start_trainer=Trainer,
    )
    # After Ray has set its own handlers.
    signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
