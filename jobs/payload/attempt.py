"""One start of the trainer, from its first line to its end, which is its own, a stall's, or somebody's wish."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.payload import checkpoints
from jobs.payload.clock import Clock
from jobs.payload.endings import Unrecoverable
from jobs.payload.event_lines import EventWriter
from jobs.payload.interrupts import Interrupts
from jobs.payload.lease import Lease
from jobs.payload.nodes import NodeTable, NodeView
from jobs.payload.options import Options
from jobs.payload.progress import Phase, Progress
from jobs.payload.trainer import STOP_GRACE_S, RunningCommand, StartCommand, end, ended_at_exit

_NODES_EVERY_S = 3.0
_FILES_EVERY_S = 2.0
# NeMo-RL prunes, and writes its samples, between the rename of a checkpoint and the line that says how long all took.
_SAVE_TOLD_WITHIN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """What one start of the trainer came to.

    Attributes:
        exit_code: of the training command.
        progress: how far it got.
        stalled: the supervisor ended it, since nothing moved.
    """

    exit_code: int
    progress: Progress
    stalled: bool


class Attempt:
    """One start of the trainer.

    Attributes:
        step: the run's last complete step; at first the one resumed from.
    """

    def __init__(
        self,
        options: Options,
        *,
        step: int,
        view: NodeView,
        events: EventWriter,
        nodes: NodeTable,
        lease: Lease,
        clock: Clock,
        interrupts: Interrupts,
    ) -> None:
        """Prepare a start.

        Args:
            options: the command line.
            step: the checkpoint that training resumes from; 0 for none.
            view: the nodes that it starts on.
            events: told of steps and checkpoints.
            nodes: asked whether those of `view` are still there.
            lease: keeps the trainer's process group for a successor.
            clock: what limits are measured on.
            interrupts: what else may end it.
        """
        self.step = step
        self._options = options
        self._view = view
        self._events = events
        self._nodes = nodes
        self._lease = lease
        self._clock = clock
        self._interrupts = interrupts
        self._progress = Progress(step=step, since=clock.monotonic())
        self._known = set(checkpoints.steps(options.checkpoint_dir))
        self._renamed_at: dict[int, float] = {}  # checkpoints that are not told of yet

    def run(self, start: StartCommand, *, environment: Mapping[str, str], submission_id: str | None) -> AttemptEnd:
        """Start the trainer and follow it to its end, or end it.

        Raises:
            Unrecoverable: it cannot be started.
            StopRequested: somebody wants an end; the trainer is gone.
        """
        options = self._options
        try:
            trainer = start(
                options.command,
                workdir=options.workdir,
                environment=environment,
                pass_through=self._events.pass_through,
            )
        except OSError as error:
            raise Unrecoverable(f"{options.command[0]} cannot be started in {options.workdir}: {error}") from error
        self._progress.since = self._clock.monotonic()
        try:
            with ended_at_exit(trainer, clock=self._clock):
                self._lease.record_trainer(trainer.pid)
                self._events.emit(
                    "started",
                    attempt=self._events.usage.starts + 1,
                    step=self.step,
                    max_steps=options.max_steps,
                    nodes=len(self._view.gpus),
                    gpus=sum(self._view.gpus.values()),
                    submission_id=submission_id,
                )
                return self._watch(trainer)
        finally:
            self._take_in(trainer)
            self._lease.record_trainer(None)

    def _watch(self, trainer: RunningCommand) -> AttemptEnd:
        options, clock, progress = self._options, self._clock, self._progress
        limits = {
            Phase.SETUP: options.setup_limit_s,
            Phase.STEP: options.step_limit_s,
            Phase.SAVE: options.save_limit_s,
        }
        nodes_at = files_at = clock.monotonic()
        node_lost_at: float | None = None
        while True:
            code = trainer.exit_code()
            self._take_in(trainer)
            now = clock.monotonic()
            if code is not None or now - files_at >= _FILES_EVERY_S:
                files_at = now
                self._interrupts.obey()
                with contextlib.suppress(OSError):  # one that lasts costs the lease
                    self._find_checkpoints(now)
            self._report_checkpoints(now, trainer_has_ended=code is not None)
            if code is not None:
                return AttemptEnd(exit_code=code, progress=progress, stalled=False)
            if now - nodes_at >= _NODES_EVERY_S:
                nodes_at = now
                gone = self._view.addresses.keys() - self._nodes.view().addresses.keys()
                node_lost_at = (node_lost_at or now) if gone else None
            phase: str | None = progress.stalled(now, limits)
            limit_s = limits[progress.phase]
            if node_lost_at is not None and now - node_lost_at > options.node_loss_settle_s:
                # A trainer that has not noticed by now waits for an answer that never comes.
                phase, limit_s = "node_loss", options.node_loss_settle_s
            if phase:
                self._events.emit("stalled", step=progress.step, phase=phase, limit_s=limit_s)
                code = end(trainer, grace_s=STOP_GRACE_S, clock=clock)
                return AttemptEnd(exit_code=code, progress=progress, stalled=True)
            self._interrupts.pause()

    def _take_in(self, trainer: RunningCommand) -> None:
        for line in trainer.lines():
            done = self._progress.read(line, self._clock.monotonic())
            if done:
                self.step = done.step
                self._events.emit(
                    "step",
                    step=done.step,
                    max_steps=self._options.max_steps,
                    reward=done.reward,
                    step_time_s=done.step_time_s,
                )

    def _find_checkpoints(self, now: float) -> None:
        """Take note of each checkpoint that has got its final name."""
        for step in set(checkpoints.steps(self._options.checkpoint_dir)) - self._known:
            self._known.add(step)
            self._renamed_at[step] = now

    def _report_checkpoints(self, now: float, *, trainer_has_ended: bool) -> None:
        """Tell of each new checkpoint once the trainer is through with its save; raises if a stop waits for one."""
        saves_s = self._progress.saves_s
        through = [
            step
            for step, renamed_at in sorted(self._renamed_at.items())
            if step in saves_s or trainer_has_ended or now - renamed_at > _SAVE_TOLD_WITHIN_S
        ]
        for step in through:
            del self._renamed_at[step]
            size, files = checkpoints.measure(self._options.checkpoint_dir, step)
            self._events.emit("checkpoint", step=step, bytes=size, files=files, blocking_s=saves_s.get(step))
        if through and through[-1] < self._options.max_steps:
            self._interrupts.at_checkpoint()
