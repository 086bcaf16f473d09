"""What a stack adopts is there and fits, or the line says what it lacks and what to type."""

from typing import Any

import pytest

from jobs.preflight.existing import check_existing_cluster, check_existing_lustre, check_existing_network
from jobs.preflight.findings import Check, Status
from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import PROJECT, REGION, ZONE, look, stack
from tests.jobs.preflight.test_access import EXISTING

CONFIG = stack(**EXISTING)
CLUSTER: dict[str, Any] = {
    "name": "c",
    "status": "RUNNING",
    "currentMasterVersion": "1.33.2-gke.4780000",
    "network": "shared",
    "subnetwork": "gpus",
    "nodePools": [{"name": "system"}],
    "addonsConfig": {"rayOperatorConfig": {"enabled": True}, "lustreCsiDriverConfig": {"enabled": True}},
    "networkConfig": {"datapathProvider": "ADVANCED_DATAPATH", "enableMultiNetworking": True},
    "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke.goog", "allowExternalTraffic": True}},
}
SUBNET: dict[str, Any] = {
    "name": "gpus",
    "network": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/networks/shared",
    "privateIpGoogleAccess": True,
    "secondaryIpRanges": [{"rangeName": "pods"}, {"rangeName": "services"}],
}
INSTANCE: dict[str, Any] = {
    "state": "ACTIVE",
    "capacityGib": "36000",
    "network": f"projects/{PROJECT}/global/networks/shared",
}
PEERING = {"name": "servicenetworking-googleapis-com", "state": "ACTIVE"}


def put_network(google: GoogleServer, subnet: dict[str, Any], *peerings: dict[str, str]) -> None:
    google.answer(
        "compute.networks.get", {"name": "shared", "peerings": [*peerings]}, project=PROJECT, network="shared"
    )
    google.answer("compute.subnetworks.get", subnet, project=PROJECT, region=REGION, subnetwork="gpus")


def put_cluster(google: GoogleServer, cluster: dict[str, Any]) -> None:
    name = f"projects/{PROJECT}/locations/{REGION}/clusters/c"
    google.answer("container.projects.locations.clusters.get", cluster, name=name)


@pytest.mark.parametrize("check", [check_existing_network, check_existing_cluster, check_existing_lustre])
def test_what_is_not_there_fails_and_what_is_made_is_not_looked_for(google: GoogleServer, check: Check) -> None:
    [found] = look(check, google, CONFIG)

    assert found.status is Status.FAIL
    assert found.detail.startswith("There is no ")
    assert found.remedy.startswith("gcloud ")
    assert look(check, google, stack()) == []


def test_parts_that_fit_are_ok(google: GoogleServer) -> None:
    put_network(google, SUBNET, PEERING)
    put_cluster(google, CLUSTER)
    google.answer("lustre.getInstance", INSTANCE, name=f"projects/{PROJECT}/locations/{ZONE}/instances/l")

    for check in (check_existing_network, check_existing_cluster, check_existing_lustre):
        assert [found.status for found in look(check, google, CONFIG)] == [Status.OK]


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"secondaryIpRanges": [{"rangeName": "pods"}]}, Status.FAIL, "has no range services, only pods"),
        ({"network": "networks/other"}, Status.FAIL, "is not of network shared"),
        ({"privateIpGoogleAccess": False}, Status.WARN, "no private Google access"),
    ],
)
def test_a_subnet_lacks_something(google: GoogleServer, change: dict[str, Any], status: Status, said: str) -> None:
    put_network(google, {**SUBNET, **change}, PEERING)

    [found] = look(check_existing_network, google, CONFIG)

    assert found.status is status
    assert said in found.detail


@pytest.mark.parametrize("peerings", [(), ({**PEERING, "state": "INACTIVE"},), ({"name": "other", "state": "ACTIVE"},)])
def test_an_adopted_connection_has_to_be_active(google: GoogleServer, peerings: tuple[dict[str, str], ...]) -> None:
    put_network(google, SUBNET, *peerings)

    [found] = look(check_existing_network, google, CONFIG)

    assert found.status is Status.FAIL
    assert "no active connection" in found.detail


@pytest.mark.parametrize(
    ("change", "status", "said", "remedy"),
    [
        ({"status": "ERROR"}, Status.FAIL, "is ERROR", "Repair"),
        ({"nodePools": [{"name": "default"}]}, Status.FAIL, "no node pool system", "node-pools list"),
        (
            {"addonsConfig": {"lustreCsiDriverConfig": {"enabled": True}}},
            Status.FAIL,
            "no RayOperator add-on",
            "--update-addons RayOperator=ENABLED",
        ),
        (
            {"addonsConfig": {"rayOperatorConfig": {"enabled": True}}},
            Status.FAIL,
            "no Lustre CSI driver",
            "--update-addons LustreCsiDriver=ENABLED",
        ),
        (
            {
                "addonsConfig": {
                    "rayOperatorConfig": {"enabled": True},
                    "lustreCsiDriverConfig": {"enabled": True, "enableLegacyLustrePort": True},
                }
            },
            Status.FAIL,
            "speaks to port 6988, the config says 988",
            "lustre.legacy_port",
        ),
        ({"networkConfig": {"datapathProvider": "LEGACY_DATAPATH"}}, Status.WARN, "without Dataplane V2", "another"),
        (
            {"currentMasterVersion": "1.33.1-gke.1"},
            Status.FAIL,
            "is of version 1.33.1-gke.1, and Lustre's port 988 needs 1.33.2-gke.4780000 or newer",
            "or set lustre.legacy_port to true",
        ),
        (
            {"subnetwork": "databases"},
            Status.FAIL,
            "is on network shared, subnet databases; the config says shared, gpus",
            "network.subnet_name",
        ),
        (
            {"controlPlaneEndpointsConfig": {}},
            Status.FAIL,
            "does not answer at its DNS endpoint",
            "--enable-dns-access",
        ),
    ],
)
def test_a_cluster_lacks_something(
    google: GoogleServer, change: dict[str, Any], status: Status, said: str, remedy: str
) -> None:
    put_cluster(google, {**CLUSTER, **change})

    [found] = look(check_existing_cluster, google, CONFIG)

    assert found.status is status
    assert said in found.detail
    assert remedy in found.remedy


def test_a_fast_network_needs_dataplane_v2_and_multi_networking(google: GoogleServer) -> None:
    put_cluster(google, {**CLUSTER, "networkConfig": {}})

    found = look(check_existing_cluster, google, stack(**{**EXISTING, "gpu_pool__fast_network": True}))

    assert [finding.status for finding in found] == [Status.FAIL, Status.FAIL]
    assert "without multi-networking" in found[1].detail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "REPAIRING", "stateReason": "a disk"}, "is REPAIRING a disk"),
        ({"gkeSupportEnabled": True}, "its port is 6988; the config says 988"),
        ({"network": f"projects/{PROJECT}/global/networks/other"}, "is on network other, the cluster on shared"),
    ],
)
def test_an_instance_does_not_fit(google: GoogleServer, change: dict[str, Any], said: str) -> None:
    name = f"projects/{PROJECT}/locations/{ZONE}/instances/l"
    google.answer("lustre.getInstance", {**INSTANCE, **change}, name=name)

    [found] = look(check_existing_lustre, google, CONFIG)

    assert found.status is Status.FAIL
    assert said in found.detail
