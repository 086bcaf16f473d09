"""The stack, from an empty project to a running GRPO job: wiring only; components/ and jobs/ hold what is wired."""

import pulumi
from pulumi import Output, ResourceOptions

from components.config import load_config, secret
from components.gke_cluster import GkeCluster, GkeClusterArgs
from components.gpu_node_pool import GpuNodePool, GpuNodePoolArgs
from components.lustre_volume import LustreVolume, LustreVolumeArgs
from components.managed_lustre import ManagedLustre, ManagedLustreArgs
from components.network import Network, NetworkArgs
from components.private_service_access import PrivateServiceAccess, PrivateServiceAccessArgs
from components.project_services import ProjectServices, ProjectServicesArgs
from components.providers import cluster_provider, google_provider
from components.ray_cluster import RayCluster, RayClusterArgs
from components.training import training_entrypoint
from jobs.ray_job import RayJob, RayJobArgs

config = load_config()
place = config.placement
google = google_provider("google", place)
services = ProjectServices("services", ProjectServicesArgs(place=place), ResourceOptions(providers=[google]))
# Nothing in Google Cloud can be made, or read, before its API is on.
on_google = ResourceOptions(providers=[google], depends_on=[services])
network = Network("network", NetworkArgs(place=place, config=config.network), on_google)
access_args = PrivateServiceAccessArgs(place=place, config=config.private_service_access, network=network)
access = PrivateServiceAccess("access", access_args, on_google)
lustre_args = ManagedLustreArgs(place=place, config=config.lustre, network=network, access=access)
lustre = ManagedLustre("lustre", lustre_args, on_google)
legacy_port = config.lustre.legacy_port
gke_args = GkeClusterArgs(place=place, config=config.cluster, network=network, legacy_lustre_port=legacy_port)
gke = GkeCluster("gke", gke_args, on_google)
gpus = GpuNodePool("gpus", GpuNodePoolArgs(place=place, config=config.gpu_pool, cluster=gke), on_google)

kubernetes = cluster_provider("kubernetes", gke.kubeconfig)
volume_args = LustreVolumeArgs(place=place, namespace=config.ray.namespace, lustre=lustre)
volume = LustreVolume("volume", volume_args, ResourceOptions(providers=[kubernetes]))
ray_args = RayClusterArgs(
    place=place,
    config=config.ray,
    ray_version=config.release.ray_version,
    worker=config.worker,
    worker_count=config.gpu_pool.node_count,
    accelerators=config.accelerators,
    system_pool=gke.system_pool,
    gpu_pool=gpus.pool_name,
    claim_name=volume.claim_name,
    ray_operator_is_on=config.ray_operator_is_on,
    hf_token=secret("hf_token"),
    wandb_api_key=secret("wandb_api_key"),
)
# The operator and the firewall for Lustre lie on no path of values from here, but pods need both.
ray = RayCluster("ray", ray_args, ResourceOptions(providers=[kubernetes], depends_on=[gke, gpus, lustre]))
job_args = RayJobArgs(
    job_name=config.job.name,
    entrypoint=training_entrypoint(config),
    run_dir=config.run_dir,
    checkpoint_dir=config.checkpoint_dir,
    kubeconfig=gke.kubeconfig,
    namespace=config.ray.namespace,
    head_service=ray.head_service,
    ray_cluster=ray.cluster_name,
    ray_cluster_uid=ray.uid,
    start_timeout_s=config.job.start_timeout_s,
)
job = RayJob("grpo", job_args, ResourceOptions(depends_on=[ray]))

pulumi.export("kubeconfig", gke.kubeconfig)
pulumi.export("ray", ray.summary)
run = {"checkpoint_dir": config.checkpoint_dir, "run_dir": config.run_dir}
pulumi.export("job", {"name": config.job.name, "submission_id": job.submission_id, "identity": job.identity, **run})
pulumi.export("lustre", lustre.summary)
forward = Output.format("kubectl -n {} port-forward svc/{} 8265", config.ray.namespace, ray.head_service)
watch = f"python -m jobs watch --stack {config.stack}"
pulumi.export("next_steps", {"credentials": gke.credentials_command, "dashboard": forward, "watch": watch})
