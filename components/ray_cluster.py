"""The Ray cluster: a RayCluster for KubeRay, the secrets of its pods, and a fence round its ports.

The head runs on the system pool, so only workers are ever preempted, and a lost worker needs nobody. KubeRay changes
no running pod when a template changes, so a RayCluster is replaced, not edited, and nothing that training does not
depend on stands in it, not even the stack's labels. How many workers there are is the run's to say (worker_scaler.py);
where the config keeps them instead, their number changes in place.

The fence: Ray's ports take commands from whoever reaches them, so only pods of this cluster may, and the collectors of
Google's managed Prometheus on the metrics port. KubeRay's operator needs none of the ports for a RayCluster. A
port-forward still works: the kubelet opens it from inside the pod's own network namespace, where no policy applies; who
may ask for one is RBAC's business.
"""

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import CustomTimeouts, ErrorHook, ErrorHookArgs, Output, ResourceHookBinding, ResourceOptions

from components.ray_cluster_spec import (
    RayClusterArgs,
    network_policy_spec,
    ray_cluster_spec,
    secret_files,
    secret_name,
)
from components.worker_scaler import WorkerScaler, WorkerScalerArgs
from jobs.errors import RlstackError

# KubeRay acts on a change of these for new pods only, and the wait for HeadPodReady would then run into its timeout.
REPLACED_ON = ["spec.headGroupSpec", "spec.rayVersion", "spec.workerGroupSpecs[*].template"]
# While the supervisor scales the workers, no update may reach the RayCluster: its list of worker groups is one value to
# the API server, so any update would bring the stack's number of workers along, in the middle of a run.
REPLACED_ON_ANY_CHANGE = ["spec"]
SCALED_BY_THE_RUN = ["spec.workerGroupSpecs[0].replicas"]
# pulumi-kubernetes tries for a minute; an add-on that was just switched on can need several.
MISSING_KIND = "no matches for kind"
MISSING_KIND_ATTEMPTS = 10


class RayCluster(pulumi.ComponentResource):
    """A Ray cluster whose head is ready; its workers come with the GPU nodes.

    Attributes:
        cluster_name: name of the RayCluster.
        uid: its uid; a RayCluster made anew has another.
        head_service: service of the head.
        summary: what the stack shows of it.
    """

    cluster_name: Output[str]
    uid: Output[str]
    head_service: Output[str]
    summary: dict[str, pulumi.Input[str]]

    def __init__(self, name: str, args: RayClusterArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:ray_cluster:RayCluster", name, args.as_inputs(), opts)
        metadata = {"name": args.place.stack_name, "namespace": args.config.namespace}
        # There with or without tokens: a token that is added or changed reaches the running pods as a file and replaces
        # nothing.
        secrets = kubernetes.core.v1.Secret(
            f"{name}-secrets",
            metadata={**metadata, "name": secret_name(args)},
            # None and not empty: the API server keeps no empty map, and every preview would miss it.
            string_data=secret_files(args) or None,
            opts=ResourceOptions(parent=self),
        )
        fence = kubernetes.networking.v1.NetworkPolicy(
            f"{name}-fence",
            metadata=metadata,
            spec=network_policy_spec(args.place.stack_name),
            opts=ResourceOptions(parent=self),
        )
        needed: list[pulumi.Resource] = [secrets, fence]
        if args.config.releases_workers:
            scaler_args = WorkerScalerArgs(ray_cluster=args.place.stack_name, namespace=args.config.namespace)
            needed.append(WorkerScaler(f"{name}-scaler", scaler_args, ResourceOptions(parent=self)))
        timeout = f"{args.config.head_start_timeout_s}s"
        cluster = kubernetes.apiextensions.CustomResource(
            f"{name}-cluster",
            api_version="ray.io/v1",
            kind="RayCluster",
            metadata={
                **metadata,
                # Workers may be hours away; waiting for the head alone keeps `pulumi up` bounded.
                "annotations": {"pulumi.com/waitFor": "condition=HeadPodReady"},
            },
            spec=ray_cluster_spec(args),
            opts=ResourceOptions(
                parent=self,
                depends_on=needed,
                replace_on_changes=REPLACED_ON_ANY_CHANGE if args.config.releases_workers else REPLACED_ON,
                ignore_changes=SCALED_BY_THE_RUN if args.config.releases_workers else None,
                # Two clusters of one name cannot be, and the GPUs are needed for the new one.
                delete_before_replace=True,
                custom_timeouts=CustomTimeouts(create=timeout, update=timeout, delete="15m"),
                hooks=ResourceHookBinding(on_error=[_missing_operator_hook(name, args)]),
            ),
        )
        self.cluster_name = cluster.metadata["name"]
        self.uid = cluster.metadata["uid"]
        self.head_service = Output.format("{}-head-svc", self.cluster_name)
        self.summary = {
            "namespace": args.config.namespace,
            "cluster": self.cluster_name,
            "head_service": self.head_service,
            "image": args.config.image,
            "ray_version": args.ray_version,
        }
        self.register_outputs({**self.summary, "uid": self.uid})


def _missing_operator_hook(name: str, args: RayClusterArgs) -> ErrorHook:
    async def on_error(failure: ErrorHookArgs) -> bool:
        return retry_without_operator(failure.errors, ray_cluster=args.place.stack_name, is_on=args.ray_operator_is_on)

    return ErrorHook(f"{name}-missing-operator", on_error)


def retry_without_operator(failures: list[str], *, ray_cluster: str, is_on: bool) -> bool:
    """Decide whether to try again after the API server did not know the kind RayCluster.

    Args:
        failures: messages of the attempts so far, newest first.
        ray_cluster: the RayCluster, for the message.
        is_on: whether the config has the add-on on.

    Returns:
        Whether to try again: the add-on is on and may only be late. Other failures are not this function's.

    Raises:
        RlstackError: the add-on is off, or did not come.
    """
    if not failures or MISSING_KIND not in failures[0]:
        return False
    if not is_on:
        raise RlstackError(
            f"RayCluster {ray_cluster} cannot be made: its cluster does not know the kind, for the RayOperator add-on "
            "is off. Set cluster.ray_operator to true and type `pulumi up` again; what was made until here is kept"
        )
    if len(failures) >= MISSING_KIND_ATTEMPTS:
        raise RlstackError(
            f"RayCluster {ray_cluster} cannot be made: after {len(failures)} attempts its cluster still does not know "
            "the kind, though the RayOperator add-on should be on. See `gcloud container clusters describe CLUSTER "
            "--format='value(addonsConfig.rayOperatorConfig)'`, then type `pulumi up` again"
        )
    return True
