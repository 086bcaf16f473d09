"""What must hold between the values of a stack's config: each rule one pure function, with its source.

A rule's parameters are named after the sections that it reads (`stack` is the stack's name), so that it runs whenever
those sections are sound, whatever is wrong with the others. It returns what it found; it raises nothing.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network
from itertools import combinations

from components.lustre_tiers import LUSTRE_TIERS
from components.machines import GPU_MACHINES, SYSTEM_MACHINES
from components.sections import (
    ClusterSection,
    CreateCluster,
    CreateLustre,
    CreateNetwork,
    CreatePrivateServiceAccess,
    ExistingCluster,
    ExistingLustre,
    ExistingNetwork,
    ExistingPrivateServiceAccess,
    FlexStartCapacity,
    GpuPoolSection,
    JobSection,
    LustreSection,
    NetworkSection,
    PodResources,
    PrivateServiceAccessSection,
    ProjectSection,
    RaySection,
)
from jobs.errors import ConfigError
from jobs.problems import Problem, Severity
from jobs.recipe import recipe_problems
from jobs.releases import Release, release_for_image

Rule = Callable[..., list[Problem]]

# Names are `rlstack-<stack>` and a role; the limits are those of the services that hold them.
CLOUD_NAMES = {
    "Lustre instance": ("rlstack-{stack}", 63),
    "RayCluster": ("rlstack-{stack}", 53),  # KubeRay appends to it for pods and services
    "GKE cluster": ("rlstack-{stack}", 40),
    "GPU node pool": ("rlstack-{stack}-gpu", 40),
    "node service account": ("rlstack-{stack}-nodes", 30),
}
_STACK_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def names_fit(stack: str) -> list[Problem]:
    """Every cloud name carries the stack's name, so its letters and length are those of the strictest service.

    Sources: GKE (cluster and node pool: 40), IAM (service account id: 6 to 30), KubeRay (RayCluster: 53), Lustre (63).
    """
    problems = []
    if not _STACK_NAME.fullmatch(stack):
        problems.append(
            Problem(
                key="stack",
                value=stack,
                reason="names in Google Cloud are lower-case letters, digits and inner hyphens, a letter first",
                remedy="Make the stack under such a name: pulumi stack init NAME",
            )
        )
    for what, (pattern, limit) in CLOUD_NAMES.items():
        name = pattern.format(stack=stack)
        if len(name) > limit:
            problems.append(
                Problem(
                    key="stack",
                    value=stack,
                    reason=f"the {what} would be called {name}, {len(name)} characters of at most {limit}",
                    remedy=f"Use a stack name that is {len(name) - limit} characters shorter",
                )
            )
    return problems


def zone_in_region(project: ProjectSection) -> list[Problem]:
    """A zone's name is its region's and a letter (cluster-toolkit: test_zone_in_region)."""
    if re.fullmatch(rf"{re.escape(project.region)}-[a-z]", project.zone):
        return []
    return [
        Problem(
            key="project.zone",
            value=project.zone,
            reason=f"it is no zone of the region {project.region}, so nodes and Lustre could not share a subnet",
            remedy=f"Write a zone such as {project.region}-b, or correct project.region",
        )
    ]


def addresses_disjoint(network: NetworkSection, private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """Subnet, pods, services and the range of Google's services share one routing table."""
    ranges: dict[str, IPv4Network] = {"private_service_access.range_start": private_service_access.cidr}
    if isinstance(network, CreateNetwork):
        ranges |= {f"network.{key}": getattr(network, key) for key in ("subnet_cidr", "pods_cidr", "services_cidr")}
    return [
        Problem(
            key=later,
            value=str(ranges[later]),
            reason=f"it overlaps {earlier}={ranges[earlier]}, and one of the two would be unreachable",
            remedy="Move one of them to a free range",
        )
        for earlier, later in combinations(sorted(ranges), 2)
        if ranges[earlier].overlaps(ranges[later])
    ]


LARGEST_PSA_PREFIX = 24


def range_holds_lustre(private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """Managed Lustre asks for a /24 or larger (cluster-toolkit's blueprint: /22; the devrel demo: /24)."""
    prefix = private_service_access.prefix_length
    if prefix <= LARGEST_PSA_PREFIX:
        return []
    return [
        Problem(
            key="private_service_access.prefix_length",
            value=str(prefix),
            reason=f"Lustre needs 256 addresses or more and a /{prefix} has {2 ** (32 - prefix)}",
            remedy=f"Write {LARGEST_PSA_PREFIX} or a smaller number",
        )
    ]


def peering_is_ours(network: NetworkSection, private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """Removing the peering of a shared network cuts off everybody's databases and file systems there."""
    if isinstance(network, CreateNetwork) or not isinstance(private_service_access, CreatePrivateServiceAccess):
        return []
    if private_service_access.deletion_policy != "REMOVE_PEERING":
        return []
    return [
        Problem(
            key="private_service_access.deletion_policy",
            value="REMOVE_PEERING",
            reason=f"the network {network.network_name} is not the stack's own, and others may use its peering",
            remedy="Remove the key: the connection is then left alone",
        )
    ]


def adopted_parts_share_a_network(
    network: NetworkSection,
    private_service_access: PrivateServiceAccessSection,
    cluster: ClusterSection,
    lustre: LustreSection,
) -> list[Problem]:
    """The network of a connection, a cluster or an instance is fixed for its life, so theirs must be the stack's."""
    if isinstance(network, ExistingNetwork):
        return []
    adopted = {
        "private_service_access": isinstance(private_service_access, ExistingPrivateServiceAccess),
        "cluster": isinstance(cluster, ExistingCluster),
        "lustre": isinstance(lustre, ExistingLustre),
    }
    return [
        Problem(
            key=f"{section}.source",
            value="existing",
            reason="what exists lies in a network of its own, and a network that the stack makes cannot reach it",
            remedy="Set network.source to existing and name that network",
        )
        for section, is_adopted in adopted.items()
        if is_adopted
    ]


def one_connection(lustre: LustreSection, private_service_access: PrivateServiceAccessSection) -> list[Problem]:
    """A network has one connection to Google's services, and an instance on it proves that it is there."""
    if isinstance(lustre, CreateLustre) or isinstance(private_service_access, ExistingPrivateServiceAccess):
        return []
    return [
        Problem(
            key="private_service_access.source",
            value="create",
            reason=f"the network of Lustre instance {lustre.instance_id} has its connection, and takes no second one",
            remedy="Write existing",
        )
    ]


def control_plane_is_closed(cluster: ClusterSection) -> list[Problem]:
    """Authorized networks that hold every address authorize everybody (cluster-toolkit asks for one /32)."""
    if not isinstance(cluster, CreateCluster):
        return []
    return [
        Problem(
            key=f"cluster.authorized_networks.{index}.cidr",
            value=str(entry.cidr),
            reason="it opens the control plane's address to the whole internet",
            remedy="Name your own addresses, or remove the entry: the DNS endpoint needs none and IAM guards it",
        )
        for index, entry in enumerate(cluster.authorized_networks)
        if entry.cidr.prefixlen == 0
    ]


def capacity_on_tier(lustre: LustreSection) -> list[Problem]:
    """An instance's size lies on its tier's step; Google refuses any other after minutes."""
    if not isinstance(lustre, CreateLustre):
        return []
    tier, capacity = LUSTRE_TIERS[lustre.throughput_mbps_per_tib], lustre.capacity_gib
    if not tier.allows(capacity):
        below, above = tier.nearest(capacity)
        sizes = str(below) if below == above else f"{below} or {above}"
        return [
            Problem(
                key="lustre.capacity_gib",
                value=str(capacity),
                reason=f"the {lustre.throughput_mbps_per_tib} MB/s per TiB tier goes from {tier.minimum} to "
                f"{tier.maximum} GiB in multiples of {tier.minimum}, above {tier.threshold} of {tier.large_step}",
                remedy=f"Write {sizes}",
            )
        ]
    if capacity > tier.older_maximum:
        return [
            Problem(
                key="lustre.capacity_gib",
                value=str(capacity),
                reason=f"some of Google's pages still give {tier.older_maximum} GiB as this tier's maximum",
                remedy="Ask for the quota before you rely on it",
                severity=Severity.WARNING,
            )
        ]
    return []


def filesystem_name(lustre: LustreSection) -> list[Problem]:
    """Lustre's own limit: eight letters or digits (pulumi-gcp: lustre.Instance.filesystem)."""
    if not isinstance(lustre, CreateLustre) or re.fullmatch(r"[a-z0-9]{1,8}", lustre.filesystem):
        return []
    return [
        Problem(
            key="lustre.filesystem",
            value=lustre.filesystem,
            reason="a Lustre file system's name is one to eight lower-case letters or digits",
            remedy="Write a shorter name, for example lustrefs",
        )
    ]


def machine_types_known(cluster: ClusterSection, gpu_pool: GpuPoolSection) -> list[Problem]:
    """Requests, taints and disks follow from the machine's row, so there must be one."""
    asked = {"gpu_pool.machine_type": (gpu_pool.machine_type, GPU_MACHINES)}
    if isinstance(cluster, CreateCluster):
        asked["cluster.system_pool.machine_type"] = (cluster.system_pool.machine_type, SYSTEM_MACHINES)
    return [
        Problem(
            key=key,
            value=machine_type,
            reason="this machine type has no row in components/machines.py for this use",
            remedy=f"Use one of {', '.join(rows)}, or add a row",
        )
        for key, (machine_type, rows) in asked.items()
        if machine_type not in rows
    ]


def zone_offers_machine(project: ProjectSection, gpu_pool: GpuPoolSection) -> list[Problem]:
    """Zones in the table age, so this warns; the cloud has the last word (cluster-toolkit: machine_type_in_zone)."""
    machine = GPU_MACHINES.get(gpu_pool.machine_type)
    if machine is None or project.zone in machine.zones:
        return []
    read = f"was not among its zones on {machine.zones_read_on}" if machine.zones else "may not offer it: unread"
    return [
        Problem(
            key="project.zone",
            value=project.zone,
            reason=f"for {gpu_pool.machine_type}, this zone {read}",
            remedy=f"Check: gcloud compute machine-types list --filter=name={gpu_pool.machine_type}",
            severity=Severity.WARNING,
        )
    ]


def flex_start_is_elastic(gpu_pool: GpuPoolSection) -> list[Problem]:
    """GKE takes flex-start only for a pool without a fixed count (cluster-toolkit: gke-node-pool preconditions)."""
    if not isinstance(gpu_pool.capacity, FlexStartCapacity) or gpu_pool.scaling == "elastic":
        return []
    return [
        Problem(
            key="gpu_pool.scaling",
            value=gpu_pool.scaling,
            reason="flex-start nodes come one by one when Google has them, so GKE refuses a fixed number",
            remedy="Write elastic",
        )
    ]


def _fits(where: str, pod: PodResources, *, cpu: int, memory_gib: int, machine_type: str) -> Iterator[Problem]:
    for key, asked, limit, unit in (
        ("cpu", pod.cpu, cpu, "CPUs"),
        ("memory_gib", pod.memory_gib, memory_gib, "GiB"),
    ):
        if asked > limit:
            yield Problem(
                key=f"{where}.{key}",
                value=str(asked),
                reason=f"a {machine_type} leaves {limit} {unit} to this pod, which would stay pending for ever",
                remedy=f"Ask for at most {limit}, or choose a larger machine type",
            )
    if pod.shared_memory_gib >= pod.memory_gib:
        yield Problem(
            key=f"{where}.shm_gib",
            value=str(pod.shared_memory_gib),
            reason=f"shared memory counts against the pod's {pod.memory_gib} GiB, so filling it would kill the pod",
            remedy=f"Write less than {pod.memory_gib}",
        )


def pods_fit_machines(cluster: ClusterSection, gpu_pool: GpuPoolSection, ray: RaySection) -> list[Problem]:
    """A pod that asks for more than a node can give is pending for ever; a Memory emptyDir counts as its memory."""
    problems: list[Problem] = []
    if isinstance(cluster, CreateCluster) and cluster.system_pool.machine_type in SYSTEM_MACHINES:
        machine_type = cluster.system_pool.machine_type
        row = SYSTEM_MACHINES[machine_type]
        # Cluster pods (DNS, metrics, monitoring) share the node with the head.
        problems += _fits(
            "ray.head",
            ray.head,
            cpu=row.allocatable_cpu - 1,
            memory_gib=row.allocatable_memory_gib - 4,
            machine_type=machine_type,
        )
    if ray.worker is not None and gpu_pool.machine_type in GPU_MACHINES:
        row = GPU_MACHINES[gpu_pool.machine_type]
        problems += _fits(
            "ray.worker",
            ray.worker,
            cpu=row.pod_cpu,
            memory_gib=row.pod_memory_gib,
            machine_type=gpu_pool.machine_type,
        )
    return problems


def _release(ray: RaySection) -> Release | None:
    try:
        return release_for_image(ray.image, ray.release)
    except ConfigError:
        return None


def ray_version_follows_image(ray: RaySection) -> list[Problem]:
    """KubeRay picks probes by rayVersion (ray-operator/controllers/ray/common/pod.go: supportsUnifiedHealthCheck)."""
    try:
        release = release_for_image(ray.image, ray.release)
    except ConfigError as error:
        return list(error.problems)
    if ray.ray_version in {None, release.ray_version}:
        return []
    return [
        Problem(
            key="ray.ray_version",
            value=str(ray.ray_version),
            reason=f"the image {ray.image} holds Ray {release.ray_version}, and KubeRay chooses its probes by this "
            "number: pods would never become ready",
            remedy="Remove ray.ray_version: it follows from the image",
        )
    ]


def recipe_can_train(gpu_pool: GpuPoolSection, ray: RaySection, job: JobSection) -> list[Problem]:
    """The recipe's own rules, on this stack's nodes and image (jobs/recipe.py, jobs/training_rules.py)."""
    release, machine = _release(ray), GPU_MACHINES.get(gpu_pool.machine_type)
    if release is None or machine is None or machine.accelerators is None:
        return []
    return recipe_problems(
        job.grpo,
        nodes=gpu_pool.node_count,
        gpus_per_node=machine.accelerators.count,
        release=release,
        section="job.grpo",
    )


RULES: tuple[Rule, ...] = (
    names_fit,
    zone_in_region,
    zone_offers_machine,
    addresses_disjoint,
    range_holds_lustre,
    peering_is_ours,
    adopted_parts_share_a_network,
    one_connection,
    capacity_on_tier,
    filesystem_name,
    control_plane_is_closed,
    machine_types_known,
    flex_start_is_elastic,
    pods_fit_machines,
    ray_version_follows_image,
    recipe_can_train,
)
