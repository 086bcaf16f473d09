"""The stack, from an empty project to a running GRPO job: wiring only; components/ and jobs/ hold what is wired."""

from typing import Any

import pulumi
from pulumi import ResourceOptions

from components.config import load_config, secret
from components.fast_network import FastNetwork, FastNetworkArgs
from components.gib import Gib, GibArgs
from components.gke_cluster import GkeCluster, GkeClusterArgs
from components.gke_networks import GkeNetworks, GkeNetworksArgs
from components.gpu_node_pool import GpuNodePool, GpuNodePoolArgs
from components.lustre_volume import LustreVolume, LustreVolumeArgs
from components.managed_lustre import ManagedLustre, ManagedLustreArgs
from components.monitoring import Monitoring, MonitoringArgs
from components.network import Network, NetworkArgs
from components.private_service_access import PrivateServiceAccess, PrivateServiceAccessArgs
from components.project_services import ProjectServices, ProjectServicesArgs
from components.providers import cluster_provider, google_provider
from components.ray_cluster import RayCluster
from components.ray_cluster_spec import RayClusterArgs
from components.stack_outputs import stack_outputs
from components.training import guarded_work, training_job
from jobs.ray_job import RayJob, RayJobArgs
from jobs.work_guard import WorkGuard, WorkGuardArgs

config = load_config()
place = config.placement
google = google_provider("google", place)
services_args = ProjectServicesArgs(place=place, image_streaming=config.features.image_streaming)
services = ProjectServices("services", services_args, ResourceOptions(providers=[google]))
# Nothing in Google Cloud can be made, or read, before its API is on.
on_google = ResourceOptions(providers=[google], depends_on=[services])
network = Network("network", NetworkArgs(place=place, config=config.network), on_google)
access_args = PrivateServiceAccessArgs(place=place, config=config.private_service_access, network=network)
access = PrivateServiceAccess("access", access_args, on_google)
lustre_args = ManagedLustreArgs(place=place, config=config.lustre, network=network, access=access)
lustre = ManagedLustre("lustre", lustre_args, on_google)
fast_args = FastNetworkArgs(place=place, config=config.gpu_pool, accelerators=config.accelerators)
fast = FastNetwork("fast", fast_args, on_google) if config.has_fast_network else None
gke_args = GkeClusterArgs(place=place, config=config.cluster, network=network, lustre=lustre, features=config.features)
gke = GkeCluster("gke", gke_args, on_google)
nics = fast.node_networks if fast else ()
gpu_args = GpuNodePoolArgs(place=place, config=config.gpu_pool, cluster=gke, node_networks=nics)
gpus = GpuNodePool("gpus", gpu_args, on_google)
kubernetes = cluster_provider("kubernetes", gke.kubeconfig)
volume_args = LustreVolumeArgs(place=place, namespace=config.ray.namespace, lustre=lustre)
volume = LustreVolume("volume", volume_args, ResourceOptions(providers=[kubernetes]))
needed: list[pulumi.Resource] = [network, lustre]
if fast:
    on_cluster = ResourceOptions(providers=[kubernetes])
    devices = GkeNetworks("networks", GkeNetworksArgs(node_networks=nics), on_cluster)
    needed += [fast, devices, Gib("gib", GibArgs(gpu_pool=gpus.pool_name), on_cluster)]
ray_args = RayClusterArgs(
    place=place,
    config=config.ray,
    ray_version=config.release.ray_version,
    worker=config.worker,
    worker_count=config.gpu_pool.node_count,
    accelerators=config.accelerators,
    has_fast_network=config.has_fast_network,
    system_pool=gke.system_pool,
    gpu_pool=gpus.pool_name,
    claim_name=volume.claim_name,
    ray_operator_is_on=config.ray_operator_is_on,
    hf_token=secret("hf_token"),
    wandb_api_key=secret("wandb_api_key"),
)
# Firewalls and NICs lie on no path of values from here, but pods need them all, to the run's last moment.
ray = RayCluster("ray", ray_args, ResourceOptions(providers=[kubernetes], depends_on=needed))
on_head: dict[str, Any] = {"kubeconfig": gke.kubeconfig, "ray_cluster": ray.cluster_name}
job_args = RayJobArgs(**training_job(config), **on_head, head_service=ray.head_service, ray_cluster_uid=ray.uid)
job = RayJob("grpo", job_args)
monitoring = Monitoring("monitoring", MonitoringArgs(config=config), on_google) if config.monitoring.enabled else None
# Behind all else, so that it is asked before all else when the stack is destroyed.
last = ResourceOptions(depends_on=[job, *([monitoring] if monitoring else [])])
WorkGuard("work", WorkGuardArgs(**guarded_work(config), **on_head), last)
for name, value in stack_outputs(config, gke=gke, lustre=lustre, ray=ray, job=job, monitoring=monitoring).items():
    pulumi.export(name, value)
