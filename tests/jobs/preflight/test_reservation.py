"""A reservation serves only if all of it fits the pool."""

from typing import Any

import pytest

from components.config import StackConfig
from jobs.preflight.findings import Status
from jobs.preflight.reservation import check_reservation
from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import PROJECT, ZONE, look, stack

READY: dict[str, Any] = {
    "name": "mine",
    "status": "READY",
    "specificReservationRequired": True,
    "specificReservation": {
        "count": "8",
        "inUseCount": "0",
        "instanceProperties": {"machineType": "a4-highgpu-8g"},
    },
}


def reserved(name: str = "mine") -> StackConfig:
    return stack(gpu_pool__capacity={"kind": "reservation", "reservation": name})


def specific(**changes: Any) -> dict[str, Any]:
    return {**READY, "specificReservation": {**READY["specificReservation"], **changes}}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (READY, Status.OK, "reservation mine has 8 of 8 a4-highgpu-8g free"),
        ({**READY, "status": "CREATING"}, Status.FAIL, "is CREATING"),
        ({**READY, "specificReservationRequired": False}, Status.FAIL, "only if it is specific"),
        (specific(instanceProperties={"machineType": "a3-ultragpu-8g"}), Status.FAIL, "holds a3-ultragpu-8g"),
        (specific(count="7"), Status.FAIL, "holds 7 machines, a run needs 8"),
        (specific(inUseCount="1"), Status.WARN, "has 7 machines free"),
    ],
)
def test_a_reservation_is_held_against_the_pool(
    google: GoogleServer, body: dict[str, Any], status: Status, said: str
) -> None:
    google.answer("compute.reservations.get", body, project=PROJECT, zone=ZONE, reservation="mine")

    [found] = look(check_reservation, google, reserved())

    assert found.status is status
    assert said in found.detail


def test_a_shared_reservation_is_looked_for_in_its_owner_s_project(google: GoogleServer) -> None:
    google.answer("compute.reservations.get", READY, project="owner-project", zone=ZONE, reservation="mine")

    assert look(check_reservation, google, reserved("projects/owner-project/reservations/mine"))[0].status is Status.OK


def test_a_reservation_that_is_not_there_fails(google: GoogleServer) -> None:
    [found] = look(check_reservation, google, reserved())

    assert found.status is Status.FAIL
    assert found.remedy == f"gcloud compute reservations list --project {PROJECT}"
    assert look(check_reservation, google, stack()) == []
