"""The dashboard of a twin without Ray, asked by the client that talks to real ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.dashboard import Dashboard
from jobs.errors import DashboardRefused, JobNotFound
from twin.kubernetes.simulated_dashboard import SimulatedDashboard


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    served = SimulatedDashboard()
    yield Dashboard(f"http://127.0.0.1:{served.port}")
    served.close()


def submit(dashboard: Dashboard, id_: str, payload: Path) -> None:
    dashboard.submit(submission_id=id_, entrypoint="train", working_dir=payload, metadata={"identity": id_})


def test_a_submitted_job_runs_until_it_is_stopped(dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print()")
    assert dashboard.list_jobs() == []
    submit(dashboard, "a", tmp_path)
    (job,) = dashboard.list_jobs()
    assert (job.submission_id, job.status, job.metadata) == ("a", "RUNNING", {"identity": "a"})
    assert dashboard.stop("a")
    assert dashboard.get_job("a").status == "STOPPED"
    assert not dashboard.stop("a")


def test_an_id_is_never_given_up_again(dashboard: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print()")
    submit(dashboard, "a", tmp_path)
    with pytest.raises(DashboardRefused, match="already exists"):
        submit(dashboard, "a", tmp_path)


def test_an_unknown_job_is_not_found(dashboard: Dashboard) -> None:
    with pytest.raises(JobNotFound):
        dashboard.stop("a")
    with pytest.raises(JobNotFound):
        dashboard.get_job("a")


def test_what_only_ray_can_answer_is_refused_with_the_reason(dashboard: Dashboard) -> None:
    with pytest.raises(DashboardRefused, match="simulated: it accepts"):
        dashboard.logs("a")
    with pytest.raises(DashboardRefused, match="simulated: it accepts"):
        dashboard.nodes()
