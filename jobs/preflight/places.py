"""Whether the zone has what the stack wants there: machines, Lustre, and the profile of RDMA networks."""

from collections.abc import Iterator
from typing import Any

from components.fast_network import network_profile
from components.machines import MACHINES
from components.sections import CreateCluster, CreateLustre
from jobs.errors import GoogleNotFound
from jobs.preflight.findings import Finding, Subject, fail, ok, warn


def check_zone(subject: Subject) -> Iterator[Finding]:
    """See that the zone exists, is up and lies in the region."""
    place = subject.config.project
    where = {"project": place.project_id, "zone": place.zone}
    try:
        zone = subject.google.get("compute", lambda api: api.zones().get(**where))
    except GoogleNotFound as error:
        yield fail(
            f"{place.zone} is no zone, or {place.project_id} no project that you may see: {error}",
            f"gcloud compute zones list --project {place.project_id}",
        )
        return
    region = zone.get("region", "").rpartition("/")[2]
    if region != place.region:
        yield fail(
            f"{place.zone} lies in {region or 'an unnamed region'}, not in {place.region}",
            "Correct project.region or project.zone",
        )
    elif zone.get("status") != "UP":
        yield fail(f"{place.zone} is {zone.get('status', 'in an unknown state')}", "Wait, or take another project.zone")
    else:
        yield ok(f"{place.zone} is up")


def check_machines(subject: Subject) -> Iterator[Finding]:
    """See that the zone offers the machine types, and that these are what the table of machines says."""
    config = subject.config
    yield from _check_machine(subject, config.gpu_pool.machine_type)
    if isinstance(config.cluster, CreateCluster):
        yield from _check_machine(subject, config.cluster.system_pool.machine_type)


def _check_machine(subject: Subject, machine_type: str) -> Iterator[Finding]:
    place, row = subject.config.project, MACHINES[machine_type]
    where = {"project": place.project_id, "zone": place.zone}
    zones = f"gcloud compute machine-types list --project {place.project_id} --filter='name={machine_type}'"
    try:
        offered = subject.google.get("compute", lambda api: api.machineTypes().get(**where, machineType=machine_type))
    except GoogleNotFound:
        yield fail(f"{place.zone} does not offer {machine_type}", f"Take a zone that does: {zones}")
        return
    wanted: dict[str, Any] = {"guestCpus": row.cpu}
    if row.accelerators:
        wanted["accelerators"] = [
            {"guestAcceleratorType": row.accelerators.type, "guestAcceleratorCount": row.accelerators.count}
        ]
    different = [name for name, value in wanted.items() if offered.get(name) != value]
    if different:
        yield warn(
            f"{machine_type} differs from components/machines.py in {', '.join(different)}: "
            f"{', '.join(str(offered.get(name)) for name in different)}",
            "Correct the row, and look at the pod sizes that follow from it",
        )
    if row.accelerators:
        gpu = row.accelerators.type
        try:
            subject.google.get("compute", lambda api: api.acceleratorTypes().get(**where, acceleratorType=gpu))
        except GoogleNotFound:
            yield fail(f"{place.zone} does not offer {gpu}", f"Take a zone that does: {zones}")
            return
    yield ok(f"{place.zone} offers {machine_type}")


def check_lustre_zone(subject: Subject) -> Iterator[Finding]:
    """See that Managed Lustre makes instances in the zone."""
    place = subject.config.project
    if not isinstance(subject.config.lustre, CreateLustre):
        return
    zones = subject.google.lustre_zones(place.project_id)
    if place.zone in zones:
        yield ok(f"Managed Lustre makes instances in {place.zone}")
        return
    near = sorted(zone for zone in zones if zone.startswith(f"{place.region}-")) or sorted(zones)
    yield fail(
        f"Managed Lustre makes no instances in {place.zone}",
        f"Take a project.zone among {', '.join(near) or '(none is listed)'}, which has to offer the GPUs too",
    )


def check_network_profile(subject: Subject) -> Iterator[Finding]:
    """See that the zone has the profile from which networks for RDMA over RoCE are made."""
    place = subject.config.project
    if not subject.config.has_fast_network:
        return
    profile = network_profile(subject.config.placement).rpartition("/")[2]
    try:
        subject.google.get(
            "compute", lambda api: api.networkProfiles().get(project=place.project_id, networkProfile=profile)
        )
    except GoogleNotFound:
        yield fail(
            f"There is no network profile {profile}, so no RDMA network can be made in {place.zone}",
            f"Take another zone (gcloud compute network-profiles list --project {place.project_id}), "
            "or set gpu_pool.fast_network to false",
        )
        return
    yield ok(f"network profile {profile} is there")
