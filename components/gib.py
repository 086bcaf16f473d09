"""gIB, Google's NCCL plugin for RDMA over RoCE: its installer on the nodes, and what pods need to use it.

A DaemonSet puts plugin and NCCL on every node of the GPU pool, as Google's own `nccl-rdma-installer` does
(container-engine-accelerators, gpudirect-rdma; cluster-toolkit, modules/management/kubectl-apply), in a pinned
version. Pods mount both directories from the node and get the settings for their machine type as variables.

The settings are on the head, too, where nothing uses them: NeMo-RL hands its driver's whole environment to every actor
(nemo_rl/distributed/virtual_cluster.py, init_ray), and what the driver has wins over what the worker's container has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

from components.gke_networks import interface_annotations
from components.machines import Accelerators

NAMESPACE = "kube-system"
NAME = "nccl-rdma-installer"
# Release of 2025-08-15 (container-engine-accelerators, gpudirect-rdma/README.md); on cluster-toolkit's list of versions
# that it allows. The values in `gib_environment` are those of this version: raise both together.
IMAGE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.0"
PAUSE_IMAGE = "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
NODE_PROGRAMS_DIR = "/home/kubernetes/bin"
HOST_MOUNT = "/host"

# A worker's mount of gib waits until the directory is there, so a first installation makes it complete and at once; a
# later one writes into it, for running pods hold the directory itself. Martian packets are those that RDMA NICs of one
# node send to each other; logging them floods the kernel's log.
INSTALL = f"""set -ex
for switch in /proc/sys/net/ipv4/conf/gpu*rdma0/log_martians; do echo 0 > "$switch" || true; done
/scripts/container_entry.sh install --install-nccl
mkdir -p {HOST_MOUNT}/nvidia/lib64
cp -r /var/lib/gib/lib64/. {HOST_MOUNT}/nvidia/lib64
if [ -d {HOST_MOUNT}/gib ]; then cp -r /var/lib/gib/. {HOST_MOUNT}/gib; exit; fi
rm -rf {HOST_MOUNT}/gib.part
cp -r /var/lib/gib {HOST_MOUNT}/gib.part
mv {HOST_MOUNT}/gib.part {HOST_MOUNT}/gib
"""


@dataclass(frozen=True, kw_only=True)
class GibArgs:
    """Inputs of `Gib`.

    Attributes:
        gpu_pool: the node pool whose nodes get the plugin.
    """

    gpu_pool: pulumi.Input[str]

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {"gpu_pool": self.gpu_pool, "image": IMAGE}


class Gib(pulumi.ComponentResource):
    """The installer of gIB on the nodes of one pool, those that come later included."""

    def __init__(self, name: str, args: GibArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:gib:Gib", name, args.as_inputs(), opts)
        kubernetes.apps.v1.DaemonSet(
            f"{name}-installer",
            metadata={
                "name": NAME,
                "namespace": NAMESPACE,
                # An elastic pool has no node yet, and waiting for its first would wait for a run.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec=installer_spec(args.gpu_pool),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


def installer_spec(gpu_pool: pulumi.Input[str]) -> dict[str, Any]:
    """Build the spec of the DaemonSet."""
    labels = {"k8s-app": NAME}
    return {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "priorityClassName": "system-node-critical",
                "nodeSelector": {"cloud.google.com/gke-nodepool": gpu_pool},
                "tolerations": [{"operator": "Exists"}],
                # The NICs whose settings it changes are the node's own.
                "hostNetwork": True,
                "hostPID": True,
                "automountServiceAccountToken": False,
                "initContainers": [
                    {
                        "name": "installer",
                        "image": IMAGE,
                        "command": ["/bin/sh", "-c", INSTALL],
                        "resources": {"requests": {"cpu": "150m"}},
                        "securityContext": {"privileged": True},
                        "volumeMounts": [{"name": "host", "mountPath": HOST_MOUNT}],
                    }
                ],
                "containers": [{"name": "pause", "image": PAUSE_IMAGE}],
                "volumes": [{"name": "host", "hostPath": {"path": NODE_PROGRAMS_DIR, "type": "Directory"}}],
            },
        },
    }


def gib_environment(accelerators: Accelerators) -> dict[str, str]:
    """Build the environment in which NCCL uses gIB; sockets for control stay on the first NIC, as without it.

    Source of the values: Google's guide to Ray on A4 and A3 Ultra, which hands them to Ray as variables, too. The
    plugin's own `set_nccl_env.sh` could not be read.
    """
    return {
        "LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/local/nvidia/lib64",
        "NCCL_NET": "gIB",
        "NCCL_CROSS_NIC": "0",
        "NCCL_NET_GDR_LEVEL": "PIX",
        "NCCL_P2P_NET_CHUNKSIZE": "131072",
        "NCCL_NVLS_CHUNKSIZE": "524288",
        "NCCL_IB_ADAPTIVE_ROUTING": "1",
        "NCCL_IB_QPS_PER_CONNECTION": "4",
        "NCCL_IB_TC": "52",
        "NCCL_IB_FIFO_TC": "84",
        "NCCL_TUNER_CONFIG_PATH": f"/usr/local/gib/configs/{accelerators.nccl_tuner_config}",
    }


def with_gib(pod: Mapping[str, Any], accelerators: Accelerators) -> dict[str, Any]:
    """Build the template of a worker pod that gets the node's NICs and gIB, from the pod's spec without them."""
    mounts = {"gib": "/usr/local/gib", "nvidia": "/usr/local/nvidia"}
    volumes = [
        {"name": name, "hostPath": {"path": f"{NODE_PROGRAMS_DIR}/{name}", "type": "Directory"}} for name in mounts
    ]
    volume_mounts = [{"name": name, "mountPath": path} for name, path in mounts.items()]
    (container,) = pod["containers"]
    return {
        "metadata": {"annotations": interface_annotations(accelerators)},
        "spec": {
            **pod,
            "containers": [{**container, "volumeMounts": [*container["volumeMounts"], *volume_mounts]}],
            "volumes": [*pod["volumes"], *volumes],
        },
    }
