"""Whether the reservation that the GPU nodes come from is there and fits them."""

import re
from collections.abc import Iterator

from components.sections import ReservationCapacity
from jobs.errors import GoogleNotFound
from jobs.preflight.findings import Finding, Subject, fail, ok, warn

_SHARED = re.compile(r"projects/(?P<project>[^/]+)/reservations/(?P<name>[^/]+)")


def check_reservation(subject: Subject) -> Iterator[Finding]:
    """Compare the reservation with the pool: GKE makes nodes only if all of it fits."""
    config = subject.config
    if not isinstance(config.gpu_pool.capacity, ReservationCapacity):
        return
    reserved = config.gpu_pool.capacity.reservation
    shared = _SHARED.match(reserved)
    owner, name = (shared["project"], shared["name"]) if shared else (config.project.project_id, reserved)
    zone = config.project.zone
    try:
        found = subject.google.get(
            "compute", lambda api: api.reservations().get(project=owner, zone=zone, reservation=name)
        )
    except GoogleNotFound:
        yield fail(
            f"There is no reservation {name} in {zone} of project {owner}",
            f"gcloud compute reservations list --project {owner}",
        )
        return
    specific = found.get("specificReservation", {})
    machine_type = specific.get("instanceProperties", {}).get("machineType")
    free = int(specific.get("count", 0)) - int(specific.get("inUseCount", 0))
    nodes = config.gpu_pool.node_count
    remedy = f"gcloud compute reservations describe {name} --zone {zone} --project {owner}"
    problems = []
    if found.get("status") != "READY":
        problems.append(fail(f"Reservation {name} is {found.get('status', 'in an unknown state')}", remedy))
    if not found.get("specificReservationRequired"):
        problems.append(
            fail(
                f"Reservation {name} is open to all machines, and GKE takes one by name only if it is specific",
                "Make it again with --require-specific-reservation",
            )
        )
    if machine_type != config.gpu_pool.machine_type:
        problems.append(
            fail(
                f"Reservation {name} holds {machine_type or 'an unnamed machine type'}, "
                f"the pool wants {config.gpu_pool.machine_type}",
                "Correct gpu_pool.machine_type or gpu_pool.capacity.reservation",
            )
        )
    if int(specific.get("count", 0)) < nodes:
        problems.append(
            fail(f"Reservation {name} holds {specific.get('count', 0)} machines, a run needs {nodes}", remedy)
        )
    elif free < nodes:
        problems.append(
            warn(f"Reservation {name} has {free} machines free, a run needs {nodes}", f"See who uses them: {remedy}")
        )
    yield from problems or [ok(f"reservation {name} has {free} of {specific['count']} {machine_type} free")]
