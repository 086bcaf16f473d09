"""What a destroy says of a run's work, and when it refuses."""

from typing import Any

import pytest

from jobs import work_guard
from jobs.checkpoints import CheckpointEntry, CheckpointListing
from jobs.errors import HeadExecError, HeadUnreachable, PodsMayRun, ProtectedCluster, UnsavedWorkError
from jobs.run_on_head import DISCARD_VARIABLE
from jobs.work_guard import WorkGuardProvider

MODEL = "Qwen/Qwen2.5-72B-Instruct"


def props(**changes: Any) -> dict[str, Any]:
    return {
        "stack": "dev",
        "job_name": "grpo",
        "run_dir": "/lustre/dev/grpo",
        "checkpoint_dir": "/lustre/dev/grpo/checkpoints",
        "kubeconfig": "{}",
        "namespace": "ray",
        "ray_cluster": "ray",
        "lustre_is_ours": True,
        "protect_unsaved_work": True,
        "__provider": "pickled",
        **changes,
    }


def listing(
    *steps: int, exported_step: int | None = None, is_supervised: bool = False, only_copy: bool = False
) -> CheckpointListing:
    entry = {"state": "complete", "age_s": 1.0, "bytes": 2_000_000, "files": 3, "model": MODEL, "metrics": {}}
    entries = tuple(CheckpointEntry.model_validate({"name": f"step_{step}", "step": step, **entry}) for step in steps)
    if only_copy:
        entries = (CheckpointEntry.model_validate({"name": "old_step_12", "step": 12, **entry, "state": "only copy"}),)
    return CheckpointListing(checkpoints=entries, exported_step=exported_step, is_supervised=is_supervised)


def destroy(
    monkeypatch: pytest.MonkeyPatch, found: CheckpointListing | HeadExecError, **changes: Any
) -> UnsavedWorkError | None:
    def read_work(_run: Any) -> CheckpointListing:
        if isinstance(found, HeadExecError):
            raise found
        return found

    monkeypatch.setattr(work_guard, "read_checkpoints", read_work)
    try:
        WorkGuardProvider().delete("grpo", props(**changes))
    except UnsavedWorkError as refusal:
        return refusal
    return None


def test_lustre_does_not_go_while_pods_of_an_adopted_cluster_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = HeadUnreachable("No way to the head. Check the cluster")

    with pytest.raises(PodsMayRun, match=r"^Nothing was destroyed.*Check the cluster.*DISCARD_UNSAVED_WORK=grpo"):
        destroy(monkeypatch, silent, protect_unsaved_work=False, cluster_is_ours=False)

    destroy(monkeypatch, silent, protect_unsaved_work=False)  # its nodes go before Lustre
    destroy(monkeypatch, HeadExecError("no running head"), protect_unsaved_work=False, cluster_is_ours=False)
    destroy(monkeypatch, silent, protect_unsaved_work=False, cluster_is_ours=False, lustre_is_ours=False)
    monkeypatch.setenv(DISCARD_VARIABLE, "grpo")
    destroy(monkeypatch, silent, protect_unsaved_work=False, cluster_is_ours=False)


def test_the_newest_checkpoint_and_all_bytes_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert destroy(monkeypatch, listing(10, 12), protect_unsaved_work=False) is None

    assert capsys.readouterr().out == (
        f"Grpo's newest checkpoint is step_12 (2.0 MB, {MODEL}); 4.0 MB of checkpoints go with Lustre\n"
    )


@pytest.mark.parametrize(
    "found",
    [
        listing(12),
        listing(10, 12, exported_step=10),
        listing(10, 12, exported_step=14),
        listing(10, 12, exported_step=12, is_supervised=True),
        listing(only_copy=True),
        HeadExecError("no running head"),
    ],
)
def test_protected_work_is_not_destroyed_until_the_job_is_named(
    monkeypatch: pytest.MonkeyPatch, found: CheckpointListing | HeadExecError
) -> None:
    for value in (None, "1", "another"):
        if value:
            monkeypatch.setenv("RLSTACK_DISCARD_UNSAVED_WORK", value)
        refusal = destroy(monkeypatch, found)
        assert refusal is not None
        assert "RLSTACK_DISCARD_UNSAVED_WORK=grpo" in str(refusal)
        assert ("step_12" if isinstance(found, CheckpointListing) else "no running head") in str(refusal)

    monkeypatch.setenv("RLSTACK_DISCARD_UNSAVED_WORK", "grpo")
    assert destroy(monkeypatch, found) is None


def test_a_run_that_is_about_to_save_its_first_checkpoint_is_stopped_before(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = destroy(monkeypatch, listing(is_supervised=True))

    assert "no checkpoint on Lustre; it is under way, and what it still saves goes too. Stop" in str(refusal)


@pytest.mark.parametrize("found", [listing(), listing(10, 12, exported_step=12)])
def test_nothing_unsaved_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch, found: CheckpointListing) -> None:
    assert destroy(monkeypatch, found) is None


def test_a_record_of_an_earlier_version_goes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    later = ("stack", "cluster_is_ours", "cluster_is_protected")
    monkeypatch.setattr(work_guard, "read_checkpoints", lambda _run: listing())

    WorkGuardProvider().delete("grpo", {key: value for key, value in props().items() if key not in later})


def test_work_on_a_lustre_that_stays_is_not_even_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert destroy(monkeypatch, HeadExecError("nobody may look"), lustre_is_ours=False) is None
    assert "stay" in capsys.readouterr().out


def test_a_protected_cluster_is_refused_first_with_the_key_that_lifts_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = r"Nothing was destroyed: cluster\.deletion_protection.* --path rlstack:cluster\.deletion_protection false "
    with pytest.raises(ProtectedCluster, match=told):
        destroy(monkeypatch, listing(12), cluster_is_protected=True, lustre_is_ours=False)
    assert capsys.readouterr().out == ""


def test_no_change_of_config_looks_like_an_end() -> None:
    provider = WorkGuardProvider()

    changed = provider.diff("grpo", props(), props(job_name="other", run_dir="/lustre/x", protect_unsaved_work=False))

    assert changed.changes is True
    assert not changed.replaces
    assert provider.diff("grpo", props(), props()).changes is False
