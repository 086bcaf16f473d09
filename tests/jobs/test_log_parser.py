"""Whatever a log holds, the records say what happened: no more, no less, and never with an error."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.log_parser import MAX_LINE_BYTES, LogParser, classify
from jobs.log_records import (
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
    SupervisorEvent,
    TimeoutReached,
    UnreadableEvent,
    Validation,
    Waiting,
    to_json,
)

Kind = TypeVar("Kind", bound=Record)

DATA = Path(__file__).with_name("data")
STEP = "\n========================= Step 1/9 =========================\n"
RESULTS = "\n📊 Training Results:\n  • Loss: 0.5000\n  • Avg Reward: 0.2500\n\n⏱️  Timing:\n  • Total step time: 9.00s\n"
SETUP = "=" * 60 + "\n" + " " * 18 + "SETUP COMPLETE\n" + "=" * 60 + "\n"


def read(log: bytes | str, chunk_bytes: int = 1 << 20) -> list[Record]:
    content = log.encode() if isinstance(log, str) else log
    parser = LogParser()
    records = [
        record
        for start in range(0, len(content), chunk_bytes)
        for record in parser.feed(content[start : start + chunk_bytes])
    ]
    return [*records, *parser.close()]


def lines_of(log: bytes, chunk_bytes: int = 1 << 20) -> list[str]:
    """Records as JSON, where a loss that is no number equals itself."""
    return [to_json(record) for record in read(log, chunk_bytes)]


def of(kind: type[Kind], log: bytes | str) -> list[Kind]:
    return [record for record in read(log) if isinstance(record, kind)]


def epoch(number: int, steps: int = 2) -> Iterator[str]:
    yield f"========================= Epoch {number}/3 =========================\n"
    for step in range(1, steps + 1):
        yield f"========================= Step {step}/{steps} =========================\n{RESULTS}\n"


def test_synchronous_megatron_run_through_a_lost_node() -> None:
    log = (DATA / "sync_megatron_v0.4.0.log").read_bytes()
    finished = of(StepFinished, log)
    assert [(step.step, step.reward, step.loss, step.step_time_s, step.checkpoint_blocking_s) for step in finished] == [
        (1, 0.25, 0.0101, 201.0, None),
        (2, 0.2813, 0.0093, 202.0, 118.4),
        (3, 0.3086, -0.0042, 203.0, None),
        (4, 0.3203, 0.0005, 204.0, 118.4),
        (5, 0.3398, 0.0031, 205.0, None),
        (5, 0.3398, 0.003, 205.5, None),
        (6, 0.3555, 0.0012, 330.0, 120.1),
    ]
    assert [record.step for record in of(CheckpointSaving, log)] == [2, 4, 6, 6]
    assert [record.step for record in of(CheckpointSaved, log)] == [2, 4, 6]
    assert [record.step for record in of(CheckpointRemoved, log)] == [2]
    assert [(record.step, record.accuracy, record.duration_s) for record in of(Validation, log)] == [(0, 0.3125, 41.75)]
    assert [record.event for record in of(SupervisorEvent, log)] == [
        *("waiting", "started", "lost_node", "waiting", "resumed", "started", "done")
    ]
    assert len(of(SetupComplete, log)) == 2
    assert len(of(MaxSteps, log)) == 1
    assert [record.reason.split(".")[0] for record in of(Waiting, log)] == [
        "Not enough GPUs available",
        "Retrying placement group creation",
    ]


def test_banner_repeated_for_a_generation_batch_is_one_step() -> None:
    log = (DATA / "sync_megatron_v0.4.0.log").read_bytes()
    assert log.count(b" Step 5/6 ") == 3
    assert [record.step for record in of(StepStarted, log)].count(5) == 2


def test_asynchronous_dtensor_run() -> None:
    log = (DATA / "async_dtensor_v0.7.0.log").read_bytes()
    first, second = of(StepFinished, log)
    assert (first.reward, first.loss, first.checkpoint_blocking_s) == (0.5, 0.02, None)
    assert (second.reward, second.checkpoint_blocking_s) == (0.6, 61.5)
    assert json.loads(to_json(second))["loss"] == "nan"
    assert [record.step for record in of(CheckpointSaved, log)] == [2]
    assert len(of(TimeoutReached, log)) == 1
    assert len(of(Waiting, log)) == 2


def test_failed_save_names_its_step_and_its_cause_once() -> None:
    log = (DATA / "storage_full_v0.5.0.log").read_bytes()
    assert [(record.step, record.reason) for record in of(SaveFailed, log)] == [
        (2, "[Errno 28] No space left on device")
    ]
    assert {error.failure for error in of(ErrorSeen, log)} == {FailureClass.STORAGE_FULL}
    assert not of(CheckpointSaved, log)


def test_save_is_not_believed_before_the_rename() -> None:
    log = f"{STEP}Saving checkpoint for step 1...\n(W pid=1, ip=::1) Saved checkpoint to /c/tmp_step_1/policy/weights\n"
    assert not of(CheckpointSaved, log)
    assert of(CheckpointSaved, log + "Removing checkpoint /c/step_0 due to being outside top-1\n")
    assert of(CheckpointSaved, f"{log}{RESULTS}  • checkpointing: 5.00s (55.6%)\n")


def test_checkpoint_time_of_another_source_proves_nothing() -> None:
    log = f"{STEP}Saving checkpoint for step 1...\n{RESULTS}(W pid=1, ip=10.0.0.1)   • checkpointing: 5.00s (55.6%)\n\n"
    assert not of(CheckpointSaved, log)
    assert [step.checkpoint_blocking_s for step in of(StepFinished, log)] == [None]


def test_interleaved_sources_keep_their_own_results() -> None:
    lines = {
        f"({name} pid={pid}, ip=10.0.0.{pid}) ": f"{STEP}{RESULTS}  • checkpointing: {pid}.00s (1.0%)\n\n".replace(
            "0.2500", f"0.{pid}"
        ).splitlines()
        for name, pid in (("A", 1), ("B", 2))
    }
    log = "".join(
        f"{prefix}{line}\n"
        for pair in zip(*lines.values(), strict=True)
        for prefix, line in zip(lines, pair, strict=True)
    )
    finished = of(StepFinished, log)
    assert [(step.reward, step.checkpoint_blocking_s) for step in finished] == [(0.1, 1.0), (0.2, 2.0)]


def test_noise_between_the_lines_changes_nothing() -> None:
    plain = (DATA / "sync_megatron_v0.4.0.log").read_text(encoding="utf-8").splitlines()
    noisy = [
        text for line in plain for text in (line, "(Worker pid=9, ip=10.0.0.9) \x1b[33mstep loss\x1b[0m", "tqdm\r 3%|")
    ]
    without_lines = [json.loads(to_json(record)) | {"line": 0} for record in read("\n".join(noisy) + "\n")]
    assert without_lines == [json.loads(to_json(record)) | {"line": 0} for record in read("\n".join(plain) + "\n")]


@pytest.mark.parametrize("name", ["sync_megatron_v0.4.0.log", "async_dtensor_v0.7.0.log", "storage_full_v0.5.0.log"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 4096])
def test_chunks_and_line_ends_change_nothing(name: str, chunk_bytes: int) -> None:
    log = (DATA / name).read_bytes()
    assert lines_of(log, chunk_bytes) == lines_of(log)
    assert lines_of(log.replace(b"\n", b"\r\n"), chunk_bytes) == lines_of(log)


def test_steps_are_counted_over_epochs() -> None:
    log = SETUP + "".join([*epoch(1), *epoch(2), *epoch(3)])
    assert [step.step for step in of(StepFinished, log)] == [1, 2, 3, 4, 5, 6]


def test_save_corrects_the_count_of_a_run_resumed_in_a_later_epoch() -> None:
    resumed = "".join(epoch(2))
    log = SETUP + resumed.replace("\n📊", "Saving checkpoint for step 13...\n\n📊", 1)
    assert [step.step for step in of(StepFinished, log)] == [13, 14]


def test_supervisor_tells_where_a_resumed_run_goes_on() -> None:
    event = 'rlstack-event {"v":1,"event":"resumed","at":1,"step":12}\n'
    assert [step.step for step in of(StepStarted, event + SETUP + "".join(epoch(2)))] == [13, 14]


def test_cut_last_line_is_no_number() -> None:
    log = f"{STEP}{RESULTS}"
    assert of(StepFinished, log)[0].step_time_s == 9.0
    assert not of(StepFinished, log.removesuffix("s\n"))
    assert not of(CheckpointSaving, "Saving checkpoint for step 1...")


def test_whole_event_counts_without_its_line_end() -> None:
    event = 'rlstack-event {"v":1,"event":"done","at":1.5,"step":6}'
    (record,) = read(event)
    assert isinstance(record, SupervisorEvent)
    assert (record.event, record.at, record.step, record.fields) == ("done", 1.5, 6, {"step": 6})
    assert isinstance(read(event[:-1])[0], UnreadableEvent)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "null",
        '{"v":2,"event":"done","at":1}',
        '{"v":1,"at":1}',
        '{"v":1,"event":"done"}',
        '{"v":1,"event":"done","at":NaN}',
        '{"v":1,"event":"done","at":1e999}',
        '{"v":1,"event":"done","at":' + "9" * 5000 + "}",
        '{"v":1,"event":"done","at":1,"x":' + "[" * 900 + "]" * 900 + "}",
    ],
)
def test_event_of_another_form_is_counted_not_believed(text: str) -> None:
    (record,) = read(f"rlstack-event {text}\n")
    assert isinstance(record, UnreadableEvent)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", FailureClass.GPU_MEMORY),
        ("ray.exceptions.OutOfMemoryError: Task was killed: the node ran low on memory", FailureClass.HOST_MEMORY),
        ("OSError: [Errno 28] No space left on device", FailureClass.STORAGE_FULL),
        ("ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: 1", FailureClass.NODE_LOSS),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly", FailureClass.WORKER_LOSS),
        ("virtual_cluster.ResourceInsufficientError: Maximum number of retries", FailureClass.CAPACITY),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp", FailureClass.COLLECTIVE),
        ("config.OverridesError: Failed to parse Hydra overrides: Key 'x' is not in struct", FailureClass.CONFIG),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", FailureClass.ACCESS),
        ("AssertionError", FailureClass.CRASH),
    ],
)
def test_error_is_classified(text: str, failure: FailureClass) -> None:
    assert classify(text) == failure
    assert [(error.text, error.failure) for error in of(ErrorSeen, text + "\n")] == [(text, failure)]


def test_error_in_the_middle_of_a_sentence_is_none() -> None:
    assert not read("we saw no ValueError: here\n  retry after RuntimeError: x\n")


def test_same_error_is_said_once_until_training_goes_on() -> None:
    error = "RuntimeError: boom\n"
    assert len(of(ErrorSeen, error * 3)) == 1
    assert len(of(ErrorSeen, f"{error}{STEP}{RESULTS}\n{error}")) == 2


def test_flood_of_errors_is_cut() -> None:
    assert len(of(ErrorSeen, "".join(f"RuntimeError: {number}\n" for number in range(1000)))) == 20


def test_rest_of_a_megabyte_line_is_dropped() -> None:
    long = "x" * 3_000_000
    assert len(of(MaxSteps, f"{long}\nMax number of steps has been reached, stopping training early\n")) == 1
    (error,) = of(ErrorSeen, f"RuntimeError: {long}\n")
    assert len(error.text) <= 500
    assert isinstance(read(f'rlstack-event {{"v":1,"event":"done","at":1,"x":"{long}"}}\n')[0], UnreadableEvent)


def test_line_of_exactly_the_bound_is_read() -> None:
    event = 'rlstack-event {"v":1,"event":"done","at":1,"x":"%s"}'
    for extra, kind in ((0, SupervisorEvent), (1, UnreadableEvent)):
        padding = "y" * (MAX_LINE_BYTES - len(event) + 2 + extra)
        assert isinstance(read(event % padding + "\n")[0], kind)


NUMBERS = st.integers(min_value=0, max_value=10**30).map(str)
FIXTURE_LINES = st.sampled_from(
    [line for path in DATA.glob("*.log") for line in path.read_bytes().splitlines(keepends=True)]
)
FRAGMENTS = st.sampled_from(
    [
        *("\n", "\r", "\x1b[36m", "\x1b[", "(W pid=1, ip=::1) ", "(raylet) ", " [repeated 9x across cluster]"),
        *("rlstack-event ", "{", "}", "[", '"v":1', '"event":"done"', '"at":1', ",", ":", "NaN", "1e999", "\\ud800"),
        *("📊", "⏱️", "•", "=" * 25, STEP, RESULTS, SETUP, "Saving checkpoint for step ", "...", "nan", "s (", "%)"),
        *(
            "  • checkpointing: ",
            "  • Loss: ",
            "Failed to save checkpoint to ",
            "tmp_step_",
            ": ",
            "/",
            " Epoch ",
            " Step ",
        ),
        *(
            "Removing checkpoint /c/step_",
            " due to being outside top-",
            "▶ Starting validation at step ",
            "• Accuracy: ",
        ),
        *("• Total validation time: ", "a.B", "Error", "RuntimeError: ", "Not enough GPUs available. Requested "),
    ]
)
LOGS = st.one_of(
    st.binary(max_size=4000),
    st.lists(FIXTURE_LINES, max_size=60).map(b"".join),
    st.lists(st.one_of(FRAGMENTS, NUMBERS, st.text(max_size=5)), max_size=80).map(
        lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
    ),
)


@settings(max_examples=500)
@given(LOGS, st.integers(min_value=1, max_value=64))
@example(b"\xff\xfe\n(" + b"(" * 1000 + b"\n" + b"a." * 5000 + b"Error: x\n", 64)
def test_no_bytes_raise_and_every_record_is_json(log: bytes, chunk_bytes: int) -> None:
    records = read(log, chunk_bytes)
    assert [to_json(record) for record in records] == lines_of(log)
    for record in records:
        line = to_json(record)
        assert line.isascii()
        assert "\n" not in line
        assert json.loads(line)["line"] == record.line <= log.count(b"\n") + 1


def test_state_does_not_grow_over_a_million_lines() -> None:
    step = (DATA / "sync_megatron_v0.4.0.log").read_bytes()
    noise = "".join(
        f"(W{pid} pid={pid}, ip=10.0.0.1)   • Loss: 1.0\nValueError: {pid}\n" for pid in range(500)
    ).encode()
    chunk = noise + step
    parser = LogParser()
    sizes = []
    while parser.line < 1_000_000:
        assert any(isinstance(record, MaxSteps) for record in parser.feed(chunk))
        sizes.append(len(pickle.dumps(vars(parser))))
    assert max(sizes) < sizes[0] + 100
