"""APIs that are off are the stack's to enable, but for the one that enables; roles are judged by permissions."""

import pytest

from components.project_services import SERVICES
from jobs.preflight.access import GRANTS, check_apis, check_roles
from jobs.preflight.findings import Status
from tests.components.rules.verdicts import EXISTING_ACCESS
from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import PROJECT, look, stack

EXISTING = {
    "network": {
        "source": "existing",
        "network_name": "shared",
        "subnet_name": "gpus",
        "pods_range_name": "pods",
        "services_range_name": "services",
    },
    "private_service_access": EXISTING_ACCESS,
    "cluster": {
        "source": "existing",
        "cluster_name": "c",
        "system_pool_name": "system",
        "node_service_account": "nodes@my-project-id.iam.gserviceaccount.com",
    },
    "lustre": {"source": "existing", "instance_id": "l"},
    "gpu_pool__fast_network": False,
}


def test_apis_that_are_off_are_named_and_left_to_the_stack(google: GoogleServer) -> None:
    services = [
        {
            "name": f"projects/1/services/{service}.googleapis.com",
            "state": "DISABLED" if service == "lustre" else "ENABLED",
        }
        for service in SERVICES
        if service != "container"
    ]
    google.answer("serviceusage.services.batchGet", {"services": services}, parent=f"projects/{PROJECT}")

    [found] = look(check_apis, google, stack())

    assert found.status is Status.OK
    assert found.detail == "not enabled yet, `up` enables them: container, lustre"


def test_image_streaming_s_own_apis_are_asked_for_with_it(google: GoogleServer) -> None:
    [found] = look(check_apis, google, stack(ray__image_streaming=True))

    assert found.detail == "not enabled yet, `up` enables them: artifactregistry, containerfilesystem"


def test_the_api_that_enables_the_others_has_to_be_on(google: GoogleServer) -> None:
    google.refuse("serviceusage.services.batchGet", 403, "Service Usage API is off", reason="SERVICE_DISABLED")

    [found] = look(check_apis, google, stack())

    assert found.status is Status.FAIL
    assert found.remedy == f"gcloud services enable serviceusage.googleapis.com --project {PROJECT}"


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: f"{grant.role}-{grant.permissions[0]}")
def test_a_missing_permission_names_the_role_that_gives_it(google: GoogleServer, grant: object) -> None:
    assert isinstance(grant, type(GRANTS[0]))
    google.denied = {grant.permissions[-1]}

    failed = [found for found in look(check_roles, google, stack()) if found.status is Status.FAIL]

    assert len(failed) == 1
    assert failed[0].detail == f"{grant.role} is missing: you may not {grant.permissions[-1]}"
    assert failed[0].remedy.endswith(f"--role={grant.role}")


def test_who_makes_nothing_needs_no_role_to_make_it(google: GoogleServer) -> None:
    config = stack(**EXISTING)
    google.denied = {permission for grant in GRANTS if not grant.is_needed(config) for permission in grant.permissions}

    found = look(check_roles, google, config)

    assert {"compute.networks.create", "lustre.instances.create", "container.clusters.create"} <= google.denied
    assert [finding.status for finding in found] == [Status.OK]
