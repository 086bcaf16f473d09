"""Reads a job's log, NeMo-RL's lines and the supervisor's, into records; in one pass, in flat memory, never raising.

The lines are those of NeMo-RL v0.4.0 to v0.7.0 (`nemo_rl/algorithms/grpo.py`, both loops; `utils/checkpoint.py`;
`models/policy/workers/megatron_policy_worker.py`; `distributed/virtual_cluster.py`). Ray puts `(Name pid=1, ip=...)`
before a worker's lines and mixes them with the driver's, so results are collected for each source by itself.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jobs.log_records import (
    CheckpointDirectory,
    CheckpointRemoved,
    CheckpointSaved,
    CheckpointSaving,
    ErrorSeen,
    FailureClass,
    MaxSteps,
    Record,
    SaveFailed,
    SetupComplete,
    StepFinished,
    StepStarted,
    TimeoutReached,
    UnreadableEvent,
    Validation,
    Waiting,
)
from jobs.payload.event_lines import EVENT_PREFIX
from jobs.supervisor_events import read_event

MAX_LINE_BYTES = 65_536
"""A line's rest beyond this is dropped: no line that matters is longer, and some of NeMo-RL's are megabytes."""


_MAX_TEXT = 500  # characters of an error kept
_MAX_SOURCES = 64  # sources whose open results are kept
_MAX_ERRORS_PER_STEP = 20

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_SOURCE = re.compile(r"\((?P<source>[^()]{0,200}\b(?:pid|ip)=[^()]{1,100}|raylet|autoscaler \+\w{1,20})\) ?")
_REPEATED = re.compile(r" ?\[repeated \d{1,9}x across cluster\].*$")
_COUNT = r"\d{1,9}"
_FLOAT = r"-?(?:\d{1,18}(?:\.\d{1,18})?|nan|inf)"

# An exception's last line: its dotted name, then its message.
_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w{0,80}(?:Error|Exception)(?:\(\w{1,80}\))?(?:: .*)?")
_FAILURES: tuple[tuple[FailureClass, re.Pattern[str]], ...] = tuple(
    (failure, re.compile(pattern))
    for failure, pattern in (
        (FailureClass.STORAGE_FULL, r"No space left on device|Disk quota exceeded|ENOSPC"),
        (
            FailureClass.CAPACITY,
            r"ResourceInsufficientError|Not enough [CG]PUs available|waiting for placement groups|only \d+ of \d+ GPUs",
        ),
        (FailureClass.GPU_MEMORY, r"CUDA out of memory|CUDA error: out of memory|torch\.OutOfMemoryError"),
        (FailureClass.HOST_MEMORY, r"ray\.exceptions\.OutOfMemoryError|\bMemoryError|Cannot allocate memory"),
        (FailureClass.ACCESS, r"GatedRepoError|RepositoryNotFoundError|40[13] Client Error"),
        (FailureClass.CONFIG, r"OverridesError|Config(?:Attribute|Key)Error|is not in struct|holds a checkpoint of"),
        (
            FailureClass.NODE_LOSS,
            r"NodeDiedError|LocalRayletDiedError|its node has died|node was (?:terminated|preempted)",
        ),
        (FailureClass.COLLECTIVE, r"NCCL|DistBackendError|ProcessGroup"),
        (FailureClass.WORKER_LOSS, r"(?:Actor|Worker|Owner|Object)(?:Died|Unavailable|Crashed|Lost)Error"),
    )
)


def classify(text: str) -> FailureClass:
    """Name the kind of failure that an error's text shows; what nothing is known of is a crash."""
    return next((failure for failure, pattern in _FAILURES if pattern.search(text)), FailureClass.CRASH)


class LineSplitter:
    """Cuts a stream of bytes into lines of bounded length."""

    def __init__(self) -> None:
        self._tail = bytearray()

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Return the lines that a chunk completes, without their ends."""
        head, *lines = chunk.split(b"\n")
        self._tail += head[: MAX_LINE_BYTES - len(self._tail)]
        if not lines:
            return
        tail = lines.pop()
        lines.insert(0, bytes(self._tail))
        self._tail = bytearray(tail[:MAX_LINE_BYTES])
        for line in lines:
            yield line[:MAX_LINE_BYTES].removesuffix(b"\r").decode("utf-8", "replace")

    def close(self) -> str:
        """Return what followed the last line's end."""
        tail, self._tail = self._tail, bytearray()
        return tail.decode("utf-8", "replace")


@dataclass
class _Block:
    """What one source has printed of its current step and validation."""

    step: int | None = None
    step_in_epoch: int = 0
    base: int = 0  # steps of the epochs before
    results: dict[str, float] = field(default_factory=dict)
    in_results: bool = False
    in_timing: bool = False
    saving: int | None = None
    validation_step: int | None = None
    accuracy: float | None = None


_Handler = Callable[["LogParser", _Block, re.Match[str]], Iterator[Record]]
# By a line's first character, so that a line of no interest costs one look-up.
_HANDLERS: dict[str, list[tuple[re.Pattern[str], _Handler]]] = {}


def _on(*patterns: str) -> Callable[[_Handler], _Handler]:
    """Call a handler for lines that one of the patterns, whose first characters are literal, matches as a whole."""

    def register(handler: _Handler) -> _Handler:
        for pattern in patterns:
            _HANDLERS.setdefault(pattern[0], []).append((re.compile(pattern), handler))
        return handler

    return register


_PROGRESS_EVENTS = frozenset({"step", "checkpoint", "done"})
_START_EVENTS = frozenset({"started", "resumed"})


class LogParser:
    """Turns a log, in chunks of any size, into records."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._blocks: dict[str, _Block] = {}
        self._line = 0
        self._errors: set[str] = set()
        self._resumed_from: int | None = None

    @property
    def line(self) -> int:
        """Lines read so far."""
        return self._line

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """Read a chunk; return the records that it completes."""
        for text in self._lines.feed(chunk):
            self._line += 1
            if "\r" not in text:
                yield from self._read(text)
                continue
            # A progress bar redraws itself; what comes after it on the same line counts too.
            for part in filter(None, text.split("\r")):
                yield from self._read(part)

    def close(self) -> Iterator[Record]:
        """End the log; return what was still open.

        A last line without its end is dropped unless it is a whole event: half a number is a wrong number.
        """
        tail = self._lines.close()
        if tail.startswith(EVENT_PREFIX):
            self._line += 1
            yield from self._read(tail)
        for block in self._blocks.values():
            yield from self._finish_step(block)

    def _read(self, text: str) -> Iterator[Record]:
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        source = ""
        if text.startswith("(") and (match := _SOURCE.match(text)):
            source, text = match["source"], _REPEATED.sub("", text[match.end() :])
        text = text.strip()
        if not text:
            block = self._blocks.get(source)
            if block is not None and block.in_timing:
                yield from self._finish_step(block)
            return
        if text.startswith(EVENT_PREFIX):
            yield self._event(text.removeprefix(EVENT_PREFIX))
            return
        for pattern, handler in _HANDLERS.get(text[0], ()):
            if match := pattern.fullmatch(text):
                yield from handler(self, self._block(source), match)
                return
        # A RayTaskError only wraps what the worker raised, which follows on a line of its own.
        text = text[:_MAX_TEXT]
        if ("Error" in text or "Exception" in text) and "RayTaskError" not in text and _ERROR.fullmatch(text):
            yield from self._error(text)

    def _block(self, source: str) -> _Block:
        if source not in self._blocks:
            if len(self._blocks) == _MAX_SOURCES:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[source] = _Block()
        return self._blocks[source]

    def _event(self, text: str) -> Record:
        record = read_event(text, line=self._line)
        if isinstance(record, UnreadableEvent):
            return record
        if record.event in _PROGRESS_EVENTS:
            self._errors.clear()
        elif record.event in _START_EVENTS:
            self._resumed_from = record.step
        return record

    def _error(self, text: str) -> Iterator[Record]:
        if text not in self._errors and len(self._errors) < _MAX_ERRORS_PER_STEP:
            self._errors.add(text)
            yield ErrorSeen(line=self._line, failure=classify(text), text=text)

    def _finish_step(self, block: _Block) -> Iterator[Record]:
        """Close the open results of a step, if there are any."""
        if not block.in_timing:
            return
        results, block.results = block.results, {}
        block.in_results = block.in_timing = False
        if block.step is None:
            return
        self._errors.clear()
        yield StepFinished(
            line=self._line,
            step=block.step,
            reward=results.get("reward"),
            loss=results.get("loss"),
            step_time_s=results.get("step_time_s"),
            checkpoint_blocking_s=results.get("checkpoint_blocking_s"),
        )

    @_on(rf"=+ Epoch ({_COUNT})/{_COUNT} =+")
    def _on_epoch(self, block: _Block, _: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        block.base += block.step_in_epoch
        block.step_in_epoch = 0

    @_on(rf"=+ Step ({_COUNT})/({_COUNT}) =+")
    def _on_step(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        step_in_epoch = int(match[1])
        if block.step is None and self._resumed_from is not None:
            # The trainer counts within the epoch that it resumed in; only the supervisor says where that is in the run.
            block.base = max(0, self._resumed_from + 1 - step_in_epoch)
            self._resumed_from = None
        step = block.base + step_in_epoch
        if step == block.step and not block.results and block.step_in_epoch == step_in_epoch:
            return  # dynamic sampling prints a step's banner once for each batch that it generates
        block.step, block.step_in_epoch, block.results = step, step_in_epoch, {}
        yield StepStarted(line=self._line, step=step, step_in_epoch=step_in_epoch, steps_in_epoch=int(match[2]))

    @_on(r"SETUP COMPLETE")
    def _on_setup(self, block: _Block, _: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        self._blocks.clear()
        yield SetupComplete(line=self._line)

    @_on(r"📊 Using checkpoint directory: (.{1,4096})")
    def _on_checkpoint_directory(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        yield CheckpointDirectory(line=self._line, path=match[1])

    @_on(r"📊 Training Results:")
    def _on_results(self, block: _Block, _: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        block.in_results = True

    @_on(rf"• Loss: ({_FLOAT})")
    def _on_loss(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        if block.in_results:
            block.results["loss"] = float(match[1])
        yield from ()

    @_on(rf"• Avg (?:Total )?Reward: ({_FLOAT})")
    def _on_reward(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        if block.in_results:
            block.results["reward"] = float(match[1])
        yield from ()

    @_on(rf"• Total step time: ({_FLOAT})s")
    def _on_step_time(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        if block.in_results:
            block.in_timing = True
            block.results["step_time_s"] = float(match[1])
        yield from ()

    @_on(rf"• checkpointing: ({_FLOAT})s \({_FLOAT}%\)")
    def _on_checkpoint_time(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        if block.in_timing:
            block.results["checkpoint_blocking_s"] = float(match[1])
        yield from self._saved(block)

    @_on(rf"Saving checkpoint for step ({_COUNT})\.\.\.")
    def _on_saving(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        step = int(match[1])
        if block.step is not None:
            block.base += step - block.step
        block.step = block.saving = step
        yield CheckpointSaving(line=self._line, step=step)

    def _saved(self, block: _Block) -> Iterator[Record]:
        if block.saving is not None:
            step, block.saving = block.saving, None
            yield CheckpointSaved(line=self._line, step=step)

    @_on(rf"Removing checkpoint .{{0,4096}}\bstep_({_COUNT}) due to being outside top-.*")
    def _on_removed(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        # NeMo-RL prunes after it has renamed the new checkpoint.
        yield from self._saved(block)
        yield CheckpointRemoved(line=self._line, step=int(match[1]))

    @_on(r"Failed to save checkpoint to (.{0,4096}?): (.*)")
    def _on_save_failed(self, _: _Block, match: re.Match[str]) -> Iterator[Record]:
        step = re.search(rf"\btmp_step_({_COUNT})\b", match[1])
        yield SaveFailed(line=self._line, step=int(step[1]) if step else None, reason=match[2][:_MAX_TEXT])
        yield from self._error(f"Failed to save checkpoint: {match[2]}"[:_MAX_TEXT])

    @_on(rf"▶ Starting validation at step ({_COUNT})\.\.\.")
    def _on_validation(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        block.validation_step = int(match[1])
        yield from ()

    @_on(rf"• Accuracy: ({_FLOAT})")
    def _on_accuracy(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        block.accuracy = float(match[1])
        yield from ()

    @_on(rf"• Total validation time: ({_FLOAT})s")
    def _on_validation_time(self, block: _Block, match: re.Match[str]) -> Iterator[Record]:
        step, accuracy = block.validation_step, block.accuracy
        block.validation_step = block.accuracy = None
        if accuracy is not None:
            yield Validation(line=self._line, step=step, accuracy=accuracy, duration_s=float(match[1]))

    @_on(r"Max number of steps has been reached, stopping training early")
    def _on_max_steps(self, block: _Block, _: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        yield MaxSteps(line=self._line)

    @_on(r"Timeout has been reached, stopping training early")
    def _on_timeout(self, block: _Block, _: re.Match[str]) -> Iterator[Record]:
        yield from self._finish_step(block)
        yield TimeoutReached(line=self._line)

    @_on(
        rf"Not enough [CG]PUs available\. Requested {_COUNT} .*",
        rf"Retrying placement group creation\.\.\. {_COUNT}/{_COUNT}\. .*",
        r"⏳ Waiting for replay buffer .*",
        rf"Wait iteration {_COUNT}: buffer_filled_ratio=.*",
    )
    def _on_waiting(self, _: _Block, match: re.Match[str]) -> Iterator[Record]:
        yield Waiting(line=self._line, reason=match[0][:_MAX_TEXT])
