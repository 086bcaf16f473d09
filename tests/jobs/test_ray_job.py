"""The provider's methods as plain Python, on a dashboard in memory."""

import base64
from typing import Any

import pytest
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.rpc import UNKNOWN

from jobs import planned_stop, ray_job, run_on_head
from jobs.dashboard import JobStatus
from jobs.errors import DashboardUnreachable, HeadExecError, RayJobError
from jobs.ray_job import RayJobProvider, RayJobSpec, identity_of, stage_payload
from tests.jobs.fakes import FakeDashboard, FakeSupervisor


def props(**changes: Any) -> dict[str, Any]:
    plain = {
        "job_name": "grpo",
        "entrypoint": "python -m jobs.payload.supervisor -- train",
        "run_dir": "/lustre/dev/grpo",
        "checkpoint_dir": "/lustre/dev/grpo/checkpoints",
        "kubeconfig": "{}",
        "namespace": "ray",
        "head_service": "ray-head-svc",
        "ray_cluster": "ray",
        "ray_cluster_uid": "uid-1",
        "start_timeout_s": 600.0,  # as the engine sends every number
        "stop_timeout_s": 60.0,
        "protect_unsaved_work": False,
        "metadata": {},
        "__provider": "pickled",
    }
    return {**plain, **changes}


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> FakeDashboard:
    fake = FakeDashboard()
    monkeypatch.setattr(ray_job, "connect", fake.connect)
    monkeypatch.setattr(planned_stop, "_EVERY_S", 0)
    return fake


@pytest.fixture
def supervisor(dashboard: FakeDashboard, monkeypatch: pytest.MonkeyPatch) -> FakeSupervisor:
    fake = FakeSupervisor(dashboard)
    monkeypatch.setattr(run_on_head, "exec_in_head", fake.exec_in_head)
    return fake


@pytest.fixture
def provider() -> RayJobProvider:
    return RayJobProvider()


def test_a_job_is_submitted_under_an_id_that_tells_name_identity_and_attempt(
    dashboard: FakeDashboard, provider: RayJobProvider
) -> None:
    created = provider.create(props())

    identity = identity_of(RayJobSpec.model_validate(props()))
    assert created.id == f"grpo-{identity[:8]}-a1"
    assert created.outs == {
        **{key: value for key, value in props().items() if key != "__provider"},
        "submission_id": created.id,
        "attempt": 1,
        "identity": identity,
        "status": "RUNNING",
    }
    assert dashboard.jobs[created.id].metadata["ray_cluster_uid"] == "uid-1"


def test_only_the_payload_is_uploaded_and_importable_by_its_own_name(
    dashboard: FakeDashboard, provider: RayJobProvider
) -> None:
    provider.create(props())

    [files] = dashboard.uploaded
    assert "jobs/payload/supervisor.py" in files
    assert all(file.startswith("jobs/payload/") and file.endswith(".py") for file in files)


def test_the_payload_needs_nothing_of_the_project_but_itself() -> None:
    with stage_payload() as directory:
        sources = [path.read_text() for path in directory.rglob("*.py")]
    imported = {
        line.split()[1] for text in sources for line in text.splitlines() if line.startswith(("from ", "import "))
    }
    assert {name for name in imported if name.startswith("jobs")} >= {"jobs.payload.lease"}
    assert not [name for name in imported if name.startswith("jobs") and not name.startswith("jobs.payload")]


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_a_job_that_does_what_is_asked_is_adopted(
    dashboard: FakeDashboard, provider: RayJobProvider, status: JobStatus
) -> None:
    first = provider.create(props())
    dashboard.put(first.id, status, dashboard.jobs[first.id].metadata)
    if status is JobStatus.PENDING:
        with pytest.raises(RayJobError, match="leave PENDING"):
            provider.create(props(start_timeout_s=0))
    else:
        assert provider.create(props()).id == first.id
    assert len(dashboard.jobs) == 1


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.STOPPED])
def test_a_job_that_ended_without_success_is_followed_by_a_fresh_attempt(
    dashboard: FakeDashboard, provider: RayJobProvider, status: JobStatus
) -> None:
    first = provider.create(props())
    dashboard.put(first.id, status, dashboard.jobs[first.id].metadata)

    assert provider.create(props()).id == first.id.removesuffix("1") + "2"


def test_another_job_of_the_same_name_ends_at_a_checkpoint_before_the_new_one_starts(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, provider: RayJobProvider
) -> None:
    old = provider.create(props())
    dashboard.put("unrelated", JobStatus.RUNNING, {"job_name": "other"})

    new = provider.create(props(entrypoint="another"))

    assert supervisor.asked == [{"action": "hand_over", "submission_id": old.id}]
    assert dashboard.jobs[old.id].status == "FAILED"
    assert dashboard.stopped == []
    assert new.outs is not None
    assert new.outs["attempt"] == 2
    assert dashboard.jobs["unrelated"].status == "RUNNING"


def test_a_success_before_other_jobs_is_not_mistaken_for_the_present_one(
    dashboard: FakeDashboard, provider: RayJobProvider
) -> None:
    first = provider.create(props())
    dashboard.put(first.id, JobStatus.SUCCEEDED, dashboard.jobs[first.id].metadata)
    second = provider.create(props(entrypoint="another"))
    dashboard.put(second.id, JobStatus.SUCCEEDED, dashboard.jobs[second.id].metadata)

    assert provider.create(props()).id.endswith("-a3")


def test_an_id_that_ray_still_holds_is_passed_over(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    identity = identity_of(RayJobSpec.model_validate(props()))
    dashboard.taken = {f"grpo-{identity[:8]}-a1", f"grpo-{identity[:8]}-a2"}

    assert provider.create(props()).id.endswith("-a3")


def test_a_job_that_fails_at_once_tells_its_last_lines(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    dashboard.becomes = JobStatus.FAILED
    identity = identity_of(RayJobSpec.model_validate(props()))
    dashboard.texts[f"grpo-{identity[:8]}-a1"] = "\n".join(f"line {number}" for number in range(100))

    with pytest.raises(RayJobError) as caught:
        provider.create(props())

    assert "line 99" in str(caught.value)
    assert "line 60" in str(caught.value)
    assert "line 59" not in str(caught.value)


def created(provider: RayJobProvider, **changes: Any) -> tuple[str, dict[str, Any]]:
    result = provider.create(props(**changes))
    assert result.outs is not None
    return result.id, {**result.outs, "__provider": "pickled"}


def test_read_brings_the_status_and_keeps_every_input(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    id_, state = created(provider)
    dashboard.put(id_, JobStatus.FAILED)

    read = provider.read(id_, state)

    assert (read.id, read.outs) == (id_, {**state, "status": "FAILED"})


def test_read_without_a_connection_changes_nothing_and_says_so(
    dashboard: FakeDashboard, provider: RayJobProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    id_, state = created(provider)
    dashboard.is_reachable = False

    read = provider.read(id_, state)

    assert (read.id, read.outs) == (id_, state)
    assert capsys.readouterr().out.count("warning:") == 1


@pytest.mark.parametrize(("status", "stays"), [("RUNNING", False), ("FAILED", False), ("SUCCEEDED", True)])
def test_read_forgets_a_job_that_vanished_unless_it_is_done(
    dashboard: FakeDashboard, provider: RayJobProvider, status: str, *, stays: bool
) -> None:
    id_, state = created(provider)
    state["status"] = status
    dashboard.jobs.clear()

    read = provider.read(id_, state)

    assert (read.id, read.outs) == ((id_, state) if stays else ("", {}))


def test_what_people_see_of_a_run_is_said_at_its_submission(
    dashboard: FakeDashboard, provider: RayJobProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    entrypoints = []
    real = dashboard.submit

    def submit(**values: Any) -> None:
        entrypoints.append(values["entrypoint"])
        real(**values)

    monkeypatch.setattr(dashboard, "submit", submit)

    provider.create(props(display_override="logger.wandb.name=mine"))

    assert entrypoints == [f"{props()['entrypoint']} logger.wandb.name=mine"]


@pytest.mark.parametrize(
    ("changes", "replaces"),
    [
        ({}, None),
        ({"start_timeout_s": 900.0}, []),
        ({"kubeconfig": '{"a": 1}'}, []),
        ({"display_override": "logger.wandb.name=another"}, []),
        ({"kubeconfig": UNKNOWN}, []),
        ({"entrypoint": "another"}, ["entrypoint"]),
        ({"ray_cluster_uid": "uid-2"}, ["ray_cluster_uid"]),
        ({"ray_cluster_uid": UNKNOWN}, ["ray_cluster_uid"]),
    ],
)
def test_only_what_training_depends_on_replaces_the_job(
    dashboard: FakeDashboard, provider: RayJobProvider, changes: dict[str, Any], replaces: list[str] | None
) -> None:
    id_, state = created(provider)

    diff = provider.diff(id_, state, props(**changes))

    assert diff.changes is (replaces is not None)
    assert diff.replaces == (replaces or [])
    assert diff.delete_before_replace is True


def test_a_run_that_ended_without_success_is_planned_again(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    id_, state = created(provider)

    assert provider.diff(id_, {**state, "status": "STOPPED"}, props()).replaces == ["status"]
    assert provider.diff(id_, {**state, "status": "SUCCEEDED"}, props()).changes is False


def test_a_run_that_is_gone_though_it_should_run_is_planned_again(
    dashboard: FakeDashboard, provider: RayJobProvider
) -> None:
    id_, state = created(provider)
    assert provider.diff(id_, state, props()).changes is False

    dashboard.put(id_, JobStatus.FAILED)
    assert provider.diff(id_, state, props()).replaces == ["status"]

    dashboard.jobs.clear()  # a head without its predecessor's memory
    assert provider.diff(id_, state, props()).replaces == ["status"]


def test_a_run_that_cannot_be_looked_at_is_left_as_it_is(
    dashboard: FakeDashboard, provider: RayJobProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    id_, state = created(provider)
    dashboard.is_reachable = False

    assert provider.diff(id_, state, props()).changes is False
    assert capsys.readouterr().out.startswith(f"warning: whether Ray job {id_} still runs is not known")


def test_update_takes_over_inputs_and_keeps_the_jobs_own(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    id_, state = created(provider)

    updated = provider.update(id_, state, props(start_timeout_s=900.0))

    assert updated.outs == {key: value for key, value in state.items() if key != "__provider"} | {
        "start_timeout_s": 900.0
    }


def test_delete_ends_the_job_at_a_checkpoint(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, provider: RayJobProvider
) -> None:
    id_, state = created(provider)

    provider.delete(id_, state)

    assert len(supervisor.asked) == 1
    assert dashboard.jobs[id_].status == "FAILED"
    assert dashboard.stopped == []


def test_a_job_that_has_not_started_is_stopped_at_once(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, provider: RayJobProvider
) -> None:
    id_, state = created(provider)
    dashboard.put(id_, JobStatus.PENDING)

    provider.delete(id_, state)

    assert (supervisor.asked, dashboard.stopped) == ([], [id_])


TROUBLES: dict[str, dict[str, Any]] = {
    "it reached no checkpoint within job.stop_timeout_s (0 s)": {"saves": False},
    "it could not be asked": {"failure": HeadExecError("no exec here")},
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_cannot_be_saved_goes_unless_it_is_protected(
    dashboard: FakeDashboard,
    supervisor: FakeSupervisor,
    provider: RayJobProvider,
    capsys: pytest.CaptureFixture[str],
    trouble: str,
) -> None:
    id_, state = created(provider, stop_timeout_s=0.0)
    vars(supervisor).update(TROUBLES[trouble])

    provider.delete(id_, state)

    assert dashboard.stopped == [id_]
    assert trouble in capsys.readouterr().out


@pytest.mark.parametrize("trouble", TROUBLES)
def test_protected_work_that_cannot_be_saved_goes_on_until_told_otherwise(
    dashboard: FakeDashboard,
    supervisor: FakeSupervisor,
    provider: RayJobProvider,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
) -> None:
    id_, state = created(provider, stop_timeout_s=0.0, protect_unsaved_work=True)
    vars(supervisor).update(TROUBLES[trouble])
    monkeypatch.setenv("RLSTACK_DISCARD_UNSAVED_WORK", "another job")

    with pytest.raises(RayJobError, match=r"goes on: .*RLSTACK_DISCARD_UNSAVED_WORK") as caught:
        provider.delete(id_, state)

    assert trouble in str(caught.value)
    assert dashboard.jobs[id_].status == "RUNNING"

    monkeypatch.setenv("RLSTACK_DISCARD_UNSAVED_WORK", "grpo")
    provider.delete(id_, state)
    assert dashboard.stopped == [id_]


def test_connections_that_drop_do_not_make_a_stop_of_what_goes_on(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, provider: RayJobProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = provider.create(props())
    supervisor.saves = False
    looks: list[str] = []

    def get_final(submission_id: str) -> Any:
        looks.append(submission_id)
        if len(looks) == 3:
            raise DashboardUnreachable("the credential has expired")
        if len(looks) == 5:
            dashboard.put(submission_id, JobStatus.FAILED, dashboard.jobs[submission_id].metadata)
        return FakeDashboard.get_final(dashboard, submission_id)

    monkeypatch.setattr(dashboard, "get_final", get_final)

    assert created.outs is not None
    provider.delete(created.id, created.outs)

    assert len(looks) == 5
    assert dashboard.stopped == []


def test_protected_work_that_is_not_heard_of_any_more_is_not_taken_for_stopped(
    dashboard: FakeDashboard, supervisor: FakeSupervisor, provider: RayJobProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = provider.create(props(protect_unsaved_work=True))
    supervisor.saves = False
    monkeypatch.setattr(planned_stop, "_PATIENCE_S", 0)

    def get_final(_submission_id: str) -> Any:
        raise DashboardUnreachable("nobody answers")

    monkeypatch.setattr(dashboard, "get_final", get_final)

    assert created.outs is not None
    with pytest.raises(RayJobError, match=r"has not been heard of.*protect_unsaved_work is on"):
        provider.delete(created.id, created.outs)


def test_delete_succeeds_when_job_or_dashboard_is_gone(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    id_, state = created(provider)
    dashboard.jobs.clear()
    provider.delete(id_, state)
    dashboard.is_reachable = False
    provider.delete(id_, state)


def test_create_without_a_connection_fails(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    dashboard.is_reachable = False

    with pytest.raises(DashboardUnreachable):
        provider.create(props())


def test_a_missing_input_is_named(dashboard: FakeDashboard, provider: RayJobProvider) -> None:
    incomplete = props()
    del incomplete["head_service"]

    with pytest.raises(ValueError, match="head_service"):
        provider.create(incomplete)


def test_the_identity_depends_on_nothing_but_what_training_does() -> None:
    identity = identity_of(RayJobSpec.model_validate(props()))

    same = props(kubeconfig="{1}", namespace="x", head_service="y", start_timeout_s=1, metadata={"label": "new"})
    assert identity_of(RayJobSpec.model_validate(same)) == identity
    for key in ("job_name", "entrypoint", "run_dir", "checkpoint_dir"):
        assert identity_of(RayJobSpec.model_validate(props(**{key: "another"}))) != identity


def test_the_provider_is_in_the_state_by_reference(provider: RayJobProvider) -> None:
    pickled = base64.b64decode(serialize_provider(provider))

    assert b"jobs.ray_job" in pickled
    assert len(pickled) < 100
