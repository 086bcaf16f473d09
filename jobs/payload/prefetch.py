"""The step before GPUs are asked for: the model, from its hub to the cache on Lustre.

It runs on the head, which needs no GPU for a download, and once for each model and release: a marker in the cache says
that it is complete, and goes when the cache is emptied. The command has to go on where an interrupted one stopped, as
the hub's client does. What it has got is seen by the cache's growth; lines are no progress.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from jobs.payload.clock import Clock
from jobs.payload.endings import Unrecoverable
from jobs.payload.event_lines import EventWriter
from jobs.payload.interrupts import Interrupts
from jobs.payload.options import Options
from jobs.payload.progress import Progress
from jobs.payload.trainer import STOP_GRACE_S, RunningCommand, StartCommand, end, ended_at_exit
from jobs.payload.tree import tree_size

_STALLED = -1  # no exit code of a program
_CACHE_EVERY_S = 15.0
_STATUS_EVERY_S = 60.0
_RESTS_S = (10.0, 60.0, 300.0)  # before each further try; a hub's outage takes minutes


class Prefetch:
    """One model's way into the cache."""

    def __init__(
        self,
        options: Options,
        *,
        events: EventWriter,
        clock: Clock,
        interrupts: Interrupts,
        environment: Mapping[str, str],
        start: StartCommand,
    ) -> None:
        self._options = options
        self._events = events
        self._clock = clock
        self._interrupts = interrupts
        self._environment = environment
        self._start = start
        self._cache = Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        what = f"{options.release}\n{options.model_name}\n{options.prefetch}"
        key = hashlib.sha256(what.encode()).hexdigest()[:16]
        self._marker = self._cache / "rlstack" / f"prefetched-{key}.json"

    def run(self, *, step: int) -> None:
        """Fetch what is not there yet.

        Args:
            step: the run's step, for events.

        Raises:
            Unrecoverable: it failed as often as training may.
            StopRequested: somebody wants an end.
        """
        if self._marker.exists():
            return
        began, before = self._clock.monotonic(), tree_size(self._cache)[0]
        crashes, size = 0, before
        while (failure := self._try(step=step, began=began)) is not None:
            if size < (size := tree_size(self._cache)[0]):
                crashes = 0  # it has got further
            crashes += 1
            code, cause = failure
            self._events.emit(
                "crashed",
                phase="prefetch",
                step=step,
                exit_code=code,
                cause=cause,
                crashes=crashes,
                max_crashes=self._options.max_crashes,
            )
            if crashes >= self._options.max_crashes:
                raise Unrecoverable(
                    f"{self._options.model_name} could not be fetched: {cause or f'exit code {code}'} ({crashes} times "
                    "in a row). Nothing was trained and no GPU asked for; with job.prefetch: false training fetches it"
                )
            self._rest(_RESTS_S[min(crashes, len(_RESTS_S)) - 1])
        self._marker.parent.mkdir(parents=True, exist_ok=True)
        self._marker.write_text(
            json.dumps({"model": self._options.model_name, "release": self._options.release}), encoding="utf-8"
        )
        self._events.emit(
            "prefetched",
            seconds=round(self._clock.monotonic() - began, 1),
            bytes=max(0, tree_size(self._cache)[0] - before),
        )

    def _rest(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until:
            self._interrupts.obey()
            self._interrupts.at_checkpoint()
            self._interrupts.pause()

    def _try(self, *, step: int, began: float) -> tuple[int, str | None] | None:
        """Run the command once; returns its exit code and the cause of a failure."""
        words = shlex.split(self._options.prefetch or "")
        self._events.emit("waiting", reason="prefetch", waited_s=round(self._clock.monotonic() - began, 1))
        try:
            command = self._start(
                words,
                workdir=self._options.workdir,
                environment=self._environment,
                pass_through=self._events.pass_through,
            )
        except OSError as error:
            raise Unrecoverable(f"{words[0]} cannot be started in {self._options.workdir}: {error}") from error
        progress = Progress(step=step, since=self._clock.monotonic())
        with ended_at_exit(command, clock=self._clock):
            code = self._follow(command, progress, began=began)
        for line in command.lines():
            progress.read(line, self._clock.monotonic())
        if code == _STALLED:
            limit_s = self._options.prefetch_limit_s
            return code, f"the cache has not grown for {limit_s:.0f} s (job.limits.prefetch_limit_s)"
        return None if code == 0 else (code, progress.cause)

    def _follow(self, command: RunningCommand, progress: Progress, *, began: float) -> int:
        """Wait for the command's end, or end it when the cache has stopped growing; returns its exit code."""
        grown_at = looked_at = told_at = self._clock.monotonic()
        size, limit_s = -1, self._options.prefetch_limit_s
        while (code := command.exit_code()) is None:
            now = self._clock.monotonic()
            for line in command.lines():
                progress.read(line, now)
            if now - looked_at >= _CACHE_EVERY_S:
                looked_at = now
                self._interrupts.obey()
                self._interrupts.at_checkpoint()
                if size != (size := tree_size(self._cache)[0]):
                    grown_at = now
            if now - told_at >= _STATUS_EVERY_S:
                told_at = now
                self._events.emit("waiting", reason="prefetch", waited_s=round(now - began, 1), limit_s=limit_s)
            if now - grown_at > limit_s:
                self._events.emit("stalled", step=progress.step, phase="prefetch", limit_s=limit_s)
                end(command, grace_s=STOP_GRACE_S, clock=self._clock)
                return _STALLED
            self._interrupts.pause()
        return code
