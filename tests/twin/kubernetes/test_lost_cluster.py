"""A cluster whose data somebody removed by hand counts as deleted, so that the next commands can go on."""

from pathlib import Path

from tests.twin.kubernetes import rows
from twin.cloud.store import ResourceType, Store
from twin.kubernetes import cluster
from twin.state import TwinState


def test_it_goes_with_its_pools_and_the_user_is_told(tmp_path: Path) -> None:
    state = TwinState(tmp_path)
    store = Store.open(state)
    for row in (rows.cluster(), rows.system_pool(), rows.spot_pool()):
        store.put(row)
    cluster.ensure_running(state, "c")
    assert [*store.list(ResourceType.CLUSTER), *store.list(ResourceType.NODE_POOL)] == []
    (event,) = store.events_since()
    assert event.object == "c"
    assert "python -m twin refresh" in event.text
