"""Leases on a real directory; time is a number that the test gives."""

import json
import os
from pathlib import Path

import pytest

from jobs.payload.lease import Lease, machine, process_start
from jobs.waiting import wait_until

TTL_S = 60
DEAD_PID = 2**22 + 1  # beyond Linux' largest pid


def lease(directory: Path, owner: str) -> Lease:
    return Lease(directory, owner=owner, ttl_s=TTL_S)


def write_claim(directory: Path, **claim: object) -> Path:
    path = directory / "lease-7.json"
    values = {"owner": "an old one", "machine": "elsewhere", "pid": DEAD_PID, "started": "1", **claim}
    path.write_text(json.dumps(values))
    return path


def test_only_one_of_two_takes_it_and_the_other_learns_whose_it_is(tmp_path: Path) -> None:
    first, second = lease(tmp_path, "first"), lease(tmp_path, "second")

    assert first.try_take(0) is None
    assert second.try_take(0) == "first"

    first.release()
    assert second.try_take(1) is None
    second.release()


def test_an_owner_elsewhere_counts_as_dead_only_after_silence_by_the_takers_clock(tmp_path: Path) -> None:
    path = write_claim(tmp_path)
    taker = lease(tmp_path, "taker")

    assert taker.try_take(1000) == "an old one"
    os.utime(path, ns=(1, 1))  # a heartbeat, however wrong its owner's clock is
    assert taker.try_take(1000 + TTL_S + 1) == "an old one"
    assert taker.try_take(1000 + 2 * TTL_S + 1) == "an old one"
    assert taker.try_take(1000 + 2 * TTL_S + 2) is None
    taker.release()


@pytest.mark.parametrize("text", ["", '{"owner": "an', "[1]", '{"unknown": 1}'])
def test_a_claim_that_was_not_written_whole_is_free_after_silence(tmp_path: Path, text: str) -> None:
    (tmp_path / "lease-7.json").write_text(text)
    taker = lease(tmp_path, "taker")

    assert "lease-7.json" in str(taker.try_take(0))
    assert taker.try_take(TTL_S + 1) is None
    taker.release()


def test_an_owner_of_this_machine_that_is_gone_is_followed_at_once(tmp_path: Path) -> None:
    write_claim(tmp_path, machine=machine())
    taker = lease(tmp_path, "taker")

    assert taker.try_take(0) is None
    taker.release()


def test_a_pid_that_another_process_has_now_is_not_the_owner(tmp_path: Path) -> None:
    write_claim(tmp_path, machine=machine(), pid=os.getpid(), started="1")
    taker = lease(tmp_path, "taker")

    assert process_start(os.getpid()) != "1"
    assert taker.try_take(0) is None
    taker.release()


def test_an_owner_that_was_taken_for_dead_knows_it_at_its_next_heartbeat(tmp_path: Path) -> None:
    owner, taker = lease(tmp_path, "owner"), lease(tmp_path, "taker")
    assert owner.try_take(0) is None
    claim = json.loads((tmp_path / "lease-1.json").read_text())
    (tmp_path / "lease-1.json").write_text(json.dumps({**claim, "machine": "elsewhere"}))
    assert taker.try_take(0) == "owner"
    assert taker.try_take(TTL_S + 1) is None
    assert not owner.is_lost

    owner.beat()

    assert owner.is_lost
    assert not taker.is_lost
    owner.release()
    assert not json.loads((tmp_path / "lease-2.json").read_text())["released"]
    taker.release()


def test_an_owner_whose_file_system_does_not_answer_is_lost_and_says_why(tmp_path: Path) -> None:
    owner = Lease(tmp_path / "run", owner="owner", ttl_s=0.5)
    assert owner.try_take(0) is None

    (tmp_path / "run").rename(tmp_path / "away")

    wait_until(lambda: owner.is_lost or None, timeout_s=30, every_s=0.05, doing="the lease to be lost")
    assert owner.problem is not None
    assert "No such file or directory" in owner.problem
    (tmp_path / "away").rename(tmp_path / "run")
    owner.release()


@pytest.mark.parametrize("state", ["taken", "released"])
def test_no_drafts_are_left(tmp_path: Path, state: str) -> None:
    owner = lease(tmp_path, "owner")
    owner.try_take(0)
    owner.record_trainer(os.getpid())
    if state == "released":
        owner.release()

    assert [path.name for path in tmp_path.iterdir()] == ["lease-1.json"]
    owner.release()
