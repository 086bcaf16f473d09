"""Stacks that meet trouble in the middle: one more `up` goes on without making anything twice, and each goes down."""

from collections.abc import Iterator

import pytest

from tests.pipeline.declared_order import order_at_destroy
from tests.pipeline.twin_session import CLUSTER, TURNED_ROUND, TwinSession, twin_session
from twin.cloud.faults import STOCKOUT
from twin.cloud.store import ResourceState, ResourceType, Store
from twin.plan import Operation

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    """A stack whose GPU pool has a fixed size, on a cluster that is protected."""
    with twin_session(tmp_path_factory.mktemp("teardown"), speed="0") as running:
        running.edit("gpu_pool", scaling="fixed")
        running.edit("cluster", deletion_protection=True)
        yield running


def rows(session: TwinSession) -> dict[str, float]:
    """When each resource of the simulated project was made."""
    return {f"{row.type} {row.id}": row.created_at for row in Store.open(session.state).list()}


def assert_nothing_is_left(session: TwinSession) -> None:
    assert list(Store.open(session.state).list()) == []
    assert session.processes() == {}
    assert not session.state.lustre(CLUSTER).exists()
    assert not any(resource.get("custom") for resource in session.deployment())


def test_after_a_stockout_one_more_up_ends_green_and_makes_nothing_twice(session: TwinSession) -> None:
    Store.open(session.state).set_fault(STOCKOUT)
    output = session.twin("up", "--without-ray", code=1)
    assert "GCE_STOCKOUT" in output
    assert "Traceback" not in output
    (pool,) = (row for row in Store.open(session.state).list(ResourceType.NODE_POOL) if row.name.endswith("-gpu"))
    assert pool.state is ResourceState.ERROR
    before = rows(session)
    assert not [name for name in before if "RayCluster" in name]

    Store.open(session.state).clear_fault(STOCKOUT)
    plan = session.run_program("up")
    assert plan.errors == ()
    assert [(each.operation, each.name) for each in plan.changes if each.operation is not Operation.CREATE] == [
        (Operation.UPDATE, "gpus-pool")
    ]
    after = rows(session)
    assert {name: after[name] for name in before} == before
    assert session.changes("preview").keys() == {"same"}


def test_a_protected_cluster_is_refused_before_anything_is_deleted(session: TwinSession) -> None:
    before = rows(session)
    output = session.twin("destroy", code=1)
    assert "Nothing was destroyed: cluster.deletion_protection is on" in output
    assert "Traceback" not in output
    assert rows(session) == before
    session.edit("cluster", deletion_protection=False)
    assert [change.name for change in session.run_program("up").changes] == ["gke-cluster", "work"]


def test_a_plain_destroy_deletes_each_before_what_it_stands_on(session: TwinSession) -> None:
    assert session.destroy().out_of_order(order_at_destroy()) == set()
    assert_nothing_is_left(session)


def test_half_a_stack_goes_down_like_a_whole_one(session: TwinSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods come before the firewall for Lustre and before their Secret, so the stack cannot come up."""
    session.edit("ray", head_start_timeout_s=10)
    monkeypatch.setenv("TURNED_ROUND", "ray lustre lustre-port\nray-cluster ray-secrets ray-secrets")
    errors = session.run_program("up", program=TURNED_ROUND).errors
    assert any("timed out waiting for the condition" in error for error in errors), errors
    (event,) = (event for event in Store.open(session.state).events_since() if event.kind == "FailedMount")
    assert 'secret "rlstack-local-tokens" not found' in event.text
    assert "no firewall rule" in event.text
    assert session.destroy().out_of_order(order_at_destroy()) == set()
    assert_nothing_is_left(session)
