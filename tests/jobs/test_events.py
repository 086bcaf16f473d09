"""`events` turns a saved log into JSON lines that end with a summary, whatever file it is given."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import events
from jobs.errors import UsageError

DATA = Path(__file__).with_name("data")
ROOT = Path(__file__).parents[2]


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    events.add_parser(parser.add_subparsers())
    args = parser.parse_args(["events", str(path)])
    assert args.run(args) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_line_is_a_record_and_the_last_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    *records, summary = run(DATA / "sync_megatron_v0.4.0.log", capsys)
    assert [record["line"] for record in records] == sorted(record["line"] for record in records)
    assert sum(record["record"] == "step_finished" for record in records) == 7
    assert summary == {
        "record": "summary",
        "line": (DATA / "sync_megatron_v0.4.0.log").read_bytes().count(b"\n"),
        "last_complete_step": 6,
        "usable_checkpoints": [4, 6],
        "interrupted_save": None,
        "attempts": 2,
        "outcome": "done",
        "failure_class": None,
        "root_cause": None,
        "unreadable_events": 0,
    }


def test_file_that_is_no_log_has_an_empty_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise"
    path.write_bytes(bytes(range(256)) * 1000)
    (summary,) = run(path, capsys)
    assert (summary["outcome"], summary["last_complete_step"]) == ("unfinished", None)


@pytest.mark.parametrize("name", ["missing", "."])
def test_file_that_cannot_be_read_is_an_error_of_the_callers(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        run(tmp_path / name, capsys)


def test_standard_input_is_read_too() -> None:
    program = "import argparse, sys; from jobs import events; sys.exit(events.run(argparse.Namespace(file='-')))"
    log = b"Saving checkpoint for step 3...\n"
    done = subprocess.run([sys.executable, "-c", program], input=log, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout.splitlines()[-1])["interrupted_save"] == 3
