"""Whether a twin has Ray is settled before its cluster is made, and for as long as it has one."""

from pathlib import Path

import pytest

from tests.twin.kubernetes import rows
from twin.__main__ import _settle_ray, main
from twin.cloud.store import Store
from twin.state import STATE_VARIABLE, TwinState


@pytest.fixture
def state(tmp_path: Path) -> TwinState:
    return TwinState(tmp_path / "state")


def test_a_twin_without_cluster_follows_the_last_word(state: TwinState) -> None:
    _settle_ray(state, without=True)
    assert state.without_ray.exists()
    assert state.root.stat().st_mode & 0o777 == 0o700
    _settle_ray(state, without=False)
    assert not state.without_ray.exists()


def test_a_cluster_keeps_what_it_was_made_with(state: TwinState, capsys: pytest.CaptureFixture[str]) -> None:
    _settle_ray(state, without=True)
    Store.open(state).put(rows.cluster())
    _settle_ray(state, without=False)
    assert state.without_ray.exists()
    assert "has no Ray until it is destroyed" in capsys.readouterr().out


def test_ray_is_not_taken_from_a_cluster_that_has_it(
    state: TwinState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(state.root))
    Store.open(state).put(rows.cluster())
    assert main(["up", "--without-ray"]) == 2
    assert "has a cluster with Ray, so nothing was done" in capsys.readouterr().err
    assert not state.without_ray.exists()
