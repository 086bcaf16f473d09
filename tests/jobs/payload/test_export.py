"""A checkpoint arrives whole, or it is said that it has not."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.checkpoint_scan import scan
from jobs.payload import cloud_storage, export
from jobs.payload.export import main, parse_url
from tests.jobs.payload.google import BUCKET, FailingStorage, StillClock, serving

SHARDS = {f"policy/weights/shard_{number}": bytes([number]) * (300_000 + number) for number in range(6)}
FILES = {
    **SHARDS,
    "training_info.json": b"{}",
    "config.yaml": b"policy:\n  model_name: Qwen/Qwen2.5-72B\n",
    "empty": b"",
}


class Run:
    """A run's directory, a bucket, and the command that copies from one to the other."""

    def __init__(self, directory: Path, service: FailingStorage, capsys: pytest.CaptureFixture[str]) -> None:
        self.run_dir = directory / "lustre"
        self.bucket = directory / "buckets" / BUCKET
        self.service = service
        self._capsys = capsys

    def save(self, name: str, files: dict[str, bytes] = FILES) -> Path:
        directory = self.run_dir / "checkpoints" / name
        for file, data in files.items():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_bytes(data)
        return directory

    def export(self, *, step: int = 4, to: str = "gs://weights/runs/grpo", code: int = 0) -> str:
        words = ["--checkpoint-dir", str(self.run_dir / "checkpoints"), "--run-dir", str(self.run_dir)]
        words += ["--step", str(step), "--to", to, "--namespace", "ray"]
        self.service.stored.clear()
        done = main(words, clock=StillClock())
        output = self._capsys.readouterr().out
        assert done == code, output
        return output

    def copied(self, prefix: str = "runs/grpo/step_4") -> dict[str, bytes]:
        root = self.bucket / prefix
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    @property
    def record(self) -> Path:
        return self.run_dir / "supervisor" / "exported.json"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    monkeypatch.setattr(cloud_storage, "CHUNK_BYTES", 256 * 1024)
    monkeypatch.setattr(export, "CREDENTIALS_DIR", tmp_path)
    with serving(tmp_path / "buckets") as (service, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Run(tmp_path, service, capsys)


def test_every_file_arrives_and_then_the_copy_is_called_complete(run: Run) -> None:
    run.save("step_4")

    said = run.export()

    size = sum(map(len, FILES.values()))
    summary = {"step": 4, "model": "Qwen/Qwen2.5-72B", "bytes": size, "files": len(FILES)}
    copied = run.copied()
    assert json.loads(copied.pop("_COMPLETE.json")) == summary
    assert copied == FILES
    assert run.service.stored[-1] == "runs/grpo/step_4/_COMPLETE.json"
    record = json.loads(run.record.read_text())
    assert (record["step"], record["to"]) == (4, "gs://weights/runs/grpo")
    assert scan(str(run.run_dir / "checkpoints"), str(run.run_dir))["exported_step"] == 4
    assert "9 of 9 files are there; 1.8 MB sent" in said


def test_a_bucket_without_a_prefix_is_enough(run: Run) -> None:
    run.save("step_4")
    run.export(to="gs://weights")
    assert run.copied("step_4").keys() == {*FILES, "_COMPLETE.json"}


def test_the_same_command_goes_on_with_what_is_not_there_yet(run: Run) -> None:
    run.save("step_4")
    run.export()
    (run.bucket / "runs/grpo/step_4/_COMPLETE.json").unlink()
    (run.bucket / "runs/grpo/step_4/policy/weights/shard_0").unlink()
    (run.bucket / "runs/grpo/step_4/policy/weights/shard_1").write_bytes(
        b"\xff" * len(SHARDS["policy/weights/shard_1"])
    )

    run.export()

    assert sorted(run.service.stored) == [
        f"runs/grpo/step_4/{name}" for name in ("_COMPLETE.json", "policy/weights/shard_0", "policy/weights/shard_1")
    ]
    assert {name: data for name, data in run.copied().items() if name != "_COMPLETE.json"} == FILES


def test_a_copy_that_is_complete_is_looked_at_and_not_sent_again(run: Run) -> None:
    run.save("step_4")
    run.export()
    assert "9 of 9 files are there; 0.0 MB sent" in run.export()
    assert run.service.stored == []


def test_a_connection_that_drops_costs_no_byte(run: Run) -> None:
    run.save("step_4")
    run.service.lost_after = 100_000
    run.export()
    assert {name: data for name, data in run.copied().items() if name != "_COMPLETE.json"} == FILES


def test_a_complete_copy_of_other_weights_is_not_touched(run: Run) -> None:
    run.save("step_4")
    run.export()
    before = run.copied()
    run.record.unlink()
    run.save("step_4", {"policy/weights/shard_3": b"\x09" * len(SHARDS["policy/weights/shard_3"])})

    assert "holds another complete checkpoint (policy/weights/shard_3 differs)" in run.export(code=1)
    assert run.copied() == before
    assert not run.record.exists()


def test_objects_of_something_else_are_not_mixed_with_the_checkpoint(run: Run) -> None:
    run.save("step_4")
    (run.bucket / "runs/grpo/step_4").mkdir(parents=True)
    (run.bucket / "runs/grpo/step_4/notes").write_text("mine")

    assert "holds 1 objects that are not of this checkpoint (notes)" in run.export(code=1)
    assert run.copied() == {"notes": b"mine"}


def test_an_object_that_was_stored_wrong_fails_by_name(run: Run) -> None:
    run.save("step_4")
    run.service.spoiled = "runs/grpo/step_4/config.yaml"

    assert "gs://weights/runs/grpo/step_4/config.yaml is not what was sent" in run.export(code=1)
    assert "_COMPLETE.json" not in run.copied()
    assert not run.record.exists()


def test_an_object_that_changes_after_its_upload_fails_by_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save("step_4")
    listed = run.service.list_objects

    def spoil_then_list(bucket: str, prefix: str, page: str) -> dict[str, object]:
        if (run.bucket / "runs/grpo/step_4/config.yaml").exists():
            (run.bucket / "runs/grpo/step_4/config.yaml").write_bytes(b"theirs")
        return listed(bucket, prefix, page)

    monkeypatch.setattr(run.service, "list_objects", spoil_then_list)

    said = run.export(code=1)

    assert "step_4/config.yaml is" in said
    assert "something else writes there" in said
    assert "_COMPLETE.json" not in run.copied()


def test_a_checkpoint_that_is_pruned_while_it_is_copied_fails_by_name(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run.save("step_4")
    insert = run.service.begin_upload

    def prune(bucket: str, name: str, size: int) -> str:
        (directory / "config.yaml").unlink(missing_ok=True)  # the small files come last
        return insert(bucket, name, size)

    monkeypatch.setattr(run.service, "begin_upload", prune)

    said = run.export(code=1)

    assert f"{directory} was pruned or written anew while it was copied (checkpointing.keep_top_k)" in said
    assert "python -m jobs stop" in said
    assert "_COMPLETE.json" not in run.copied()


def test_a_file_that_is_written_while_it_is_copied_is_no_copy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = run.save("step_4")
    insert = run.service.insert

    def write(bucket: str, name: str, data: bytes) -> dict[str, object]:
        if name.endswith("config.yaml"):
            (directory / "config.yaml").write_bytes(b"another, of another size")
        return insert(bucket, name, data)

    monkeypatch.setattr(run.service, "insert", write)
    assert "written anew while it was copied" in run.export(code=1)


@pytest.mark.parametrize(
    ("names", "kind"), [(["tmp_step_4"], "is not complete"), (["step_4"], "is not complete"), ([], "does not exist")]
)
def test_a_step_without_a_complete_checkpoint_is_refused_with_those_that_there_are(
    run: Run, names: list[str], kind: str
) -> None:
    run.save("step_2")
    run.save("step_6")
    for name in names:
        run.save(name, SHARDS)

    said = run.export(code=2)

    assert f"step_4 {kind}, so nothing was copied. Complete checkpoints: step_2, step_6" in said
    assert run.service.stored == []


def test_a_link_is_refused_as_no_bucket_can_hold_it(run: Run) -> None:
    (run.save("step_4") / "latest").symlink_to("policy")
    assert "step_4/latest is a link" in run.export(code=1)


def test_a_refusal_names_the_account_whose_token_the_head_has(run: Run, tmp_path: Path) -> None:
    run.save("step_4")
    run.service.denied = True
    assert "Kubernetes service account ray/default" in run.export(code=1)

    claims = base64.urlsafe_b64encode(json.dumps({"sub": "system:serviceaccount:ray:dev-scaler"}).encode()).decode()
    (tmp_path / "token").write_text(f"head.{claims.rstrip('=')}.signature")
    assert "subject/ns/ray/sa/dev-scaler" in run.export(code=1)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("gs://weights", ("weights", "")),
        ("gs://weights/", ("weights", "")),
        ("gs://a.b-c_d/x/y/", ("a.b-c_d", "x/y")),
    ],
)
def test_a_url_is_read_as_bucket_and_prefix(url: str, parts: tuple[str, str]) -> None:
    assert parse_url(url) == parts


@pytest.mark.parametrize("url", ["", "gs://", "gs:///x", "s3://weights/x", "weights/x", "gs://Weights/x", "gs://-a/x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no gs://BUCKET/PREFIX"):
        parse_url(url)
