"""Names that the program gives are looked for; what the stack's state lists is its own, all else was left behind."""

from typing import Any

import pytest

from jobs.preflight.findings import Status, Subject
from jobs.preflight.leftovers import check_leftovers, names, networks
from tests.components.rules.verdicts import EXISTING_ACCESS
from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import PROJECT, REGION, ZONE, KnownEngine, apis, look, stack
from tests.jobs.preflight.test_access import EXISTING
from tests.jobs.preflight.test_existing import INSTANCE, PEERING, SUBNET, put_network
from tests.program import Run

NETWORK = f"projects/{PROJECT}/global/networks/rlstack-dev"
CONNECTION = f"{NETWORK}:servicenetworking.googleapis.com"
CLUSTER = f"projects/{PROJECT}/locations/{REGION}/clusters/rlstack-dev"
TYPES_OF_NAMES = {
    "gcp:compute/network:Network": "name",
    "gcp:compute/globalAddress:GlobalAddress": "name",
    "gcp:container/cluster:Cluster": "name",
    "gcp:lustre/instance:Instance": "instanceId",
    "gcp:serviceaccount/account:Account": "accountId",
}


def put_own_network(google: GoogleServer, *peerings: dict[str, str]) -> None:
    body = {"name": "rlstack-dev", "peerings": [*peerings]}
    google.answer("compute.networks.get", body, project=PROJECT, network="rlstack-dev")


def put_all(google: GoogleServer) -> None:
    put_own_network(google, PEERING)
    for role in ("gvnic", "rdma"):
        name = f"rlstack-dev-{role}"
        google.answer("compute.networks.get", {"name": name}, project=PROJECT, network=name)
    google.answer("compute.globalAddresses.get", {"name": "r"}, project=PROJECT, address="rlstack-dev-services")
    google.answer("container.projects.locations.clusters.get", {"name": "rlstack-dev"}, name=CLUSTER)
    google.answer("lustre.getInstance", INSTANCE, name=f"projects/{PROJECT}/locations/{ZONE}/instances/rlstack-dev")
    account = f"projects/{PROJECT}/serviceAccounts/rlstack-dev-nodes@{PROJECT}.iam.gserviceaccount.com"
    google.answer("iam.projects.serviceAccounts.get", {"name": account}, name=account)


def rule(name: str, network: str = "rlstack-dev") -> dict[str, Any]:
    return {
        "name": name,
        "network": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/networks/{network}",
    }


def test_the_names_are_those_that_the_program_gives(dev_run: Run, google: GoogleServer) -> None:
    given = {
        resource.inputs[key]
        for type_, key in TYPES_OF_NAMES.items()
        for resource in dev_run.of_type(type_)
        if not resource.read
    }
    subject = Subject(config=stack(), google=apis(google), engine=KnownEngine())

    assert {each.id.rpartition("/")[2].partition("@")[0] for each in [*names(subject), *networks(subject)]} == given


def test_a_network_s_remedy_names_what_the_program_makes_in_it(dev_run: Run, google: GoogleServer) -> None:
    subject = Subject(config=stack(), google=apis(google), engine=KnownEngine())
    told = {word for name in networks(subject) for word in name.remove.split()}

    for type_ in ("router:Router", "subnetwork:Subnetwork", "firewall:Firewall", "network:Network"):
        assert {resource.inputs["name"] for resource in dev_run.of_type(f"gcp:compute/{type_}")} <= told


def test_everything_of_an_earlier_stack_is_found_with_the_command_that_removes_it(google: GoogleServer) -> None:
    put_all(google)
    google.answer("compute.firewalls.list", {"items": [rule("gke-rlstack-dev-1-all")]}, project=PROJECT)

    found = look(check_leftovers, google, stack())

    assert [finding.remedy.rpartition(": ")[2] for finding in found] == [
        f"gcloud container clusters delete rlstack-dev --location {REGION} --project {PROJECT}",
        f"gcloud iam service-accounts delete rlstack-dev-nodes@{PROJECT}.iam.gserviceaccount.com --project {PROJECT}",
        f"gcloud lustre instances delete rlstack-dev --location {ZONE} --project {PROJECT}",
        f"gcloud compute addresses delete rlstack-dev-services --global --project {PROJECT}",
        "gcloud compute networks peerings delete servicenetworking-googleapis-com "
        f"--network rlstack-dev --project {PROJECT}",
        f"gcloud compute firewall-rules delete gke-rlstack-dev-1-all --project {PROJECT}",
        f"gcloud -q compute routers delete rlstack-dev --project {PROJECT} --region {REGION}; "
        f"gcloud -q compute firewall-rules delete rlstack-dev-internal rlstack-dev-lustre --project {PROJECT}; "
        f"gcloud -q compute networks subnets delete rlstack-dev --project {PROJECT} --region {REGION}; "
        f"gcloud compute networks delete rlstack-dev --project {PROJECT}",
        f"gcloud -q compute firewall-rules delete rlstack-dev-gvnic-internal --project {PROJECT}; "
        f"gcloud -q compute networks subnets delete rlstack-dev-gvnic --project {PROJECT} --region {REGION}; "
        f"gcloud compute networks delete rlstack-dev-gvnic --project {PROJECT}",
        "gcloud -q compute networks subnets delete "
        f"{' '.join(f'rlstack-dev-rdma-{nic}' for nic in range(8))} --project {PROJECT} --region {REGION}; "
        f"gcloud compute networks delete rlstack-dev-rdma --project {PROJECT}",
    ]
    assert [finding.status for finding in found] == [*[Status.FAIL] * 5, Status.WARN, *[Status.FAIL] * 3]


def test_in_adopted_parts_the_stack_s_own_rule_and_pool_are_found(google: GoogleServer) -> None:
    pool = f"projects/{PROJECT}/locations/{REGION}/clusters/c/nodePools/rlstack-dev-gpu"
    google.answer("compute.firewalls.get", {"name": "r"}, project=PROJECT, firewall="rlstack-dev-lustre")
    google.answer("container.projects.locations.clusters.nodePools.get", {"name": "p"}, name=pool)

    config = stack(**{part: settings for part, settings in EXISTING.items() if part != "lustre"})

    rule_left, pool_left = look(check_leftovers, google, config)

    assert rule_left.remedy == f"gcloud compute firewall-rules delete rlstack-dev-lustre --project {PROJECT}"
    assert pool_left.remedy == (
        f"gcloud container node-pools delete rlstack-dev-gpu --cluster c --location {REGION} --project {PROJECT}"
    )
    assert {rule_left.status, pool_left.status} == {Status.FAIL}


def test_what_the_running_stack_has_made_is_no_leftover(google: GoogleServer) -> None:
    put_all(google)
    google.answer("compute.firewalls.list", {"items": [rule("gke-rlstack-dev-1-all")]}, project=PROJECT)
    subject = Subject(config=stack(), google=apis(google), engine=KnownEngine())
    owned = frozenset({name.id for name in [*names(subject), *networks(subject)]} | {CONNECTION})

    [found] = look(check_leftovers, google, stack(), owned)

    assert found.status is Status.OK


def test_without_the_state_nothing_is_called_a_failure(google: GoogleServer) -> None:
    put_all(google)

    found = look(check_leftovers, google, stack(), owned=None)

    assert {finding.status for finding in found} == {Status.WARN}
    assert "these may be the running stack's own" in found[-1].detail


def test_only_gke_s_rules_on_the_stack_s_network_count_on_every_page(google: GoogleServer) -> None:
    google.answer_pages(
        "compute.firewalls.list",
        {"items": [rule("gke-a", network="rlstack-dev2"), rule("rlstack-dev-internal")]},
        {"items": [rule("k8s-fw-b")]},
        project=PROJECT,
    )

    [found] = look(check_leftovers, google, stack())

    assert found.detail.startswith("network rlstack-dev still has GKE's firewall rules k8s-fw-b:")


@pytest.mark.parametrize(("access", "status"), [("create", Status.FAIL), ("existing", Status.OK)])
def test_a_second_connection_on_an_adopted_network_is_refused_before_google_does(
    google: GoogleServer, access: str, status: Status
) -> None:
    put_network(google, SUBNET, PEERING)

    network = {"network": EXISTING["network"], "private_service_access": {**EXISTING_ACCESS, "source": access}}

    [found] = look(check_leftovers, google, stack(**network, gpu_pool__fast_network=False))

    assert found.status is status
    if status is Status.FAIL:
        assert found.remedy.startswith("Use it by private_service_access.source existing")
