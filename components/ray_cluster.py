"""The Ray cluster: a RayCluster for KubeRay, the secrets of its pods, and a fence round its ports.

The head runs on the system pool, so only workers are ever preempted, and a lost worker needs nobody. KubeRay changes
no running pod when a template changes, so a RayCluster is replaced, not edited; only the number of workers changes in
place. Nothing that training does not depend on (labels above all) stands in a pod template.

The fence: Ray's ports take commands from whoever reaches them, so only pods of this cluster may, and the collectors of
Google's managed Prometheus on the metrics port. KubeRay's operator needs none of the ports for a RayCluster. A
port-forward still works: the kubelet opens it from inside the pod's own network namespace, where no policy applies; who
may ask for one is RBAC's business.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import CustomTimeouts, ErrorHook, ErrorHookArgs, Output, ResourceHookBinding, ResourceOptions

from components.machines import Accelerators
from components.placement import Placement
from components.sections import PodResources, RaySection
from jobs.errors import RlstackError

LUSTRE_DIR = "/lustre"
SECRETS_DIR = PurePosixPath("/run/secrets/rlstack")
HUGGING_FACE_TOKEN = "hf-token"  # noqa: S105 - the name of a file
NETRC = "netrc"
WANDB_HOST = "api.wandb.ai"

METRICS_PORT = 8080
HEAD_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "metrics": METRICS_PORT}
# Namespaces of managed Prometheus' collectors.
COLLECTOR_NAMESPACES = ["gmp-system", "gke-gmp-system"]

# KubeRay acts on a change of these for new pods only, and the wait for HeadPodReady would then run into its timeout.
REPLACED_ON = ["spec.headGroupSpec", "spec.rayVersion", "spec.workerGroupSpecs[*].template"]
# pulumi-kubernetes tries for a minute; an add-on that was just switched on can need several.
MISSING_KIND = "no matches for kind"
MISSING_KIND_ATTEMPTS = 10


@dataclass(frozen=True, kw_only=True)
class RayClusterArgs:
    """Inputs of `RayCluster`.

    Attributes:
        place: its name and labels; the labels are the RayCluster's own, never its pods'.
        config: the section; of it image, namespace, head and timeout.
        ray_version: the Ray in the image.
        worker: resources of a worker pod.
        worker_count: worker pods, one a node.
        accelerators: the GPUs of a worker pod.
        system_pool: node pool of the head.
        gpu_pool: node pool of the workers.
        claim_name: claim of the Lustre volume.
        ray_operator_is_on: whether the RayOperator add-on should be there.
        hf_token: token for the Hugging Face hub.
        wandb_api_key: key for Weights & Biases.
    """

    place: Placement
    config: RaySection
    ray_version: str
    worker: PodResources
    worker_count: int
    accelerators: Accelerators
    system_pool: pulumi.Input[str]
    gpu_pool: pulumi.Input[str]
    claim_name: pulumi.Input[str]
    ray_operator_is_on: bool
    hf_token: pulumi.Input[str] | None
    wandb_api_key: pulumi.Input[str] | None

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs; secrets stay with the Secret."""
        return {
            **{key: value for key, value in vars(self).items() if key not in {"hf_token", "wandb_api_key"}},
            "place": vars(self.place),
            "config": self.config.model_dump(mode="json", exclude={"release"}),
            "worker": self.worker.model_dump(),
            "accelerators": vars(self.accelerators),
        }


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
        timeout = f"{args.config.head_start_timeout_s}s"
        cluster = kubernetes.apiextensions.CustomResource(
            f"{name}-cluster",
            api_version="ray.io/v1",
            kind="RayCluster",
            metadata={
                **metadata,
                "labels": args.place.labels,
                # Workers may be hours away; waiting for the head alone keeps `pulumi up` bounded.
                "annotations": {"pulumi.com/waitFor": "condition=HeadPodReady"},
            },
            spec=ray_cluster_spec(args),
            opts=ResourceOptions(
                parent=self,
                depends_on=[secrets, fence],
                replace_on_changes=REPLACED_ON,
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


def secret_name(args: RayClusterArgs) -> str:
    """Name the Secret of a Ray cluster."""
    return f"{args.place.stack_name}-tokens"


def secret_files(args: RayClusterArgs) -> dict[str, pulumi.Input[str]]:
    """Build the files of the Secret; a secret that was never set has none, and its readers then go without."""
    files: dict[str, pulumi.Input[str]] = {}
    if args.hf_token is not None:
        files[HUGGING_FACE_TOKEN] = args.hf_token
    if args.wandb_api_key is not None:
        files[NETRC] = Output.format("machine {} login user password {}\n", WANDB_HOST, args.wandb_api_key)
    return files


def network_policy_spec(ray_cluster: str) -> dict[str, Any]:
    """Build the spec of the fence; KubeRay puts the label `ray.io/cluster` on every pod of a RayCluster."""
    pods = {"podSelector": {"matchLabels": {"ray.io/cluster": ray_cluster}}}
    collectors = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": COLLECTOR_NAMESPACES}
    return {
        **pods,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [pods]},
            {
                "from": [{"namespaceSelector": {"matchExpressions": [collectors]}}],
                "ports": [{"protocol": "TCP", "port": METRICS_PORT}],
            },
        ],
    }


def ray_cluster_spec(args: RayClusterArgs) -> dict[str, Any]:
    """Build the spec of the RayCluster."""
    return {
        "rayVersion": args.ray_version,
        "headGroupSpec": {
            # Explicit, for Ray would count the whole machine's CPUs. Never 0: NeMo-RL places one CPU on every living
            # node and waits for it without a timeout (nemo_rl/utils/venvs.py).
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": str(args.config.head.cpu)},  # noqa: S104
            "template": {"spec": _head_pod(args)},
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": args.worker_count,
                # Below the minimum nothing can be released when a run has ended.
                "minReplicas": 0,
                "maxReplicas": args.worker_count,
                "rayStartParams": {},
                "template": {"spec": _worker_pod(args)},
            }
        ],
    }


def _head_pod(args: RayClusterArgs) -> dict[str, Any]:
    container = _container("ray-head", args, resources=_resources(args.config.head))
    ports = [{"name": name, "containerPort": port} for name, port in HEAD_PORTS.items()]
    return _pod(args, {**container, "ports": ports}, shm_gib=args.config.head.shared_memory_gib, pool=args.system_pool)


def _worker_pod(args: RayClusterArgs) -> dict[str, Any]:
    resources = {**_resources(args.worker), "nvidia.com/gpu": str(args.accelerators.count)}
    pod = _pod(
        args,
        _container("ray-worker", args, resources=resources),
        shm_gib=args.worker.shared_memory_gib,
        pool=args.gpu_pool,
    )
    return {
        **pod,
        "nodeSelector": {**pod["nodeSelector"], "cloud.google.com/gke-accelerator": args.accelerators.type},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }


def _resources(pod: PodResources) -> dict[str, str]:
    return {"cpu": str(pod.cpu), "memory": f"{pod.memory_gib}Gi"}


def _container(name: str, args: RayClusterArgs, *, resources: dict[str, str]) -> dict[str, Any]:
    environment = {
        "HF_HOME": f"{LUSTRE_DIR}/huggingface_cache",
        "HF_TOKEN_PATH": str(SECRETS_DIR / HUGGING_FACE_TOKEN),
        "NETRC": str(SECRETS_DIR / NETRC),
        # NCCL and Gloo would pick an interface by themselves, and pods have several once RDMA is there.
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0",
    }
    return {
        "name": name,
        "image": args.config.image,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        # Equal, so that the pod is the last to be evicted and Ray sizes itself from what it has.
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [
            {"name": "lustre", "mountPath": LUSTRE_DIR},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount point
            {"name": "secrets", "mountPath": str(SECRETS_DIR), "readOnly": True},
        ],
    }


def _pod(args: RayClusterArgs, container: dict[str, Any], *, shm_gib: int, pool: pulumi.Input[str]) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "nodeSelector": {"cloud.google.com/gke-nodepool": pool},
        "containers": [container],
        "volumes": [
            {"name": "lustre", "persistentVolumeClaim": {"claimName": args.claim_name}},
            # Without one of our own KubeRay adds one as large as the memory limit, and filling it would kill the pod.
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}},
            {"name": "secrets", "secret": {"secretName": secret_name(args), "defaultMode": 0o400}},
        ],
    }
