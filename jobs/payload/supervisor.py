"""The Ray job's entrypoint: keeps a training run going on nodes that come and go, and ends with the truth.

`python -m jobs.payload.supervisor --run-dir D --checkpoint-dir D --nodes N --gpus-per-node G --max-steps S -- COMMAND`

It checks what lies in the run's directory, fetches the model, asks for workers and waits for their GPUs, starts the
trainer, restarts it from the newest checkpoint after a lost node or a crash, gives the workers back at the end, and
writes an event line for each (`event_lines.py`; the options stand in `options.py`). Requests come by file:
`<run-dir>/supervisor/control.json` with `{"action": "stop_after_checkpoint", "submission_id": "..."}`, `hand_over` or
`stop_now`.

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
import uuid
from collections.abc import Mapping, Sequence

from jobs.payload import checkpoints, leftovers, run_identity
from jobs.payload.allowance import Allowance
from jobs.payload.attempt import Attempt, AttemptEnd
from jobs.payload.capacity import Capacity
from jobs.payload.clock import Clock
from jobs.payload.control import Control
from jobs.payload.decisions import Ending, Judge, Verdict
from jobs.payload.endings import (
    EXIT_FAILED,
    EXIT_PLANNED_STOP,
    EXIT_SIGNAL,
    StopReason,
    StopRequested,
    Unrecoverable,
)
from jobs.payload.event_lines import EventWriter
from jobs.payload.event_record import EventRecord
from jobs.payload.interrupts import Interrupts
from jobs.payload.lease import Lease
from jobs.payload.nodes import NodeTable, NodeView, RayNodeTable
from jobs.payload.options import Options, parse
from jobs.payload.prefetch import Prefetch
from jobs.payload.trainer import StartCommand, Trainer
from jobs.payload.workers import ApiServer, Workers

_LEASE_EVERY_S = 1.0
_LEASE_LIVES = 10  # an owner that lives so much longer is at work, and somebody has to decide between the two


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
        start_trainer: StartCommand,
        submission_id: str | None = None,
        api_server: ApiServer | None = None,
    ) -> None:
        """Prepare a supervision; nothing is read or started yet.

        Args:
            options: the command line.
            events: the output.
            nodes: Ray's table of nodes.
            lease: the claim on the run's directory.
            clock: what waits and limits are measured on.
            environment: this process's variables, for the trainer.
            start_trainer: starts the training command.
            submission_id: the Ray job that this is.
            api_server: the way to the API server, where workers are to be scaled.
        """
        self._options = options
        self._events = events
        self._nodes = nodes
        self._lease = lease
        self._clock = clock
        self._environment = {**environment, "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1", **options.environment}
        self._start_trainer = start_trainer
        self._submission_id = submission_id
        self._judge = Judge(max_steps=options.max_steps, max_crashes=options.max_crashes)
        self._release = run_identity.ReleaseFile(options.run_dir / "supervisor" / "release.json")
        self._control = Control(options.run_dir / "supervisor" / "control.json", submission_id=submission_id)
        self._interrupts = Interrupts(
            clock=clock,
            lease=lease,
            control=self._control,
            allowance=Allowance(
                events.usage, now=events.now, max_run_s=options.max_run_s, budget_gpu_hours=options.budget_gpu_hours
            ),
            save_limit_s=options.save_limit_s,
        )
        self._workers = (
            Workers(options.scale_raycluster, api=api_server, events=events, clock=clock, interrupts=self._interrupts)
            if options.scale_raycluster and api_server
            else None
        )
        self._capacity = Capacity(
            options, events=events, nodes=nodes, workers=self._workers, clock=clock, interrupts=self._interrupts
        )
        self._step = 0
        self._owns_run = False

    def stop(self) -> None:
        """Take note of a signal; acted upon within a tick."""
        self._interrupts.signal()

    def run(self) -> int:
        """Supervise until the run is done, has failed or is stopped; returns the exit code."""
        directory = self._options.checkpoint_dir
        try:
            self._take_lease()
            self._owns_run = True
            # With the lease held: whoever is refused gives back the workers that a predecessor has handed over.
            self._step = checkpoints.newest(directory)
            run_identity.refuse_other_model(directory, self._options.model_name)
            self._release.refuse_other(directory, self._options.release)
            self._train_until_the_end()
        except StopRequested as stop:
            if not stop.reason.is_planned:
                # After a signal every moment counts, and a successor needs the workers. A lease that nobody has taken
                # was lost to a file system that does not answer: then nobody is about to use them.
                if stop.reason is StopReason.LEASE and not self._lease.is_taken_over:
                    self._release_workers()
                self._events.emit("stopped", step=self._step, reason=stop.reason, cause=stop.cause)
                return EXIT_SIGNAL if stop.reason is StopReason.SIGNAL else EXIT_PLANNED_STOP
            if stop.reason.gives_workers_back:
                self._release_workers()
            self._events.emit("stopped", step=self._step, reason=stop.reason, cause=stop.cause, kept=self._kept())
            return EXIT_PLANNED_STOP
        except (Unrecoverable, OSError) as failure:
            self._release_workers()
            self._events.emit("failed", step=self._step, cause=str(failure), kept=self._kept())
            return EXIT_FAILED
        except Exception as fault:
            # A fault of this program must not keep GPUs, nor end without a word.
            self._release_workers()
            cause = f"the supervisor itself failed: {type(fault).__name__}: {fault}"
            self._events.emit("failed", step=self._step, cause=cause)
            raise
        else:
            self._release_workers()
            self._events.emit("done", step=self._step, kept=self._kept())
            return 0
        finally:
            self._lease.release()

    def _train_until_the_end(self) -> None:
        """Return when the last step is reached; every other end is an exception."""
        options = self._options
        if self._is_done():
            return
        self._release.write(options.release)
        if options.prefetch:
            self._prefetch()
        is_first = True
        while not self._is_done():
            view = self._capacity.wait(is_first=is_first, step=self._step)
            ended = self._train(view)
            match self._judge_ending(ended, view):
                case Verdict.DONE:
                    return
                case Verdict.STOPPED:
                    raise StopRequested(StopReason.TIME if ended.progress.ran_out_of_time else StopReason.EARLY_EXIT)
                case Verdict.LOST_TOO_OFTEN:
                    after = f" after {ended.progress.cause}" if ended.progress.cause else ""
                    raise Unrecoverable(
                        f"a node was lost{after} {self._judge.losses} times in a row without a step gained. A training "
                        "that exhausts its node's memory looks like that: kubectl describe the worker pods, and look "
                        "for OOMKilled. If it was capacity, run `up` again when there is more"
                    )
                case Verdict.FAILED:
                    cause = ended.progress.cause or f"the training command ended with exit code {ended.exit_code}"
                    raise Unrecoverable(f"{cause} ({self._judge.crashes} times in a row without a step gained)")
            is_first = False

    def _is_done(self) -> bool:
        self._step = checkpoints.newest(self._options.checkpoint_dir)
        return self._step >= self._options.max_steps

    def _take_lease(self) -> None:
        began = self._clock.monotonic()
        patience_s = _LEASE_LIVES * self._options.lease_ttl_s
        told = None
        while owner := self._lease.try_take(self._clock.monotonic()):
            waited_s = self._clock.monotonic() - began
            if waited_s > patience_s:
                raise Unrecoverable(
                    f"{self._options.run_dir} is in the hands of {owner}, which has been alive for {waited_s:.0f} s "
                    "since this job began: two must not train in one directory. Stop that Ray job, then submit again"
                )
            if owner != told:
                self._events.emit("waiting", reason="lease", waited_s=round(waited_s, 1), limit_s=patience_s)
                told = owner
            self._interrupts.pause(_LEASE_EVERY_S)

    def _prefetch(self) -> None:
        self._interrupts.obey()
        self._interrupts.at_checkpoint()
        prefetch = Prefetch(
            self._options,
            events=self._events,
            clock=self._clock,
            interrupts=self._interrupts,
            environment=self._environment,
            start=self._start_trainer,
        )
        prefetch.run(step=self._step)

    def _train(self, view: NodeView) -> AttemptEnd:
        options = self._options
        told = leftovers.clear_saves(options.checkpoint_dir, options.run_dir / "set-aside")
        if options.model_name:
            told += leftovers.clear_import(self._environment, options.model_name)
        if told:
            self._events.emit("set_aside", told=told)
        self._step = checkpoints.newest(options.checkpoint_dir)
        if self._step:
            self._events.emit("resumed", step=self._step, kept=self._kept())
        attempt = Attempt(
            options,
            step=self._step,
            view=view,
            events=self._events,
            nodes=self._nodes,
            lease=self._lease,
            clock=self._clock,
            interrupts=self._interrupts,
        )
        try:
            return attempt.run(self._start_trainer, environment=self._environment, submission_id=self._submission_id)
        finally:
            self._step = attempt.step

    def _judge_ending(self, ended: AttemptEnd, view: NodeView) -> Verdict:
        lost = () if ended.exit_code == 0 and not ended.stalled else self._lost_nodes(view)
        verdict = self._judge.judge(
            Ending(
                exit_code=ended.exit_code,
                step=ended.progress.step,
                newest_checkpoint=checkpoints.newest(self._options.checkpoint_dir),
                reached_last_step=ended.progress.reached_last_step,
                nodes_lost=bool(lost),
                stalled=ended.stalled,
            )
        )
        if verdict in {Verdict.RECOVER, Verdict.LOST_TOO_OFTEN}:
            now = self._nodes.view()
            self._events.emit(
                "lost_node",
                step=ended.progress.step,
                nodes=sorted(lost),
                nodes_alive=len(now.addresses),
                gpus_alive=sum(now.gpus.values()),
                exit_code=ended.exit_code,
            )
        elif verdict in {Verdict.RETRY, Verdict.FAILED}:
            self._events.emit(
                "crashed",
                step=ended.progress.step,
                exit_code=ended.exit_code,
                cause=ended.progress.cause,
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
            self._interrupts.pause()

    def _release_workers(self) -> None:
        # Without the lease they may be another supervisor's, at work.
        if self._workers and self._owns_run:
            self._workers.release()

    def _kept(self) -> dict[str, int] | None:
        """Return the bytes of each checkpoint on disk, by step; none where the disk cannot be read."""
        directory = self._options.checkpoint_dir
        try:
            return {str(step): checkpoints.measure(directory, step)[0] for step in checkpoints.steps(directory)}
        except OSError:
            return None


def _submission_id() -> str | None:
    """Return the id of the Ray job that this process is the entrypoint of."""
    config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    submission_id: str | None = config.get("metadata", {}).get("job_submission_id")
    return submission_id


def main(arguments: Sequence[str]) -> int:
    """Supervise one run on the Ray cluster that this process was started on."""
    options = parse(arguments)
    environment = dict(os.environ)  # before Ray adds its own
    state_dir = options.run_dir / "supervisor"
    state_dir.mkdir(parents=True, exist_ok=True)
    options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    submission_id = _submission_id()
    owner = submission_id or f"pid {os.getpid()}"
    record = EventRecord(state_dir / "events.jsonl", submission_id=owner, supervisor_id=uuid.uuid4().hex)
    supervisor = Supervisor(
        options,
        events=EventWriter(sys.stdout.buffer, record=record),
        nodes=RayNodeTable(),
        lease=Lease(state_dir, owner=owner, ttl_s=options.lease_ttl_s),
        clock=time,
        environment=environment,
        start_trainer=Trainer,
        submission_id=submission_id,
        api_server=ApiServer.of_this_pod(environment),
    )
    # After Ray has set its own handlers.
    signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
