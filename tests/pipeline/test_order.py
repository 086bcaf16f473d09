"""Every explicit `depends_on` is in one table, says what no value says, and does something: without it things break."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.graph import ancestors, declared_order, waits_of_run, waits_of_state
from tests.pipeline.declared_order import DECLARED_ORDER, SITES
from tests.pipeline.twin_session import TURNED_ROUND, TwinSession, twin_session
from tests.program import Run
from twin import environment
from twin.cloud.store import Store
from twin.state import REPOSITORY


@pytest.fixture
def session(tmp_path: Path) -> Iterator[TwinSession]:
    with twin_session(tmp_path, speed="0") as running:
        environment.prepare(running.state)
        yield running


def sites() -> set[tuple[str, str]]:
    """Every `depends_on` in the program's sources: its file, and what is written there."""
    files = [
        REPOSITORY / "__main__.py",
        *(REPOSITORY / "components").rglob("*.py"),
        *(REPOSITORY / "jobs").rglob("*.py"),
    ]
    return {
        (str(file.relative_to(REPOSITORY)), ast.unparse(node.value))
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "depends_on"
    }


def test_every_depends_on_is_in_the_table() -> None:
    assert sites() == SITES.keys()
    assert frozenset().union(*SITES.values()) == DECLARED_ORDER.keys()


def test_the_declared_order_is_what_values_do_not_express_and_no_more(dev_run: Run) -> None:
    assert declared_order(waits_of_run(dev_run)) == DECLARED_ORDER


@pytest.mark.engine
def test_the_engine_has_the_declared_order_in_its_state(dev_twin: TwinSession) -> None:
    dev_twin.bring_up()
    assert declared_order(waits_of_state(dev_twin.deployment())) == DECLARED_ORDER


def test_lustre_and_the_cluster_share_no_ancestor_but_apis_and_network(dev_run: Run) -> None:
    waits = waits_of_run(dev_run)
    shared = ancestors(waits, "lustre-instance") & ancestors(waits, "gke-cluster")
    parts = {name for name in shared if dev_run[name].type.startswith("rlstack:")}
    assert parts == {"services", "network"}
    assert {dev_run[name].parent for name in shared - parts} <= {"services", "network", ""}
    assert {name for name in shared - parts if not dev_run[name].parent} == {"google"}


@pytest.mark.engine
def test_google_refuses_what_comes_too_early_and_is_not_asked_where_data_would_be_lost(
    session: TwinSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(turned_round: str) -> str:
        monkeypatch.setenv("TURNED_ROUND", turned_round)
        return "\n".join(session.run_program("up", program=TURNED_ROUND).errors)

    monkeypatch.setenv("LAST", "lustre")

    assert "Error 403: Compute Engine API has not been used" in up("network services services")
    assert "has no active private services connection" in up("lustre-instance access-connection access-connection")
    assert up("") == ""

    session.edit("lustre", throughput_mbps_per_tib=1000)
    before = Store.open(session.state).generation()
    refused = up("")
    assert "all that lies on Lustre is lost" in refused
    assert "googleapi" not in refused
    assert Store.open(session.state).generation() == before
    # The guard's record is behind the instance now: Google was asked for a new one, and only its name stood in the way.
    assert "Error 409" in up("lustre-instance lustre-guard lustre-guard")
