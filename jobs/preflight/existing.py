"""Whether the parts that the config adopts are there and have what the stack takes for granted."""

from collections.abc import Iterator
from typing import Any

from components.config import StackConfig
from components.rules.gke import unmet_needs
from components.sections import (
    ExistingCluster,
    ExistingLustre,
    ExistingNetwork,
    ExistingPrivateServiceAccess,
    lustre_port,
)
from jobs.errors import GoogleNotFound
from jobs.preflight.findings import Finding, Subject, fail, ok, warn

SERVICE_PEERING = "servicenetworking-googleapis-com"
_ACTIVE = "ACTIVE"
_RUNNING = ("RUNNING", "RECONCILING")


def check_existing_network(subject: Subject) -> Iterator[Finding]:
    """See that network, subnet and ranges are there, and the connection to Google's services where it is adopted."""
    config, place = subject.config, subject.config.project
    if not isinstance(config.network, ExistingNetwork):
        return
    name, subnet_name = config.network.network_name, config.network.subnet_name
    try:
        network = subject.google.get("compute", lambda api: api.networks().get(project=place.project_id, network=name))
    except GoogleNotFound:
        yield fail(
            f"There is no network {name} in project {place.project_id}",
            f"gcloud compute networks list --project {place.project_id}",
        )
        return
    try:
        subnet = subject.google.get(
            "compute",
            lambda api: api.subnetworks().get(project=place.project_id, region=place.region, subnetwork=subnet_name),
        )
    except GoogleNotFound:
        yield fail(
            f"There is no subnet {subnet_name} in {place.region}",
            f"gcloud compute networks subnets list --network {name} --project {place.project_id}",
        )
        return
    problems = [*_subnet_problems(config, config.network, subnet)]
    if isinstance(config.private_service_access, ExistingPrivateServiceAccess):
        states = {peering["name"]: peering.get("state") for peering in network.get("peerings", [])}
        if states.get(SERVICE_PEERING) != _ACTIVE:
            problems.append(
                fail(
                    f"Network {name} has no active connection to Google's services, so no pod reaches Lustre",
                    "Set private_service_access.source to create",
                )
            )
    yield from problems or [ok(f"network {name} and subnet {subnet_name} have what is needed")]


def _subnet_problems(config: StackConfig, wanted: ExistingNetwork, subnet: dict[str, Any]) -> Iterator[Finding]:
    place = config.project
    update = (
        f"gcloud compute networks subnets update {wanted.subnet_name} "
        f"--region {place.region} --project {place.project_id}"
    )
    if subnet.get("network", "").rpartition("/")[2] != wanted.network_name:
        yield fail(
            f"Subnet {wanted.subnet_name} is not of network {wanted.network_name}",
            "Correct network.network_name or network.subnet_name",
        )
    ranges = {entry["rangeName"] for entry in subnet.get("secondaryIpRanges", [])}
    for name in (wanted.pods_range_name, wanted.services_range_name):
        if name not in ranges:
            yield fail(
                f"Subnet {wanted.subnet_name} has no range {name}, only {', '.join(sorted(ranges)) or 'none'}",
                f"Correct the name, or: {update} --add-secondary-ranges {name}=CIDR",
            )
    if not subnet.get("privateIpGoogleAccess"):
        yield warn(
            f"Subnet {wanted.subnet_name} has no private Google access; nodes have no public addresses",
            f"{update} --enable-private-ip-google-access",
        )


def check_existing_cluster(subject: Subject) -> Iterator[Finding]:
    """See that the cluster runs and has the add-ons, the endpoint and the system pool that the stack builds on."""
    config, place = subject.config, subject.config.project
    if not isinstance(config.cluster, ExistingCluster):
        return
    name = config.cluster.cluster_name
    path = f"projects/{place.project_id}/locations/{place.region}/clusters/{name}"
    try:
        cluster = subject.google.get("container", lambda api: api.projects().locations().clusters().get(name=path))
    except GoogleNotFound:
        yield fail(
            f"There is no cluster {name} in {place.region}",
            f"gcloud container clusters list --project {place.project_id}",
        )
        return
    problems = [*_cluster_problems(config, config.cluster, cluster)]
    yield from problems or [ok(f"cluster {name} has what is needed")]


def _cluster_problems(config: StackConfig, wanted: ExistingCluster, cluster: dict[str, Any]) -> Iterator[Finding]:
    name, place = wanted.cluster_name, config.project
    update = f"gcloud container clusters update {name} --location {place.region} --project {place.project_id}"
    addons, network = cluster.get("addonsConfig", {}), cluster.get("networkConfig", {})
    lustre = addons.get("lustreCsiDriverConfig", {})
    endpoint = cluster.get("controlPlaneEndpointsConfig", {}).get("dnsEndpointConfig", {})
    if cluster.get("status") not in _RUNNING:
        yield fail(f"Cluster {name} is {cluster.get('status', 'in an unknown state')}", "Repair or replace it")
    if isinstance(config.network, ExistingNetwork):
        on, ours = (cluster.get("network"), cluster.get("subnetwork")), config.network
        if on != (ours.network_name, ours.subnet_name):
            yield fail(
                f"Cluster {name} is on network {on[0]}, subnet {on[1]}; the config says {ours.network_name}, "
                f"{ours.subnet_name}: no pod would reach Lustre",
                "Correct network.network_name and network.subnet_name",
            )
    version = str(cluster.get("currentMasterVersion", ""))
    for need in unmet_needs(version, wanted, config.gpu_pool, config.lustre) if version else ():
        yield fail(
            f"Cluster {name} is of version {version}, and {need.feature} needs {' or '.join(need.oldest)} or newer",
            f"gcloud container clusters upgrade {name} --master --location {place.region} --project {place.project_id}"
            f"{need.remedy}",
        )
    if wanted.system_pool_name not in {pool.get("name") for pool in cluster.get("nodePools", [])}:
        yield fail(
            f"Cluster {name} has no node pool {wanted.system_pool_name} for the Ray head",
            f"gcloud container node-pools list --cluster {name} --location {place.region} --project {place.project_id}",
        )
    if not addons.get("rayOperatorConfig", {}).get("enabled"):
        yield fail(
            f"Cluster {name} has no RayOperator add-on, so no RayCluster starts",
            f"{update} --update-addons RayOperator=ENABLED",
        )
    if not lustre.get("enabled"):
        yield fail(
            f"Cluster {name} has no Lustre CSI driver, so no pod mounts Lustre",
            f"{update} --update-addons LustreCsiDriver=ENABLED",
        )
    elif bool(lustre.get("enableLegacyLustrePort")) != config.lustre.legacy_port:
        yield fail(
            f"The Lustre CSI driver of cluster {name} speaks to port "
            f"{lustre_port(legacy=bool(lustre.get('enableLegacyLustrePort')))}, the config says {config.lustre.port}",
            "Correct lustre.legacy_port; instance, driver and firewall have to agree",
        )
    if network.get("datapathProvider") != "ADVANCED_DATAPATH":
        yield (fail if config.has_fast_network else warn)(
            f"Cluster {name} is without Dataplane V2: nothing enforces the NetworkPolicy round Ray's ports, "
            "and there is no RDMA in pods",
            "It is set when a cluster is made: take another cluster, or cluster.source create",
        )
    if config.has_fast_network and not network.get("enableMultiNetworking"):
        yield fail(
            f"Cluster {name} is without multi-networking, so pods get no RDMA interfaces",
            "It is set when a cluster is made: take another cluster, or set gpu_pool.fast_network to false",
        )
    if not (endpoint.get("endpoint") and endpoint.get("allowExternalTraffic")):
        yield fail(
            f"The control plane of cluster {name} does not answer at its DNS endpoint, the only one that is used",
            f"{update} --enable-dns-access",
        )


def check_existing_lustre(subject: Subject) -> Iterator[Finding]:
    """See that the instance is active, on the stack's network where that is adopted, and on the port of the config."""
    config, place = subject.config, subject.config.project
    if not isinstance(config.lustre, ExistingLustre):
        return
    name = config.lustre.instance_id
    try:
        instance = subject.google.lustre_instance(
            f"projects/{place.project_id}/locations/{place.zone}/instances/{name}"
        )
    except GoogleNotFound:
        yield fail(
            f"There is no Lustre instance {name} in {place.zone}",
            f"gcloud lustre instances list --location {place.zone} --project {place.project_id}",
        )
        return
    problems = []
    if instance.state.name != _ACTIVE:
        problems.append(
            fail(
                f"Lustre instance {name} is {instance.state.name} {instance.state_reason}".rstrip(), "Wait or repair it"
            )
        )
    if instance.gke_support_enabled != config.lustre.legacy_port:
        problems.append(
            fail(
                f"Lustre instance {name} was made {'with' if instance.gke_support_enabled else 'without'} GKE support, "
                f"so its port is {lustre_port(legacy=instance.gke_support_enabled)}; "
                f"the config says {config.lustre.port}",
                f"Set lustre.legacy_port to {str(instance.gke_support_enabled).lower()}",
            )
        )
    network = instance.network.rpartition("/")[2]
    if isinstance(config.network, ExistingNetwork) and network != config.network.network_name:
        problems.append(
            fail(
                f"Lustre instance {name} is on network {network}, the cluster on {config.network.network_name}",
                f"Set network.network_name to {network}, or take another instance",
            )
        )
    yield from problems or [ok(f"Lustre instance {name} is active, {instance.capacity_gib} GiB")]
