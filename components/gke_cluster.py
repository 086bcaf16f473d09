"""The GKE cluster: control plane, add-ons, node service account, and the pool of the Ray head.

The control plane answers at a DNS name that IAM guards, so no address range decides who gets in; the kubeconfig names
a plugin that asks for a token and holds none. Spot GPU nodes are `gpu_node_pool.py`'s. An existing cluster is read
and left as it is.
"""

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import CustomTimeouts, Output, ResourceOptions

from components.cluster_features import ClusterFeatures
from components.machines import SYSTEM_MACHINES
from components.managed_lustre import ManagedLustre
from components.network import Network
from components.placement import Placement
from components.sections import ClusterSection, CreateCluster, ExistingCluster

# What a node needs to log, to be measured and to pull images; storage and everything else is the workload's business.
NODE_ROLES = (
    "roles/logging.logWriter",
    "roles/monitoring.metricWriter",
    "roles/monitoring.viewer",
    "roles/stackdriver.resourceMetadata.writer",
    "roles/artifactregistry.reader",
)
CLOUD_PLATFORM_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# Waits for a regional control plane and for nodes; Google's own default is 90 minutes for clusters and 30 for pools,
# too short for a pool that meets a stockout.
CLUSTER_TIMEOUTS = CustomTimeouts(create="90m", update="90m", delete="90m")
POOL_TIMEOUTS = CustomTimeouts(create="120m", update="120m", delete="90m")


@dataclass(frozen=True, kw_only=True)
class GkeClusterArgs:
    """Inputs of `GkeCluster`.

    Attributes:
        place: where it lies and what it is called.
        config: the section.
        network: its network and subnet.
        lustre: what its nodes' pods mount.
        features: what other parts of the stack need of the cluster.
    """

    place: Placement
    config: ClusterSection
    network: Network
    lustre: ManagedLustre
    features: ClusterFeatures

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {
            "place": vars(self.place),
            "config": self.config.model_dump(mode="json"),
            "network_id": self.network.network_id,
            "features": vars(self.features),
        }


class GkeCluster(pulumi.ComponentResource):
    """A cluster with a pool for the Ray head.

    Attributes:
        cluster_id: the cluster.
        credentials_command: what a person types to reach it with kubectl.
        kubeconfig: how to reach it, as JSON text; without a token.
        system_pool: name of the pool for the Ray head.
        node_service_account: e-mail of the account that nodes run as.
        before_nodes: what is there before any node, and as long. Without the stack's grants to their account nodes run,
            log nothing and pull no image. Of the Lustre instance their pods may still have files open, and nodes go by
            Google's word even where no API server can be asked whether its pods have ended.
        features: what its nodes have to agree with.
    """

    cluster_id: Output[str]
    credentials_command: Output[str]
    kubeconfig: Output[str]
    system_pool: Output[str]
    node_service_account: Output[str]
    before_nodes: list[pulumi.Resource]

    def __init__(self, name: str, args: GkeClusterArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:gke_cluster:GkeCluster", name, args.as_inputs(), opts)
        self.features = args.features
        self.before_nodes = [args.lustre.instance]
        match args.config:
            case CreateCluster():
                cluster = self._create(name, args, args.config)
            case ExistingCluster():
                cluster = self._adopt(name, args, args.config)
        self.cluster_id = cluster.id
        self.credentials_command = Output.format(
            "gcloud container clusters get-credentials {} --region {} --project {} --dns-endpoint",
            cluster.name,
            args.place.region,
            args.place.project_id,
        )
        endpoint = cluster.control_plane_endpoints_config.apply(
            lambda endpoints: endpoints.dns_endpoint_config.endpoint
        )
        self.kubeconfig = Output.all(cluster.name, endpoint).apply(lambda values: kubeconfig(*values))
        self.register_outputs({"cluster_id": self.cluster_id, "system_pool": self.system_pool})

    def _adopt(self, name: str, args: GkeClusterArgs, config: ExistingCluster) -> gcp.container.Cluster:
        self.system_pool = Output.from_input(config.system_pool_name)
        self.node_service_account = Output.from_input(config.node_service_account)
        return gcp.container.Cluster.get(
            f"{name}-cluster",
            f"projects/{args.place.project_id}/locations/{args.place.region}/clusters/{config.cluster_name}",
            opts=ResourceOptions(parent=self),
        )

    def _create(self, name: str, args: GkeClusterArgs, config: CreateCluster) -> gcp.container.Cluster:
        account = gcp.serviceaccount.Account(
            f"{name}-nodes",
            account_id=f"{args.place.stack_name}-nodes",
            project=args.place.project_id,
            display_name=f"Nodes of {args.place.stack_name}",
            opts=ResourceOptions(parent=self),
        )
        self.before_nodes += [
            gcp.projects.IAMMember(
                f"{name}-nodes-{role.rpartition('/')[2]}",
                project=args.place.project_id,
                role=role,
                member=account.member,
                opts=ResourceOptions(parent=self),
            )
            for role in NODE_ROLES
        ]
        cluster = gcp.container.Cluster(
            f"{name}-cluster",
            name=args.place.stack_name,
            project=args.place.project_id,
            location=args.place.region,
            network=args.network.network_id,
            subnetwork=args.network.subnet_id,
            resource_labels=args.place.labels,
            **cluster_settings(args, config),
            opts=ResourceOptions(
                parent=self,
                custom_timeouts=CLUSTER_TIMEOUTS,
                # GKE fixes it when it makes a cluster, and the provider would find out only while it updates one.
                replace_on_changes=["enableMultiNetworking"],
                delete_before_replace=True,
            ),
        )
        pool = gcp.container.NodePool(
            f"{name}-system",
            name=f"{args.place.stack_name}-system",
            project=args.place.project_id,
            location=args.place.region,
            cluster=cluster.id,
            node_locations=[args.place.zone],
            node_count=config.system_pool.node_count,
            management={"auto_repair": True, "auto_upgrade": True},
            node_config={
                "machine_type": config.system_pool.machine_type,
                "disk_type": SYSTEM_MACHINES[config.system_pool.machine_type].boot_disk_type,
                "disk_size_gb": config.system_pool.disk_gib,
                "resource_labels": args.place.labels,
                **node_identity(account.email, image_streaming=args.features.image_streaming),
            },
            opts=ResourceOptions(parent=self, depends_on=self.before_nodes, custom_timeouts=POOL_TIMEOUTS),
        )
        self.system_pool = pool.name
        self.node_service_account = account.email
        return cluster


def node_identity(service_account: pulumi.Input[str], *, image_streaming: bool) -> dict[str, Any]:
    """Build what all nodes have in common: who they are, what they run, and how they prove it."""
    return {
        "service_account": service_account,
        "oauth_scopes": [CLOUD_PLATFORM_SCOPE],
        "image_type": "COS_CONTAINERD",
        # Left out, an update would keep what it was.
        "gcfs_config": {"enabled": image_streaming},
        "gvnic": {"enabled": True},
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "shielded_instance_config": {"enable_secure_boot": True, "enable_integrity_monitoring": True},
    }


def cluster_settings(args: GkeClusterArgs, config: CreateCluster) -> dict[str, Any]:
    """Build the settings of a cluster of the stack's own, as arguments of `gcp.container.Cluster`."""
    authorized = [{"cidr_block": str(entry.cidr), "display_name": entry.name} for entry in config.authorized_networks]
    return {
        "node_locations": [args.place.zone],
        # GKE makes no cluster without a pool; this one goes at once, the stack's own pools follow.
        "remove_default_node_pool": True,
        "initial_node_count": 1,
        "networking_mode": "VPC_NATIVE",
        "ip_allocation_policy": {
            "cluster_secondary_range_name": args.network.pods_range,
            "services_secondary_range_name": args.network.services_range,
        },
        # Enforces NetworkPolicy, too; multi-networking needs it.
        "datapath_provider": "ADVANCED_DATAPATH",
        **({"enable_multi_networking": True} if args.features.multi_networking else {}),
        "private_cluster_config": {"enable_private_nodes": True},
        "control_plane_endpoints_config": {
            "dns_endpoint_config": {"allow_external_traffic": True},
            "ip_endpoints_config": {"enabled": bool(authorized)},
        },
        **({"master_authorized_networks_config": {"cidr_blocks": authorized}} if authorized else {}),
        "release_channel": {"channel": "REGULAR"},
        "min_master_version": config.min_version,
        "workload_identity_config": {"workload_pool": f"{args.place.project_id}.svc.id.goog"},
        # The cluster holds nothing that the stack cannot make again, and protection would stop a destroy half-way.
        "deletion_protection": config.deletion_protection,
        "addons_config": {
            "ray_operator_configs": [
                {
                    "enabled": config.ray_operator,
                    "ray_cluster_logging_config": {"enabled": config.ray_operator},
                    "ray_cluster_monitoring_config": {"enabled": config.ray_operator},
                }
            ],
            "lustre_csi_driver_config": {
                "enabled": True,
                "enable_legacy_lustre_port": args.features.legacy_lustre_port,
                # From GKE 1.35.2-gke.1842000 on the driver spreads its traffic over all gVNICs and wants them in one
                # VPC; with the fast network they lie in two.
                **({"disable_multi_nic": True} if args.features.multi_networking else {}),
            },
            "gcs_fuse_csi_driver_config": {"enabled": True},
        },
        "monitoring_config": {
            "enable_components": ["SYSTEM_COMPONENTS", "DCGM"],
            "managed_prometheus": {"enabled": True},
        },
        "logging_config": {"enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
        # A node upgrade in the middle of a run is a preemption that nobody asked for.
        "maintenance_policy": {
            "daily_maintenance_window": {"start_time": "09:00"},
            "maintenance_exclusions": [
                {
                    "exclusion_name": "no-minor-or-node-upgrades",
                    "start_time": "2025-12-01T00:00:00Z",
                    "exclusion_options": {
                        "scope": "NO_MINOR_OR_NODE_UPGRADES",
                        "end_time_behavior": "UNTIL_END_OF_SUPPORT",
                    },
                }
            ],
        },
    }


def kubeconfig(cluster: str, endpoint: str) -> str:
    """Render the kubeconfig of a cluster as JSON text.

    It names no certificate authority: the DNS endpoint's certificate is one that every machine trusts.

    Args:
        cluster: name of the cluster.
        endpoint: its DNS endpoint, a host name.
    """
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": f"https://{endpoint}"}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "users": [
                {
                    "name": cluster,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "gke-gcloud-auth-plugin",
                            "installHint": "gcloud components install gke-gcloud-auth-plugin",
                            "provideClusterInfo": True,
                        }
                    },
                }
            ],
        },
        sort_keys=True,
    )
