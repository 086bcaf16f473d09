"""What the RayCluster and its pods look like to Kubernetes: pure functions from the component's arguments to specs.

Nothing that training does not depend on (labels above all) stands in a pod template: KubeRay changes no running pod
when a template changes, so such an edit would cost a run.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pulumi
from pulumi import Output

from components.gib import gib_environment, with_gib
from components.machines import Accelerators
from components.placement import Placement
from components.sections import PodResources, RaySection
from components.worker_scaler import SCALER_DIR, scaler_name, token_volume

LUSTRE_DIR = "/lustre"
SECRETS_DIR = PurePosixPath("/run/secrets/rlstack")
HUGGING_FACE_TOKEN = "hf-token"  # noqa: S105 - the name of a file
NETRC = "netrc"
WANDB_HOST = "api.wandb.ai"

WORKER_GROUP = "gpu"
METRICS_PORT = 8080
HEAD_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "metrics": METRICS_PORT}
# Namespaces of managed Prometheus' collectors.
COLLECTOR_NAMESPACES = ["gmp-system", "gke-gmp-system"]
ANY_NUMBER = 2**31 - 1
"""KubeRay's own default of maxReplicas: a bound that no number of nodes makes anybody edit."""


@dataclass(frozen=True, kw_only=True)
class RayClusterArgs:
    """Inputs of `RayCluster`.

    Attributes:
        place: its name.
        config: the section; of it image, namespace, head, timeout and what becomes of the workers.
        ray_version: the Ray in the image.
        worker: resources of a worker pod.
        worker_count: worker pods, one a node.
        accelerators: the GPUs of a worker pod.
        has_fast_network: whether worker pods get the RDMA NICs of their node, and NCCL uses them.
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
    has_fast_network: bool
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
                "groupName": WORKER_GROUP,
                **_worker_numbers(args),
                "rayStartParams": {},
                "template": _worker_template(args),
            }
        ],
    }


def _worker_numbers(args: RayClusterArgs) -> dict[str, int]:
    """Say how many workers there are: as many as the run takes for itself, or all of them for good."""
    if args.config.releases_workers:
        return {"replicas": 0, "minReplicas": 0, "maxReplicas": ANY_NUMBER}
    return {"replicas": args.worker_count, "minReplicas": 0, "maxReplicas": args.worker_count}


def _head_pod(args: RayClusterArgs) -> dict[str, Any]:
    container = _container("ray-head", args, resources=_resources(args.config.head))
    ports = [{"name": name, "containerPort": port} for name, port in HEAD_PORTS.items()]
    pod = _pod(args, {**container, "ports": ports}, shm_gib=args.config.head.shared_memory_gib, pool=args.system_pool)
    if not args.config.releases_workers:
        return pod
    (head,) = pod["containers"]
    token = {"name": "scaler", "mountPath": str(SCALER_DIR), "readOnly": True}
    return {
        **pod,
        "serviceAccountName": scaler_name(args.place.stack_name),
        "containers": [{**head, "volumeMounts": [*head["volumeMounts"], token]}],
        "volumes": [*pod["volumes"], token_volume()],
    }


def _worker_template(args: RayClusterArgs) -> dict[str, Any]:
    pod = _worker_pod(args)
    return with_gib(pod, args.accelerators) if args.has_fast_network else {"spec": pod}


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
        "nodeSelector": {**pod["nodeSelector"], **args.accelerators.node_labels},
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
        **(gib_environment(args.accelerators) if args.has_fast_network else {}),
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
