"""A Ray dashboard in memory, with the rules of the real one that matter: ids are never free again, jobs start late."""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.dashboard import Job, JobStatus, Node
from jobs.errors import DashboardRefused, DashboardUnreachable, JobNotFound


class FakeDashboard:
    """Jobs by id; a test sets how a submitted job turns out, and whether anybody answers."""

    def __init__(self) -> None:
        self.url = "http://127.0.0.1:1"
        self.jobs: dict[str, Job] = {}
        self.taken: set[str] = set()
        self.texts: dict[str, str] = {}
        self.uploaded: list[list[str]] = []
        self.stopped: list[str] = []
        self.becomes = JobStatus.RUNNING
        self.is_reachable = True

    @contextmanager
    def connect(self, _spec: Any, *, timeout_s: float) -> Iterator["FakeDashboard"]:
        """What `jobs.ray_job.connect` is replaced by."""
        assert timeout_s > 0
        if not self.is_reachable:
            raise DashboardUnreachable("nobody answers")
        yield self

    def put(self, submission_id: str, status: JobStatus, metadata: Mapping[str, str] | None = None) -> None:
        known = self.jobs.get(submission_id)
        start_time = known.start_time_ms if known else len(self.jobs)
        self.jobs[submission_id] = Job(
            submission_id=submission_id, status=status, metadata=dict(metadata or {}), start_time=start_time
        )

    def list_jobs(self) -> list[Job]:
        return list(self.jobs.values())[::-1]

    def get_job(self, submission_id: str) -> Job:
        if submission_id not in self.jobs:
            raise JobNotFound(f"Ray does not know {submission_id}")
        return self.jobs[submission_id]

    def get_final(self, submission_id: str) -> Job | None:
        job = self.get_job(submission_id)
        return job if job.status.is_final else None

    def submit(self, *, submission_id: str, entrypoint: str, working_dir: Path, metadata: Mapping[str, str]) -> None:
        assert entrypoint
        if submission_id in self.taken | self.jobs.keys():
            raise DashboardRefused(f"ValueError: Job with submission_id {submission_id} already exists")
        self.uploaded.append([path.relative_to(working_dir).as_posix() for path in working_dir.rglob("*.*")])
        self.put(submission_id, self.becomes, metadata)

    def stop(self, submission_id: str) -> bool:
        job = self.get_job(submission_id)
        if job.status.is_final:
            return False
        self.stopped.append(submission_id)
        self.jobs[submission_id] = job.model_copy(update={"status": JobStatus.STOPPED})
        return True

    def logs(self, submission_id: str) -> str:
        return self.texts.get(submission_id, "")

    def nodes(self) -> list[Node]:
        return [
            Node(node_id="a", state="ALIVE", resources_total={"GPU": 8.0}),
            Node(node_id="b", state="DEAD", resources_total={}),
        ]

    async def tail(self, submission_id: str) -> AsyncGenerator[str, None]:
        yield self.logs(submission_id)


class FakeSupervisor:
    """What obeys a request by file: it ends every running job, as a planned stop does, unless no checkpoint comes."""

    def __init__(self, dashboard: FakeDashboard) -> None:
        self.dashboard = dashboard
        self.asked: list[Any] = []
        self.saves = True
        self.failure: Exception | None = None

    def exec_in_head(self, *, command: Sequence[str], **_where: Any) -> bytes:
        """What `jobs.head_exec.exec_in_head` is replaced by."""
        if self.failure:
            raise self.failure
        [request] = re.findall(r"'(\{.*?\})'", command[-1])
        self.asked.append(json.loads(request))
        for submission_id, job in self.dashboard.jobs.items():
            if self.saves and not job.status.is_final and "attempt" in job.metadata:
                self.dashboard.put(submission_id, JobStatus.FAILED, job.metadata)
        return b""
