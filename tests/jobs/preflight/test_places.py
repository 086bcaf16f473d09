"""The zone is up, in the region, and has machines, Lustre and the RDMA profile; or the line says which is missing."""

from jobs.preflight.findings import Finding, Status
from jobs.preflight.places import check_lustre_zone, check_machines, check_network_profile, check_zone
from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import PROJECT, ZONE, ZONE_PATH, look, stack
from tests.jobs.preflight.test_access import EXISTING


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1
    return found[0]


def test_a_zone_that_is_not_there_fails(google: GoogleServer) -> None:
    google.forget("compute.zones.get", **ZONE_PATH)

    found = only(look(check_zone, google, stack()))

    assert found.status is Status.FAIL
    assert found.remedy == f"gcloud compute zones list --project {PROJECT}"


def test_a_zone_that_is_down_or_elsewhere_fails(google: GoogleServer) -> None:
    here = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/us-east1"
    google.answer("compute.zones.get", {"status": "DOWN", "region": here}, **ZONE_PATH)
    assert only(look(check_zone, google, stack())).detail == f"{ZONE} is DOWN"

    google.answer("compute.zones.get", {"status": "UP", "region": here.replace("east1", "west1")}, **ZONE_PATH)
    assert only(look(check_zone, google, stack())).detail == f"{ZONE} lies in us-west1, not in us-east1"


def test_a_machine_type_that_the_zone_does_not_offer_fails_with_the_way_to_zones_that_do(google: GoogleServer) -> None:
    google.forget("compute.machineTypes.get", **ZONE_PATH, machineType="a4-highgpu-8g")

    failed, other = look(check_machines, google, stack())

    assert failed.detail == f"{ZONE} does not offer a4-highgpu-8g"
    assert "--filter='name=a4-highgpu-8g'" in failed.remedy
    assert (other.status, other.detail) == (Status.OK, f"{ZONE} offers n2d-highmem-16")


def test_gpus_that_the_zone_does_not_offer_fail(google: GoogleServer) -> None:
    google.forget("compute.acceleratorTypes.get", **ZONE_PATH, acceleratorType="nvidia-b200")

    failed = look(check_machines, google, stack())[0]

    assert (failed.status, failed.detail) == (Status.FAIL, f"{ZONE} does not offer nvidia-b200")


def test_a_machine_that_is_not_what_the_table_says_is_a_warning(google: GoogleServer) -> None:
    gpus = [{"guestAcceleratorType": "nvidia-b200", "guestAcceleratorCount": 4}]
    body = {"name": "a4-highgpu-8g", "guestCpus": 224, "accelerators": gpus}
    google.answer("compute.machineTypes.get", body, **ZONE_PATH, machineType="a4-highgpu-8g")

    warned = look(check_machines, google, stack())[0]

    assert warned.status is Status.WARN
    assert "differs from components/machines.py in accelerators" in warned.detail


def test_a_zone_without_lustre_fails_and_those_of_the_region_are_named(google: GoogleServer) -> None:
    config = stack(project__zone="us-east4-b", project__region="us-east4")
    assert "us-central1-a, us-east1-b, us-east1-c" in only(look(check_lustre_zone, google, config)).remedy

    google.answer_pages(
        "lustre.listLocations",
        {"locations": [{"locationId": "us-east1-c"}, {"locationId": "us-west1-a"}]},
        name=f"projects/{PROJECT}",
    )
    found = only(look(check_lustre_zone, google, stack()))
    assert found.status is Status.FAIL
    assert found.remedy.startswith("Take a project.zone among us-east1-c,")


def test_an_adopted_instance_needs_no_zone_that_makes_new_ones(google: GoogleServer) -> None:
    google.refuse("lustre.listLocations", 500)

    assert look(check_lustre_zone, google, stack(**EXISTING)) == []


def test_a_zone_without_the_rdma_profile_fails_and_only_a_fast_network_needs_it(google: GoogleServer) -> None:
    google.forget("compute.networkProfiles.get", project=PROJECT, networkProfile=f"{ZONE}-vpc-roce")

    found = only(look(check_network_profile, google, stack()))

    assert found.status is Status.FAIL
    assert f"no network profile {ZONE}-vpc-roce" in found.detail
    assert look(check_network_profile, google, stack(gpu_pool__fast_network=False)) == []
