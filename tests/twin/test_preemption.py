"""A trace of preemptions is read whole before anything is taken; a wrong line is named with what is wanted instead."""

from pathlib import Path

import pytest

from jobs.errors import TwinError, UsageError
from twin import preemption
from twin.preemption import Preemption, read_trace
from twin.state import TwinState


def trace(directory: Path, *lines: str) -> Path:
    file = directory / "trace.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_trace_gives_its_events_in_order(tmp_path: Path) -> None:
    file = trace(tmp_path, *preemption.TRACE_EXAMPLE.splitlines(), "", "4200.5,1,0")
    assert read_trace(file) == [
        Preemption(at_s=600, nodes=1, return_after_s=300),
        Preemption(at_s=4200, nodes=2, return_after_s=None),
        Preemption(at_s=4200.5, nodes=1, return_after_s=0),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0,1,"], "line 1: '0,1,' is not the header"),
        ([], "line 1: '' is not the header"),
        (["at_s,nodes,return_after_s"], "has no line after its header"),
        (["at_s,nodes,return_after_s", "0,1"], "line 2: '0,1' has 2 values and not 3"),
        (["at_s,nodes,return_after_s", "0,1,", "5,0,"], "line 3: nodes '0' is not a whole number of at least 1"),
        (["at_s,nodes,return_after_s", "0,1.5,"], "line 2: nodes '1.5'"),
        (["at_s,nodes,return_after_s", "nan,1,"], "line 2: at_s 'nan' is not a number of seconds of at least 0"),
        (["at_s,nodes,return_after_s", "9,1,", "8,1,"], "line 3: at_s '8' is not a number of seconds of at least 9"),
        (["at_s,nodes,return_after_s", "0,1,-1"], "line 2: return_after_s '-1'"),
        (["at_s,nodes,return_after_s", "0,1,inf"], "line 2: return_after_s 'inf'"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wanted(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read_trace(trace(tmp_path, *lines))
    assert said in str(refusal.value)
    assert "nothing was preempted" in str(refusal.value)
    assert preemption.TRACE_EXAMPLE in str(refusal.value)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere.csv: cannot be read \(.*No such file"):
        read_trace(tmp_path / "nowhere.csv")


def test_without_a_cluster_nothing_is_taken_and_the_remedy_is_said(tmp_path: Path) -> None:
    with pytest.raises(TwinError, match=r"has no cluster, so nothing was done\. Type: python -m twin up"):
        preemption.preempt(TwinState(tmp_path), nodes=1, return_after_s=None)
