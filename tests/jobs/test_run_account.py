"""The account of a run adds up to its wall time, and loses exactly the steps that were done again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.log_records import SupervisorEvent
from jobs.run_account import Interruption, InterruptionKind, RunAccount, account_for

JOB = "grpo-1-a1"
NEXT_JOB = "grpo-1-a2"


def event(at: float, kind: str, *, job: str = JOB, **fields: Any) -> SupervisorEvent:
    return SupervisorEvent(line=1, event=kind, at=at, fields={**fields, "submission_id": job})


def started(at: float, step: int = 0, *, attempt: int = 1, job: str = JOB) -> SupervisorEvent:
    return event(at, "started", step=step, attempt=attempt, max_steps=6, nodes=2, gpus=16, job=job)


def steps(first_at: float, numbers: range, *, job: str = JOB) -> list[SupervisorEvent]:
    """Steps of 100 s; a save every second step holds training up for 20 s more of each such step."""
    events, at = [], first_at
    for number in numbers:
        took = 120.0 if number % 2 == 0 else 100.0
        at += took if number != numbers[0] else 0
        events.append(event(at, "step", step=number, step_time_s=took, reward=0.5, job=job))
        if number % 2 == 0:
            events.append(event(at + 1, "checkpoint", step=number, bytes=10**12, blocking_s=20.0, job=job))
    return events


# 60 s of waiting, 40 s of set-up, then steps that end at 200, 320, 420, 540, 640, 760.
BEGINNING = [event(0, "waiting", reason="gpus"), event(50, "waiting", reason="settling"), started(60)]


def parts(account: RunAccount) -> dict[str, float]:
    return {
        "training": account.training_s,
        "saving": account.saving_s,
        "lost": account.lost_s,
        "waiting": account.waited_s,
        "lease": account.lease_s,
        "setup": account.setup_s,
        "unsupervised": account.unsupervised_s,
    }


def only(account: RunAccount) -> Interruption:
    (interruption,) = account.interruptions
    return interruption


def test_undisturbed_run_loses_nothing() -> None:
    account = account_for([*BEGINNING, *steps(200, range(1, 7)), event(770, "done", step=6)])

    assert parts(account) == {
        "training": 600, "saving": 60, "lost": 0, "waiting": 60, "lease": 0, "setup": 50, "unsupervised": 0,
    }  # fmt: skip
    assert account.wall_s == 770
    assert account.goodput == pytest.approx(600 / 770)
    assert (account.steps_kept, account.steps_lost, account.interruptions) == (6, 0, [])
    assert (account.outcome, account.starts, account.submissions) == ("done", 1, 1)
    assert account.saves_s == [20, 20, 20]
    assert account.steps_s == [100] * 6


def test_preemption_costs_the_steps_since_the_checkpoint_the_wait_and_the_setup() -> None:
    account = account_for(
        [
            *BEGINNING,
            *steps(200, range(1, 4)),  # the third ends at 420
            event(450, "lost_node", step=3, nodes=["10.0.0.2"]),
            event(451, "waiting", reason="gpus"),
            event(600, "waiting", reason="settling"),
            event(630, "resumed", step=2),
            started(631, 2, attempt=2),
            *steps(781, range(3, 7)),  # 50 s of set-up, then a step of 100 s
            event(1130, "done", step=6),
        ]
    )

    lost = only(account)
    assert (lost.kind, lost.step, lost.steps_lost) == (InterruptionKind.NODE_LOSS, 3, 1)
    assert (lost.lost_s, lost.waited_s, lost.setup_s) == (130, 179, 52)
    assert account.steps_kept == 6
    assert sum(parts(account).values()) == account.wall_s == 1130
    assert account.on_nodes_s == 1130 - 60 - 179


@pytest.mark.parametrize("next_job", [NEXT_JOB, JOB])
def test_lost_head_is_time_that_nobody_can_account_for(next_job: str) -> None:
    account = account_for(
        [
            *BEGINNING,
            *steps(200, range(1, 6)),  # the fifth ends at 640
            event(1640, "scaled", workers=2, job=next_job),
            event(1640, "waiting", reason="gpus", job=next_job),
            event(1700, "resumed", step=4, job=next_job),
            started(1700, 4, attempt=2, job=next_job),
            *steps(1830, range(5, 7), job=next_job),
            event(1960, "done", step=6, job=next_job),
        ]
    )

    lost = only(account)
    assert (lost.kind, lost.steps_lost, lost.lost_s) == (InterruptionKind.SUPERVISOR_LOSS, 1, 100)
    assert (lost.unsupervised_s, lost.waited_s, lost.setup_s) == (1000, 60, 30)
    assert (account.submissions, account.starts, account.steps_kept) == (2, 2, 6)
    assert sum(parts(account).values()) == account.wall_s == 1960


def test_crash_is_retried_at_the_cost_of_a_setup() -> None:
    account = account_for(
        [
            *BEGINNING,
            *steps(200, range(1, 4)),
            event(440, "crashed", step=3, exit_code=1, crashes=1, max_crashes=3),
            event(441, "waiting", reason="settling"),
            event(442, "resumed", step=2),
            started(442, 2, attempt=2),
            *steps(582, range(3, 7)),
            event(930, "done", step=6),
        ]
    )

    crash = only(account)
    assert (crash.kind, crash.steps_lost, crash.lost_s, crash.setup_s) == (InterruptionKind.CRASH, 1, 120, 41)
    assert sum(parts(account).values()) == account.wall_s == 930


def test_crash_before_the_first_step_loses_setup_and_no_step() -> None:
    account = account_for([*BEGINNING, event(160, "crashed", step=0), event(161, "failed", step=0, cause="no")])

    assert (only(account).kind, only(account).lost_s, account.steps_lost) == (InterruptionKind.CRASH, 0, 0)
    assert parts(account)["setup"] == 101
    assert account.outcome == "failed"


def test_planned_stop_after_a_checkpoint_loses_the_moment_until_it_was_seen() -> None:
    account = account_for(
        [
            *BEGINNING,
            *steps(200, range(1, 5)),  # the fourth ends at 540
            event(542, "stopped", step=4, reason="control", kept={"4": 10**12}),
            event(4142, "waiting", reason="gpus", job=NEXT_JOB),
            event(4152, "resumed", step=4, job=NEXT_JOB),
            started(4152, 4, attempt=2, job=NEXT_JOB),
            *steps(4302, range(5, 7), job=NEXT_JOB),
            event(4432, "done", step=6, job=NEXT_JOB),
        ]
    )

    stop = only(account)
    assert (stop.kind, stop.reason, stop.steps_lost, stop.lost_s) == (InterruptionKind.STOP, "control", 0, 2)
    assert (stop.unsupervised_s, stop.waited_s, stop.setup_s) == (3600, 10, 50)
    assert account.steps_kept == 6
    assert sum(parts(account).values()) == account.wall_s == 4432


def test_stall_that_turns_out_to_be_a_lost_node_is_one_interruption() -> None:
    stalled = [*BEGINNING, *steps(200, range(1, 3)), event(400, "stalled", step=2, phase="node_loss")]
    assert only(account_for(stalled)).kind is InterruptionKind.STALL
    assert only(account_for([*stalled, event(401, "lost_node", step=2)])).kind is InterruptionKind.NODE_LOSS
    assert only(account_for([*stalled, event(401, "crashed", step=2)])).kind is InterruptionKind.STALL


def test_checkpoint_that_nobody_reported_gives_its_steps_back() -> None:
    cut = [*BEGINNING, *steps(200, range(1, 4)), event(440, "lost_node", step=3)]
    assert account_for(cut).steps_lost == 1
    account = account_for([*cut, event(441, "resumed", step=3)])
    assert (account.steps_lost, account.steps_kept, only(account).lost_s) == (0, 3, 20)


def test_older_checkpoint_than_the_newest_reported_costs_its_steps_too() -> None:
    cut = [*BEGINNING, *steps(200, range(1, 4)), event(440, "lost_node", step=3), event(441, "resumed", step=0)]
    account = account_for(cut)
    assert (account.steps_lost, account.steps_kept, account.saving_s) == (3, 0, 0)
    assert sum(parts(account).values()) == account.wall_s


def test_a_run_that_goes_on_counts_the_step_under_way_as_kept() -> None:
    account = account_for([*BEGINNING, *steps(200, range(1, 3))])
    assert account.outcome is None
    assert parts(account)["training"] == 201  # two steps, and a second of the third
    assert sum(parts(account).values()) == account.wall_s


def test_without_events_there_is_no_goodput() -> None:
    assert account_for([]).goodput is None


KINDS = ["waiting", "resumed", "started", "step", "checkpoint", "lost_node", "crashed", "stalled", "stopped", "done"]
EVENTS = st.builds(
    event,
    st.floats(min_value=0, max_value=1e6),
    st.sampled_from([*KINDS, "failed", "scaled", "teleported"]),
    job=st.sampled_from([JOB, NEXT_JOB]),
    step=st.one_of(st.none(), st.integers(min_value=0, max_value=9)),
    reason=st.sampled_from(["gpus", "lease", "prefetch", "control", 7, None]),
    step_time_s=st.one_of(st.none(), st.floats(min_value=0, max_value=1e4), st.just("x")),
    blocking_s=st.one_of(st.none(), st.floats(min_value=0, max_value=1e4), st.just("x")),
)


@given(st.lists(EVENTS, max_size=40))
def test_parts_add_up_to_the_wall_time_whatever_the_events(events: list[SupervisorEvent]) -> None:
    account = account_for(events)
    assert sum(parts(account).values()) == pytest.approx(account.wall_s, abs=1e-3)
    assert min(parts(account)[part] for part in ("lost", "waiting", "lease", "setup", "unsupervised")) >= -1e-3
    assert account.steps_lost >= 0
