"""The Ray job as a resource of the stack: `up` submits it, last of all, and `destroy` stops it.

A dynamic resource and not a hook: a hook does not run when only the job changes, is not retried when it fails, and has
no outputs. It submits, adopts and stops; it never waits for the end of training, which takes hours and is
`python -m jobs watch`'s to follow. This module's name is part of every stack's state, which refers to `RayJobProvider`
by it: renaming it would keep old stacks from being destroyed.

What makes a job another job (and stops the old one first, so that there are never two trainers): its name, entrypoint
and directories, and the RayCluster that it runs on, through which image and machines enter. The supervisor's own code
is left out on purpose: `up` with a newer version of this project must not restart a run that has trained for days. A
new attempt always uses the newest code, and the job's metadata says which it was.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, UpdateResult
from pydantic import BaseModel, ConfigDict, Field

from jobs.dynamic_provider import DynamicProvider
from jobs.errors import (
    DashboardRefused,
    DashboardUnreachable,
    JobNotFound,
    PortForwardError,
    RayJobError,
    RlstackError,
    WaitTimeout,
)
from jobs.planned_stop import stop_saved
from jobs.run_on_head import RunOnHead, may_discard_work
from jobs.waiting import wait_until

if TYPE_CHECKING:
    from jobs.dashboard import Dashboard, Job

PAYLOAD = Path(__file__).with_name("payload")

_CONNECT_TIMEOUT_S = 120.0
_READ_CONNECT_TIMEOUT_S = 30.0
_DELETE_CONNECT_TIMEOUT_S = 20.0
_EVERY_S = 2.0
_LOG_LINES = 40
_MAX_TAKEN_IDS = 5

# What a change of makes another job of it; with `identity_of`, the whole definition.
_IDENTITY_KEYS = ("job_name", "entrypoint", "run_dir", "checkpoint_dir")
_REPLACE_KEYS = (*_IDENTITY_KEYS, "ray_cluster", "ray_cluster_uid")
_ECHO_KEYS = (
    "kubeconfig",
    "namespace",
    "head_service",
    "start_timeout_s",
    "stop_timeout_s",
    "protect_unsaved_work",
    "display_override",
    "metadata",
)
_RESUBMIT_STATUSES = ("FAILED", "STOPPED")


@dataclass(frozen=True, kw_only=True)
class RayJobArgs:
    """Inputs of `RayJob`.

    Attributes:
        job_name: names the job; its submissions are `<job_name>-<identity, 8 characters>-a<attempt>`.
        entrypoint: shell command that Ray runs on the head, from `jobs.entrypoint.render_entrypoint`.
        run_dir: the run's directory on Lustre.
        checkpoint_dir: where its checkpoints lie.
        kubeconfig: JSON text, with an exec plugin and no token.
        namespace: of the Ray cluster.
        head_service: the service of its head.
        ray_cluster: name of the RayCluster.
        ray_cluster_uid: its uid; a RayCluster made anew has another.
        start_timeout_s: seconds for the submitted job to leave PENDING.
        stop_timeout_s: seconds for a run that must end to reach its next checkpoint.
        protect_unsaved_work: whether a run that reaches none in that time goes on, and the command fails; else it is
            stopped, and the steps since its newest checkpoint are lost.
        display_override: appended to the entrypoint at a submission: what only people see of the run. A change of it
            waits for the next one.
        metadata: stored with the job, in the clear.
    """

    job_name: pulumi.Input[str]
    entrypoint: pulumi.Input[str]
    run_dir: pulumi.Input[str]
    checkpoint_dir: pulumi.Input[str]
    kubeconfig: pulumi.Input[str]
    namespace: pulumi.Input[str]
    head_service: pulumi.Input[str]
    ray_cluster: pulumi.Input[str]
    ray_cluster_uid: pulumi.Input[str]
    start_timeout_s: pulumi.Input[int] = 600
    stop_timeout_s: pulumi.Input[int] = 1800
    protect_unsaved_work: pulumi.Input[bool] = False
    display_override: pulumi.Input[str] = ""
    metadata: pulumi.Input[dict[str, str]] = field(default_factory=dict)


class RayJobSpec(BaseModel):
    """`RayJobArgs` as they reach the provider: plain, and numbers as floats."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    job_name: str
    entrypoint: str
    run_dir: str
    checkpoint_dir: str
    kubeconfig: str
    namespace: str
    head_service: str
    ray_cluster: str
    ray_cluster_uid: str
    start_timeout_s: int
    stop_timeout_s: int = 1800
    protect_unsaved_work: bool = False
    display_override: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)

    @property
    def run(self) -> RunOnHead:
        """Where the run can be spoken to."""
        return RunOnHead.of(self)


class RayJobState(RayJobSpec):
    """A submitted job in the stack's state."""

    submission_id: str
    status: str


def identity_of(spec: RayJobSpec) -> str:
    """Hash what training depends on; the same on every machine and in every version of this project."""
    values = {key: getattr(spec, key) for key in _IDENTITY_KEYS}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class RayJob(Resource, module="rlstack", name="RayJob"):
    """A GRPO run on a RayCluster, submitted through its dashboard.

    Outputs are the inputs and what is below; `status` is Ray's word at the last `up` or `refresh`.
    """

    submission_id: pulumi.Output[str]
    attempt: pulumi.Output[int]
    identity: pulumi.Output[str]
    status: pulumi.Output[str]
    job_name: pulumi.Output[str]
    run_dir: pulumi.Output[str]
    checkpoint_dir: pulumi.Output[str]

    def __init__(self, name: str, args: RayJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        outputs = dict.fromkeys(("submission_id", "attempt", "identity", "status"))
        super().__init__(RayJobProvider(), name, {**vars(args), **outputs}, opts)


@contextmanager
def stage_payload() -> Iterator[Path]:
    """Yield a directory with all that is uploaded: the sources under jobs/payload/, importable by their own names."""
    with TemporaryDirectory(prefix="rlstack-payload-") as directory:
        shutil.copytree(PAYLOAD, Path(directory) / "jobs" / "payload", ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(directory)


def _payload_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(PAYLOAD.rglob("*.py")):
        digest.update(path.relative_to(PAYLOAD).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def connect(spec: RayJobSpec, *, timeout_s: float) -> Iterator["Dashboard"]:
    """Open the way to the job's dashboard; what tests replace.

    Raises:
        PortForwardError: no connection within `timeout_s`.
    """
    from jobs.dashboard import Dashboard  # noqa: PLC0415 - ray takes a second that a preview does not need
    from jobs.port_forward import open_dashboard  # noqa: PLC0415

    with open_dashboard(
        kubeconfig=spec.kubeconfig, namespace=spec.namespace, head_service=spec.head_service, timeout_s=timeout_s
    ) as url:
        yield Dashboard(url)


def _attempt(job: "Job") -> int:
    text = job.metadata.get("attempt", "")
    return int(text) if text.isdecimal() else 0


def _adoptable(job: "Job", spec: RayJobSpec) -> bool:
    """Whether a job already is what the spec asks for: it did it, or is doing it on this very cluster."""
    if job.metadata.get("identity") != identity_of(spec):
        return False
    if job.status == "SUCCEEDED":
        return True
    return not job.status.is_final and job.metadata.get("ray_cluster_uid") == spec.ray_cluster_uid


def _stop(submission_id: str, spec: RayJobSpec) -> None:
    is_protected = spec.protect_unsaved_work and not may_discard_work(spec.job_name)
    stop_saved(
        lambda: connect(spec, timeout_s=_DELETE_CONNECT_TIMEOUT_S),
        submission_id,
        spec.run,
        timeout_s=spec.stop_timeout_s,
        is_protected=is_protected,
    )


def _submit(dashboard: "Dashboard", spec: RayJobSpec, attempt: int) -> str:
    """Submit under the next free id: Ray never frees one, not even that of a deleted job."""
    identity = identity_of(spec)
    with stage_payload() as working_dir:
        for number in range(attempt, attempt + _MAX_TAKEN_IDS):
            submission_id = f"{spec.job_name}-{identity[:8]}-a{number}"
            try:
                dashboard.submit(
                    submission_id=submission_id,
                    entrypoint=f"{spec.entrypoint} {spec.display_override}".rstrip(),
                    working_dir=working_dir,
                    metadata={
                        **spec.metadata,
                        "job_name": spec.job_name,
                        "identity": identity,
                        "attempt": str(number),
                        "ray_cluster": spec.ray_cluster,
                        "ray_cluster_uid": spec.ray_cluster_uid,
                        "payload": _payload_hash(),
                    },
                )
            except DashboardRefused as error:
                if "already exists" not in str(error):
                    raise
            else:
                return submission_id
    raise RayJobError(
        f"Ray knows jobs {spec.job_name}-{identity[:8]}-a{attempt} to -a{attempt + _MAX_TAKEN_IDS - 1} already but "
        "does not list them, so nothing was submitted. Replace the RayCluster, or give the job another name"
    )


def submit_or_adopt(spec: RayJobSpec) -> "Job":
    """Make sure that the job that the spec asks for runs or has succeeded, and no other of its name.

    Raises:
        RayJobError: it failed, was stopped, or stays PENDING beyond `start_timeout_s`; or another job of its name
            has work that could not be saved.
        DashboardError: the dashboard did not do its part.
        PortForwardError: there is no way to it.
        WaitTimeout: another job of the same name did not stop.
    """
    with connect(spec, timeout_s=_CONNECT_TIMEOUT_S) as dashboard:
        jobs = sorted(
            (job for job in dashboard.list_jobs() if job.metadata.get("job_name") == spec.job_name),
            key=_attempt,
            reverse=True,
        )
    adopted = jobs[0].submission_id if jobs and _adoptable(jobs[0], spec) else None
    for job in jobs:
        if job.submission_id != adopted and not job.status.is_final:
            print(f"Stopping Ray job {job.submission_id}: {spec.job_name} is to run as described now")
            _stop(job.submission_id, spec)
    with connect(spec, timeout_s=_CONNECT_TIMEOUT_S) as dashboard:
        submission_id = adopted or _submit(dashboard, spec, _attempt(jobs[0]) + 1 if jobs else 1)
        return _wait_for_start(dashboard, spec, submission_id)


def _wait_for_start(dashboard: "Dashboard", spec: RayJobSpec, submission_id: str) -> "Job":
    def started() -> "Job | None":
        job = dashboard.get_job(submission_id)
        return None if job.status == "PENDING" else job

    try:
        job = wait_until(
            started,
            timeout_s=spec.start_timeout_s,
            every_s=_EVERY_S,
            doing=f"Ray job {submission_id} to leave PENDING",
        )
    except WaitTimeout as error:
        raise RayJobError(
            f"{error}. It stays submitted, and the next `up` takes it over. "
            f"Check: kubectl -n {spec.namespace} get pods -l ray.io/cluster={spec.ray_cluster}"
        ) from error
    if job.status in _RESUBMIT_STATUSES:
        lines = "\n".join(dashboard.logs(submission_id).splitlines()[-_LOG_LINES:])
        raise RayJobError(
            f"Ray job {submission_id} is {job.status} (exit code {job.driver_exit_code}); the next `up` submits it "
            f"again. Its last lines:\n{lines or job.message}"
        )
    return job


def _outputs(props: dict[str, Any], spec: RayJobSpec, job: "Job") -> dict[str, Any]:
    """Echo every input, as `diff` compares with outputs, and add the job's own."""
    return {
        **{key: value for key, value in props.items() if key != "__provider"},
        "submission_id": job.submission_id,
        "attempt": _attempt(job),
        "identity": identity_of(spec),
        "status": str(job.status),
    }


def _status_now(id_: str, state: RayJobState) -> str | None:
    """Ask Ray how a job stands: none if Ray does not know it, its last known status if Ray cannot be asked."""
    try:
        with connect(state, timeout_s=_READ_CONNECT_TIMEOUT_S) as dashboard:
            return str(dashboard.get_job(id_).status)
    except JobNotFound:
        return None
    except RlstackError as error:
        print(f"warning: whether Ray job {id_} still runs is not known: {error}")
        return state.status


def _has_ended_early(id_: str, state: RayJobState) -> bool:
    """Whether a job has to be submitted again: it vanished with its head, failed, or was stopped."""
    is_over = state.status == "SUCCEEDED" or state.status in _RESUBMIT_STATUSES
    status = state.status if is_over else _status_now(id_, state)
    return status is None or status in _RESUBMIT_STATUSES


class RayJobProvider(DynamicProvider):
    """Create, read, update and delete of `RayJob`; each ends by its own deadline, as the engine has none for it.

    | method | when the dashboard cannot be reached | when it does not know the job |
    |---|---|---|
    | create | fails; the next `up` looks for the job first | submits |
    | read | keeps the state, with a warning | forgets it; a finished one stays |
    | diff | keeps the job, with a warning | replaces it, so that one `up` is enough; a finished one stays |
    | delete | succeeds: what was running goes with its pods | succeeds |
    """

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Submit the job, or adopt the one that already does what is asked."""
        spec = RayJobSpec.model_validate(props)
        job = submit_or_adopt(spec)
        return CreateResult(job.submission_id, _outputs(props, spec, job))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Learn the job's status."""
        state = RayJobState.model_validate(props)
        status = _status_now(id_, state)
        if status is None and state.status != "SUCCEEDED":
            return ReadResult("", {})
        return ReadResult(id_, {**props, "status": status or state.status})

    def diff(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Replace what is another job, or one that ended without success; an unknown value counts as another.

        A job that should be running is looked at, so that after a lost head one `up` is enough.
        """
        replaces = [key for key in _REPLACE_KEYS if olds.get(key) != news.get(key)]
        if not replaces and _has_ended_early(id_, RayJobState.model_validate(olds)):
            replaces.append("status")
        echoes = [key for key in _ECHO_KEYS if olds.get(key) != news.get(key)]
        return DiffResult(changes=bool(replaces or echoes), replaces=replaces, delete_before_replace=True)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Take over inputs that the running job does not depend on."""
        own = {key: olds[key] for key in ("submission_id", "attempt", "identity", "status")}
        return UpdateResult({**{key: value for key, value in news.items() if key != "__provider"}, **own})

    def delete(self, id_: str, props: dict[str, Any]) -> None:
        """Stop the job after a checkpoint; one that is gone, or cannot be reached any more, counts as stopped."""
        spec = RayJobSpec.model_validate(props)
        try:
            _stop(id_, spec)
        except (DashboardUnreachable, JobNotFound, PortForwardError) as error:
            print(f"Ray job {id_} is taken for stopped: {error}")
