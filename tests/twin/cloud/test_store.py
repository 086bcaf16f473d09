"""The store under several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twin.cloud.store import ProcessIdentity, Resource, ResourceState, Store, own_identity
from twin.state import REPOSITORY

WRITES = 40
WRITER = f"""
import sys
from pathlib import Path
from twin.cloud.store import Resource, Store
store = Store(Path(sys.argv[1]))
for number in range({WRITES}):
    store.put(Resource(type="t", id=f"{{sys.argv[2]}}-{{number}}", name="n", project="p", properties={{"n": number}}))
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cloud.db")


def _row(id_: str = "a", **changed: object) -> Resource:
    return Resource(**({"type": "t", "id": id_, "name": "n", "project": "p", "properties": {}} | changed))  # type: ignore[arg-type]


def test_two_processes_that_write_at_once_lose_nothing(store: Store) -> None:
    command = [sys.executable, "-c", WRITER, str(store.path)]
    writers = [subprocess.Popen([*command, name], cwd=REPOSITORY) for name in ("one", "two")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert len(store.list("t")) == 2 * WRITES
    assert len({row.generation for row in store.list("t")}) == 2 * WRITES
    assert store.generation() == 2 * WRITES


def test_a_resource_comes_back_as_it_was_put(store: Store) -> None:
    put = store.put(
        _row(properties={"a": [1, 2.5, {"b": None}]}, state=ResourceState.ERROR, hidden={"h": 1}, owner=own_identity())
    )
    assert store.get("t", "a") == put


def test_what_was_put_again_keeps_when_it_was_made(store: Store) -> None:
    first = store.put(_row())
    again = store.put(first)
    assert (again.created_at, again.generation) == (first.created_at, first.generation + 1)


def test_an_insert_takes_no_name_that_lives(store: Store) -> None:
    assert store.insert(_row()) is not None
    assert store.insert(_row(properties={"other": True})) is None
    assert store.list() == [store.get("t", "a")]


def test_faults_and_deletions_are_news_for_agents(store: Store) -> None:
    store.put(_row())
    seen = [store.generation()]
    for change in (lambda: store.set_fault("f"), lambda: store.clear_fault("f"), lambda: store.delete("t", "a")):
        change()
        seen.append(store.generation())
    assert seen == sorted(set(seen))


def test_a_fault_is_taken_once(store: Store) -> None:
    store.set_fault("f", "argument")
    assert store.faults() == {"f": "argument"}
    assert [store.clear_fault("f"), store.clear_fault("f")] == [True, False]


def test_an_agent_never_unsees(store: Store) -> None:
    assert store.observed("c") == 0
    store.observe("c", 7)
    store.observe("c", 3)
    assert store.observed("c") == 7


def test_events_are_read_from_where_one_stopped(store: Store) -> None:
    store.add_event("refused", "net", "first")
    last = store.events_since()[-1].id
    store.add_event("refused", "net", "second")
    assert [event.text for event in store.events_since(last)] == ["second"]


def test_a_pid_that_was_given_again_is_not_the_recorded_process(store: Store) -> None:
    store.record_process("agent", os.getpid())
    (recorded,) = store.processes()
    assert recorded.identity.alive
    assert not ProcessIdentity(pid=os.getpid(), started=recorded.identity.started - 1).alive


def test_a_process_that_ended_is_neither_alive_nor_recorded(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    living = ProcessIdentity.of(child.pid)
    child.communicate()
    assert living is not None
    assert not living.alive
    assert store.record_process("child", child.pid) is None
    assert store.processes() == []
    assert _row(owner=living).abandoned
