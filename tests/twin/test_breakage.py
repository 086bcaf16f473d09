"""Each command refuses what it cannot do, says what that means, and leaves the twin as it was."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.errors import TwinError, UsageError
from twin import breakage
from twin.cloud.store import Store
from twin.state import TwinState


@pytest.mark.parametrize(
    "command",
    [
        breakage.crash_head,
        breakage.empty_lustre,
        lambda state: breakage.fill_lustre(state, leave_gib=0),
        lambda state: breakage.drop_connections(state, every_s=None, for_s=None),
    ],
)
def test_without_a_cluster_nothing_is_broken_and_the_remedy_is_said(
    tmp_path: Path, command: Callable[[TwinState], None]
) -> None:
    with pytest.raises(TwinError, match=r"has no cluster, so nothing was done\. Type: python -m twin up"):
        command(TwinState(tmp_path))
    assert Store.open(TwinState(tmp_path)).faults() == {}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (lambda state: breakage.drop_connections(state, every_s=0, for_s=None), "--every 0: nothing was cut"),
        (lambda state: breakage.drop_connections(state, every_s=1, for_s=-1), "--for -1: nothing was cut"),
        (lambda state: breakage.drop_connections(state, every_s=None, for_s=9), "Give --every too"),
        (lambda state: breakage.fill_lustre(state, leave_gib=-1), "--leave-gib -1: .* nothing was filled"),
        (lambda state: breakage.fill_lustre(state, leave_gib=1e6), r"--leave-gib 1e\+06: .* nothing was filled"),
    ],
)
def test_a_number_that_is_none_is_refused_before_anything_is_done(
    tmp_path: Path, command: Callable[[TwinState], None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        command(TwinState(tmp_path))
    assert Store.open(TwinState(tmp_path)).faults() == {}
