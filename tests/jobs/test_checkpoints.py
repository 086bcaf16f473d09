"""What lies in a run's directory is listed as it is, by the very source that is sent to the head."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs import checkpoints, run_on_head
from jobs.__main__ import main
from jobs.checkpoint_scan import scan
from jobs.checkpoints import CheckpointListing
from jobs.errors import HeadExecError
from jobs.stack_outputs import StackOutputs
from tests.jobs.test_stack_outputs import OUTPUTS

CONFIG = """\
checkpointing:
  checkpoint_dir: /lustre/c
  higher_is_better: {higher}
  keep_top_k: {keep}
  metric_name: {metric}
policy:
  generation:
    model_name: not/this
  model_name: 'Qwen/Qwen2.5-72B-Instruct'
  tokenizer:
    name: x
"""


def save(
    directory: Path,
    name: str,
    *,
    keep: str = "2",
    metric: str = "null",
    higher: str = "true",
    info: str | None = '{"current_step": 2, "val:accuracy": 0.5}',
) -> None:
    path = directory / name
    (path / "policy/weights").mkdir(parents=True)
    (path / "policy/weights/shard").write_bytes(b"x" * 1000)
    (path / "config.yaml").write_text(CONFIG.format(keep=keep, metric=metric, higher=higher))
    if info is not None:
        (path / "training_info.json").write_text(info)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


@pytest.fixture
def listed(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], CheckpointListing]:
    """List the directory as the command does, with this machine in the head's place."""

    def exec_here(*, command: Sequence[str], timeout_s: float, **_: str) -> bytes:
        return subprocess.run(command, capture_output=True, check=True, timeout=timeout_s, cwd="/").stdout

    job = {**OUTPUTS["job"], "run_dir": str(run_dir), "checkpoint_dir": str(run_dir / "checkpoints")}
    outputs = StackOutputs.model_validate({**OUTPUTS, "job": job})
    monkeypatch.setattr(run_on_head, "exec_in_head", exec_here)
    monkeypatch.setattr(checkpoints, "read_stack_outputs", lambda _: outputs)
    return lambda: checkpoints.read_checkpoints(outputs.on_head)


def test_every_state_is_told_from_the_others(run_dir: Path, listed: Callable[[], CheckpointListing]) -> None:
    lustre = run_dir / "checkpoints"
    for name in ("step_2", "step_10", "tmp_step_12", "old_step_10", "old_step_4"):
        save(lustre, name)
    save(lustre, "step_8", info=None)
    save(run_dir / "set-aside", "tmp_step_6.1")
    (lustre / "step_99").write_text("a file")
    (lustre / "notes").mkdir()

    listing = listed()

    assert {entry.name: entry.state for entry in listing.checkpoints} == {
        "step_2": "complete",
        "old_step_4": "only copy",
        "tmp_step_6.1": "set aside",
        "step_8": "incomplete",
        "old_step_10": "replaced",
        "step_10": "complete",
        "tmp_step_12": "incomplete",
    }
    assert [entry.step for entry in listing.complete] == [2, 10]
    assert {entry.model for entry in listing.checkpoints} == {"Qwen/Qwen2.5-72B-Instruct"}
    newest = listing.complete[-1]
    assert newest.files == 3
    assert newest.bytes == sum(path.stat().st_size for path in (lustre / "step_10").rglob("*") if path.is_file())
    assert newest.metrics == {"current_step": 2, "val:accuracy": 0.5}


@pytest.mark.parametrize(
    ("keep", "metric", "higher", "pruned"),
    [
        ("2", "null", "true", {2, 4}),  # 6 and the next stay
        ("1", "null", "true", {2, 4, 6}),
        ("9", "null", "true", set()),
        ("null", "null", "true", set()),
        ("2", "val:accuracy", "true", {2, 6}),
        ("2", "val:accuracy", "false", {4, 6}),
        ("2", "val:missing", "true", {2, 4}),
    ],
)
def test_next_to_be_pruned_is_what_nemo_rl_ranks_last(
    keep: str, metric: str, higher: str, pruned: set[int], run_dir: Path, listed: Callable[[], CheckpointListing]
) -> None:
    for step, accuracy in ((2, 0.2), (4, 0.9), (6, 0.5)):
        info = json.dumps({"val:accuracy": accuracy})
        save(run_dir / "checkpoints", f"step_{step}", keep=keep, metric=metric, higher=higher, info=info)

    assert listed().pruned_next == pruned


def test_table_and_json_name_the_step_that_training_resumes_from(
    run_dir: Path, listed: Callable[[], CheckpointListing], capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (2, 4, 6):
        save(run_dir / "checkpoints", f"step_{step}", keep="3")

    assert main(["checkpoints", "--stack", "dev"]) == 0
    table = capsys.readouterr().out
    assert main(["checkpoints", "--stack", "dev", "--json"]) == 0
    records: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    (row,) = [line for line in table.splitlines() if "step_6" in line]
    assert "training resumes here" in row
    assert [(record["name"], record["notes"]) for record in records] == [
        ("step_2", ["pruned next"]),
        ("step_4", []),
        ("step_6", ["training resumes here"]),
    ]


@pytest.mark.parametrize(
    ("record", "step"),
    [
        ('{"step": 4, "to": "gs://b", "training_info_sha256": "DIGEST"}', 4),
        ('{"step": 4, "to": "gs://b", "training_info_sha256": "of another run"}', None),
        ('{"step": 6, "to": "gs://b", "training_info_sha256": "DIGEST"}', None),
        ("", None),
        ("[]", None),
        ('{"step": 4}', None),
    ],
)
def test_the_step_that_was_exported_last_is_known_and_shown(
    record: str,
    step: int | None,
    run_dir: Path,
    listed: Callable[[], CheckpointListing],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for saved in (2, 4):
        save(run_dir / "checkpoints", f"step_{saved}", keep="3")
    assert listed().exported_step is None
    (run_dir / "supervisor").mkdir()
    info = (run_dir / "checkpoints/step_4/training_info.json").read_bytes()
    record = record.replace("DIGEST", hashlib.sha256(info).hexdigest())
    (run_dir / "supervisor/exported.json").write_text(record)

    assert listed().exported_step == step
    assert main(["checkpoints", "--stack", "dev"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "exported" in line] == (
        ["step_4"] if step else []
    )


@pytest.mark.parametrize(
    ("text", "age_s", "is_supervised"),
    [
        ('{"released": false}', 10, True),
        ('{"released": false}', 200, False),
        ('{"released": true}', 10, False),
        ("", 10, False),
    ],
)
def test_a_supervisor_that_is_on_the_run_is_seen_by_its_lease(
    run_dir: Path, listed: Callable[[], CheckpointListing], text: str, age_s: float, is_supervised: bool
) -> None:
    (run_dir / "supervisor").mkdir()
    (run_dir / "supervisor/lease-9.json").write_text('{"released": true}')
    lease = run_dir / "supervisor/lease-10.json"
    lease.write_text(text)
    os.utime(lease, (time.time() - age_s,) * 2)

    assert listed().is_supervised is is_supervised


def test_run_without_a_checkpoint_is_no_failure(
    run_dir: Path, listed: Callable[[], CheckpointListing], capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "checkpoints").rmdir()
    assert listed().checkpoints == ()
    assert main(["checkpoints", "--stack", "dev"]) == 0
    assert f"no checkpoint yet in {run_dir}/checkpoints" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[", "policy:", "policy:\n model_name: a: b\n  keep_top_k: 1\n", "\xff: {"])
def test_config_of_another_form_costs_its_keys_alone(text: str, run_dir: Path) -> None:
    save(run_dir / "checkpoints", "step_2")
    (run_dir / "checkpoints/step_2/config.yaml").write_text(text, encoding="utf-8")

    (entry,) = scan(str(run_dir / "checkpoints"), str(run_dir))["checkpoints"]

    assert entry["state"] == "complete"
    assert entry["model"] in {None, "a: b"}


def test_answer_that_cannot_be_read_is_told_with_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_on_head, "exec_in_head", lambda **_: b"sh: 1: python3: not found")
    with pytest.raises(HeadExecError, match="kubectl -n ray exec"):
        checkpoints.read_checkpoints(StackOutputs.model_validate(OUTPUTS).on_head)
