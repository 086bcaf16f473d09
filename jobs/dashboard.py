"""Talks to one Ray dashboard over HTTP: typed answers, typed errors, and a deadline on every request.

Ray's own `JobSubmissionClient` does the talking. It lets RAY_ADDRESS override the address it is given (ray#36064),
sends requests without a timeout, honours proxies even for loopback, and reports every failure as RuntimeError;
`_Client` closes these four gaps and changes nothing else.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import aiohttp
import ray
import requests
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from ray.dashboard.modules.dashboard_sdk import SubmissionClient
from ray.job_submission import JobSubmissionClient

from jobs.errors import DashboardError, DashboardRefused, DashboardUnreachable, JobNotFound, PackageTooLarge

MAX_PACKAGE_BYTES = 100 * 1024**2
"""What the dashboard accepts in one request: DASHBOARD_CLIENT_MAX_SIZE in ray/dashboard/http_server_head.py."""

_CONNECT_TIMEOUT_S = 5.0
_HEARTBEAT_S = 20.0  # a dropped connection that sends no end is noticed after one and a half of these
_MAX_REASON_CHARACTERS = 300

# Ray tells of every package that it uploads, which would stand among the engine's lines.
for _name in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
    logging.getLogger(_name).setLevel(logging.WARNING)

Answer = TypeVar("Answer")


class JobStatus(StrEnum):
    """Ray's word on a job; the last three are final."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        """Whether the job will never run again."""
        return self not in {JobStatus.PENDING, JobStatus.RUNNING}


class _FromRay(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class Job(_FromRay):
    """One submitted job.

    Attributes:
        submission_id: its id.
        status: where it is.
        message: Ray's sentence about the status.
        metadata: what was submitted along with it.
        driver_exit_code: exit code of the entrypoint, once there is one.
        start_time_ms: since 1970.
    """

    submission_id: str
    status: JobStatus
    message: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    driver_exit_code: int | None = None
    start_time_ms: int | None = Field(default=None, validation_alias="start_time")


class Node(_FromRay):
    """One Ray node.

    Attributes:
        node_id: Ray's id.
        state: ALIVE or DEAD.
        resources_total: for example `GPU`, in units of one.
    """

    node_id: str
    state: str
    resources_total: Annotated[dict[str, float], BeforeValidator(lambda value: value or {})] = Field(
        default_factory=dict
    )

    @property
    def gpus(self) -> int:
        """GPUs that the node offers while it lives."""
        return int(self.resources_total.get("GPU", 0)) if self.state == "ALIVE" else 0


def _reason(text: str) -> str:
    """Pick the line of an error body that says something: Ray answers with whole tracebacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    return lines[-1 if lines[0].startswith("Traceback") else 0][:_MAX_REASON_CHARACTERS]


class _Client(JobSubmissionClient):  # type: ignore[misc]  # ray is not type-checked here
    """Ray's client without its environment: address and headers are the caller's alone."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        # JobSubmissionClient's own constructor is left out: it replaces the address by RAY_ADDRESS and connects.
        SubmissionClient.__init__(self, address=url, headers={"Authorization": "", **headers})
        self._client_ray_version = ray.__version__
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # neither proxies nor ~/.netrc for a loopback address

    def _do_request(
        self,
        method: str,
        endpoint: str,
        *,
        data: bytes | None = None,
        json_data: dict[str, Any] | None = None,
        **options: Any,
    ) -> requests.Response:
        try:
            return self._session.request(
                method,
                self._address + endpoint,
                data=data,
                json=json_data,
                headers=self._headers,
                timeout=(_CONNECT_TIMEOUT_S, self._timeout_s),
                **options,
            )
        except requests.RequestException as error:
            # requests' own text wraps the cause several times over.
            cause = type(error).__name__
            raise DashboardUnreachable(
                f"Ray dashboard {self._address} did not answer {method} {endpoint} within {self._timeout_s:.0f} s "
                f"({cause}). Check that the head pod is ready: kubectl get pods -l ray.io/node-type=head"
            ) from error

    def _raise_error(self, r: requests.Response) -> NoReturn:
        reason = _reason(r.text)
        if r.status_code == requests.codes.not_found:
            raise JobNotFound(
                f"Ray dashboard {self._address} does not know {r.url}: {reason}. "
                "A head that was replaced has forgotten its jobs: `pulumi up` submits anew"
            )
        if r.status_code == requests.codes.request_entity_too_large or "Maximum request body size" in r.text:
            raise PackageTooLarge(
                f"Ray dashboard {self._address} refused the package: it accepts {MAX_PACKAGE_BYTES} bytes at most. "
                "Remove what does not belong into jobs/payload/"
            )
        raise DashboardRefused(f"Ray dashboard {self._address} answered {r.status_code} to {r.url}: {reason}")


class Dashboard:
    """One Ray dashboard."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 30) -> None:
        """Remember where the dashboard is; nothing is sent yet.

        Args:
            url: for example `http://127.0.0.1:8265`; RAY_ADDRESS and its like are not read.
            headers: sent with every request, for example an authorization.
            timeout_s: seconds for each answer.
        """
        self.url = url
        self._client = _Client(url, headers or {}, timeout_s)

    def list_jobs(self) -> list[Job]:
        """Return all submitted jobs, newest first.

        Raises:
            DashboardUnreachable: no answer.
            DashboardRefused: an answer that is no list of jobs.
        """
        jobs = self._ask(lambda: [Job.model_validate(job) for job in self._client.list_jobs() if job.submission_id])
        return sorted(jobs, key=lambda job: job.start_time_ms or 0, reverse=True)

    def get_job(self, submission_id: str) -> Job:
        """Return one job.

        Raises:
            JobNotFound: the dashboard does not know it, for example since its head was replaced.
            DashboardUnreachable: no answer.
            DashboardRefused: any other answer.
        """
        return self._ask(lambda: Job.model_validate(self._client.get_job_info(submission_id)))

    def get_final(self, submission_id: str) -> Job | None:
        """Return one job if it will never run again; raises as `get_job` does."""
        job = self.get_job(submission_id)
        return job if job.status.is_final else None

    def submit(self, *, submission_id: str, entrypoint: str, working_dir: Path, metadata: Mapping[str, str]) -> None:
        """Upload a directory and start a job in it.

        Args:
            submission_id: a new one; Ray never gives an id up again.
            entrypoint: shell command, run in the uploaded directory on the head.
            working_dir: uploaded whole.
            metadata: stored in the clear with the job.

        Raises:
            PackageTooLarge: the directory has more than MAX_PACKAGE_BYTES.
            DashboardRefused: for example since the id is taken.
            DashboardUnreachable: no answer; the job may have been started all the same.
        """
        size = sum(path.stat().st_size for path in working_dir.rglob("*") if path.is_file())
        if size > MAX_PACKAGE_BYTES:
            raise PackageTooLarge(
                f"The package of Ray job {submission_id} has {size} bytes, and the Ray dashboard accepts "
                f"{MAX_PACKAGE_BYTES}; nothing was submitted. Remove what does not belong into jobs/payload/"
            )
        self._ask(
            lambda: self._client.submit_job(
                submission_id=submission_id,
                entrypoint=entrypoint,
                runtime_env={"working_dir": str(working_dir)},
                metadata=dict(metadata),
            )
        )

    def stop(self, submission_id: str) -> bool:
        """Ask a job to stop, which takes some seconds more; false if it was not running.

        Raises:
            JobNotFound: the dashboard does not know it.
            DashboardUnreachable: no answer.
            DashboardRefused: any other answer.
        """
        return self._ask(lambda: bool(self._client.stop_job(submission_id)))

    def logs(self, submission_id: str) -> str:
        """Return what the job's entrypoint has written so far.

        Raises:
            JobNotFound: the dashboard does not know it.
            DashboardUnreachable: no answer.
            DashboardRefused: any other answer.
        """
        return self._ask(lambda: str(self._client.get_job_logs(submission_id)))

    def nodes(self) -> list[Node]:
        """Return Ray's nodes, dead ones too; a node counts as alive for about 15 s after its death.

        Raises:
            DashboardUnreachable: no answer.
            DashboardRefused: an answer that is no list of nodes.
        """
        return self._ask(lambda: [Node.model_validate(node) for node in self._get("/api/v0/nodes?limit=1000&detail=1")])

    async def tail(self, submission_id: str) -> AsyncGenerator[str, None]:
        """Follow a job's log from its first character, in chunks that may cut a line.

        Ends without an error when the server closes the stream, which it does at the end of a job; a server that
        restarts does the same, so the job's status decides.

        Raises:
            JobNotFound: the dashboard does not know it.
            DashboardUnreachable: no connection, or it dropped.
        """
        url = f"{self.url}/api/jobs/{submission_id}/logs/tail"
        try:
            # trust_env is off by default: no proxies, as for the requests.
            async with (
                aiohttp.ClientSession(headers=self._client._headers) as session,  # noqa: SLF001 - a class of this file
                session.ws_connect(url, heartbeat=_HEARTBEAT_S, max_msg_size=0) as socket,
            ):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        yield message.data
                if socket.close_code != aiohttp.WSCloseCode.OK:
                    raise DashboardUnreachable(
                        f"The log of Ray job {submission_id} broke off (code {socket.close_code}): {url}"
                    )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == requests.codes.not_found:
                raise JobNotFound(f"Ray dashboard {self.url} does not know Ray job {submission_id}") from error
            raise DashboardUnreachable(f"Ray dashboard {self.url} answered {error.status} to {url}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise DashboardUnreachable(
                f"Ray dashboard {self.url} gave no log ({type(error).__name__}): {url}"
            ) from error

    def _get(self, endpoint: str) -> Iterable[Any]:
        response = self._client._do_request("GET", endpoint)  # noqa: SLF001 - a class of this file
        if not response.ok:
            self._client._raise_error(response)  # noqa: SLF001
        # The state API nests its rows: data.result.result.
        rows: Iterable[Any] = response.json()["data"]["result"]["result"]
        return rows

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        try:
            return question()
        except DashboardError:
            raise
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise DashboardRefused(
                f"{self.url} answered in a way that no Ray dashboard does ({type(error).__name__}). "
                "Check that nothing else listens there"
            ) from error
