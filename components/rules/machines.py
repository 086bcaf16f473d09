"""Machine types, where they are offered, how they are bought, and the pods that must fit them."""

import re
from collections.abc import Iterator

from components.machines import GPU_MACHINES, SYSTEM_MACHINES
from components.sections import (
    ClusterSection,
    CreateCluster,
    FlexStartCapacity,
    GpuPoolSection,
    PodResources,
    ProjectSection,
    RaySection,
    ReservationCapacity,
    SpotCapacity,
)
from jobs.problems import Problem, Severity

_RESERVATION = re.compile(r"(projects/[a-z][-a-z0-9]*/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


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


def fixed_pool_has_its_nodes(gpu_pool: GpuPoolSection) -> list[Problem]:
    """A fixed pool is made with all its nodes, and Google has Spot machines when it has them.

    Source: terraform-provider-google's public issue 6287 (a pool that met a stockout).
    """
    if gpu_pool.scaling == "elastic" or not isinstance(gpu_pool.capacity, SpotCapacity):
        return []
    return [
        Problem(
            key="gpu_pool.scaling",
            value=gpu_pool.scaling,
            reason=f"`up` waits for {gpu_pool.node_count} Spot nodes and fails if Google lacks one of them, and all of "
            "them are paid for until `destroy`",
            remedy="Write elastic: the pool then takes nodes when the job asks",
            severity=Severity.WARNING,
        )
    ]


def reservation_is_named(gpu_pool: GpuPoolSection) -> list[Problem]:
    """One reservation, by name or by project and name (cluster-toolkit: gke-node-pool preconditions)."""
    capacity = gpu_pool.capacity
    if not isinstance(capacity, ReservationCapacity) or _RESERVATION.fullmatch(capacity.reservation):
        return []
    return [
        Problem(
            key="gpu_pool.capacity.reservation",
            value=capacity.reservation,
            reason="this is no reservation's name, and GKE takes exactly one",
            remedy="Write NAME, or projects/PROJECT/reservations/NAME for one that another project shares",
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
