"""Looks after the run's work when its stack is destroyed: says what goes with Lustre, and refuses where that is asked.

It refuses a destroy of a protected cluster too: Google would do so only when the job is stopped and Lustre is deleted.
And it refuses where Lustre would go while pods of an adopted cluster may still have files open there: a cluster of the
stack's own loses its nodes before.

It stands behind the job in the graph, so a destroy deletes it before all else: a refusal leaves everything as it was,
and training goes on. A replaced job does not touch it, as its checkpoints stay. The module's path is a persisted name:
stacks keep it in their state.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, UpdateResult
from pydantic import BaseModel, ConfigDict

from jobs.checkpoints import CheckpointListing, read_checkpoints
from jobs.dynamic_provider import DynamicProvider
from jobs.errors import HeadExecError, HeadUnreachable, PodsMayRun, ProtectedCluster, UnsavedWorkError
from jobs.run_on_head import DISCARD_VARIABLE, RunOnHead, may_discard_work
from jobs.run_progress import format_bytes


@dataclass(frozen=True, kw_only=True)
class WorkGuardArgs:
    """Inputs of `WorkGuard`.

    Attributes:
        stack: the stack's name.
        job_name: whose work it is.
        run_dir: the run's directory on Lustre.
        checkpoint_dir: where its checkpoints lie.
        kubeconfig: JSON text, with an exec plugin and no token.
        namespace: of the Ray cluster.
        ray_cluster: name of the RayCluster, whose head looks at Lustre.
        lustre_is_ours: whether the Lustre instance goes with the stack.
        protect_unsaved_work: whether to refuse while work lies on that instance only.
        cluster_is_ours: whether the cluster's nodes go with the stack.
        cluster_is_protected: whether Google refuses to delete the stack's cluster.
    """

    stack: pulumi.Input[str]
    job_name: pulumi.Input[str]
    run_dir: pulumi.Input[str]
    checkpoint_dir: pulumi.Input[str]
    kubeconfig: pulumi.Input[str]
    namespace: pulumi.Input[str]
    ray_cluster: pulumi.Input[str]
    lustre_is_ours: pulumi.Input[bool]
    protect_unsaved_work: pulumi.Input[bool]
    cluster_is_ours: pulumi.Input[bool]
    cluster_is_protected: pulumi.Input[bool]


class WorkGuardSpec(BaseModel):
    """`WorkGuardArgs` as they reach the provider."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stack: str = "STACK"  # states of earlier versions lack it, and have to go down as well
    job_name: str
    run_dir: str
    checkpoint_dir: str
    kubeconfig: str
    namespace: str
    ray_cluster: str
    lustre_is_ours: bool
    protect_unsaved_work: bool
    cluster_is_ours: bool = True
    cluster_is_protected: bool = False

    @property
    def run(self) -> RunOnHead:
        """Where the run can be looked at."""
        return RunOnHead.of(self)


def look_after(spec: WorkGuardSpec) -> str:
    """Say what a destroy takes away of a run, or refuse it.

    Raises:
        ProtectedCluster: the cluster is protected.
        PodsMayRun: an adopted cluster does not say whether pods still mount the stack's Lustre.
        UnsavedWorkError: the work is protected and lies on the stack's Lustre only, or cannot be looked at.
    """
    if spec.cluster_is_protected:
        raise ProtectedCluster(
            f"Nothing was destroyed: cluster.deletion_protection is on, and Google would refuse to delete the cluster "
            f"of RayCluster {spec.ray_cluster} after all else had gone. Lift it, then destroy again: "
            f"pulumi config set --path rlstack:cluster.deletion_protection false --stack {spec.stack} && "
            f"pulumi up --stack {spec.stack}"
        )
    if not spec.lustre_is_ours:
        return f"The checkpoints of {spec.job_name} stay: the Lustre instance is not this stack's"
    try:
        listing = read_checkpoints(spec.run)
    except HeadExecError as error:
        if isinstance(error, HeadUnreachable) and not spec.cluster_is_ours and not may_discard_work(spec.job_name):
            raise PodsMayRun(
                f"Nothing was destroyed: the cluster of RayCluster {spec.ray_cluster} is not the stack's, so its pods "
                f"go on, and Lustre would vanish under them. {error}. Then destroy again; if the cluster is gone: "
                f"{DISCARD_VARIABLE}={spec.job_name} in the environment of the same command"
            ) from error
        loss, is_unsaved = f"what {spec.job_name} has left on Lustre is not known ({error}), and goes with it", True
    else:
        loss, is_unsaved = _describe(spec.job_name, listing)
    if is_unsaved and spec.protect_unsaved_work and not may_discard_work(spec.job_name):
        raise UnsavedWorkError(
            f"Nothing was destroyed, and job.protect_unsaved_work is on: {loss}. Stop what is under way "
            "(python -m jobs stop) and copy what you need (python -m jobs export), or say that it may go: "
            f"{DISCARD_VARIABLE}={spec.job_name} in the environment of the same command"
        )
    return loss[0].upper() + loss[1:]


def _describe(job_name: str, listing: CheckpointListing) -> tuple[str, bool]:
    complete = listing.complete
    under_way = "; it is under way, and what it still saves goes too"
    if not complete:
        only_copies = [entry.name for entry in listing.checkpoints if entry.state == "only copy"]
        loss = f"{job_name} has no checkpoint on Lustre" + (f" but {only_copies[-1]}" if only_copies else "")
        return loss + under_way * listing.is_supervised, bool(only_copies) or listing.is_supervised
    newest, total = complete[-1], sum(entry.bytes for entry in listing.checkpoints)
    model = newest.model or "model unknown"
    loss = (
        f"{job_name}'s newest checkpoint is {newest.name} ({format_bytes(newest.bytes)}, {model}); "
        f"{format_bytes(total)} of checkpoints go with Lustre"
    )
    if listing.exported_step is not None:
        loss += f"; step_{listing.exported_step} was exported"
    # A run that is stopped by the destroy itself makes its last checkpoint then, which nobody can have exported.
    is_unsaved = listing.exported_step != newest.step or listing.is_supervised
    return loss + under_way * listing.is_supervised, is_unsaved


class WorkGuardProvider(DynamicProvider):
    """Keeps a record until the end, and looks then."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Keep the record under the job's name."""
        return CreateResult(str(props["job_name"]), props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Never replace: that would look as an end does."""
        return DiffResult(changes=any(olds.get(key) != value for key, value in news.items() if key != "__provider"))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Keep the new record."""
        return UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Say what is lost, or refuse."""
        print(look_after(WorkGuardSpec.model_validate(props)))


class WorkGuard(Resource, module="work_guard", name="WorkGuard"):
    """The last resource of the stack, and the first to be asked when it goes."""

    def __init__(self, name: str, args: WorkGuardArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(WorkGuardProvider(), name, vars(args), opts)
