"""What the stack tells: all that `python -m jobs` needs to know of it, and what a person types next."""

from typing import Any

from pulumi import Output

from components.config import StackConfig
from components.gke_cluster import GkeCluster
from components.managed_lustre import ManagedLustre
from components.monitoring import Monitoring
from components.ray_cluster import RayCluster
from jobs.ray_job import RayJob


def stack_outputs(
    config: StackConfig,
    *,
    gke: GkeCluster,
    lustre: ManagedLustre,
    ray: RayCluster,
    job: RayJob,
    monitoring: Monitoring | None,
) -> dict[str, Any]:
    """Build the stack's outputs, by name; docs/architecture.md has the contract."""
    return {
        "kubeconfig": gke.kubeconfig,
        "ray": ray.summary,
        "job": {
            "name": config.job.name,
            "submission_id": job.submission_id,
            "identity": job.identity,
            "checkpoint_dir": config.checkpoint_dir,
            "run_dir": config.run_dir,
        },
        "lustre": lustre.summary,
        **({"monitoring": monitoring.summary} if monitoring else {}),
        "next_steps": {
            "credentials": gke.credentials_command,
            "dashboard": Output.format(
                "kubectl -n {} port-forward svc/{} 8265", config.ray.namespace, ray.head_service
            ),
            "watch": f"python -m jobs watch --stack {config.stack}",
        },
    }
