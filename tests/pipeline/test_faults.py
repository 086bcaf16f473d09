"""A stack that meets trouble on its way up, on somebody else's network: each time one more `up` goes on from there."""

import dataclasses
import re
import signal
from collections.abc import Iterator

import pytest

from jobs.errors import HeadExecError
from jobs.head_exec import exec_in_head
from jobs.waiting import wait_until
from tests.pipeline.twin_session import CLUSTER, TwinSession, twin_session
from twin.cloud.store import Resource, ResourceType, Store

pytestmark = pytest.mark.ray

PROJECT = "rlstack-local"
NETWORK = f"projects/{PROJECT}/global/networks/shared"
SUBNET = f"projects/{PROJECT}/regions/us-east1/subnetworks/nodes"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    with twin_session(tmp_path_factory.mktemp("faults"), speed="0") as running:
        running.state.root.mkdir()
        store = Store.open(running.state)
        for row in _network_of_another_team():
            store.put(row)
        running.replace(
            "network",
            {
                "source": "existing",
                "network_name": "shared",
                "subnet_name": "nodes",
                "pods_range_name": "pods",
                "services_range_name": "services",
            },
        )
        running.edit("ray", head_start_timeout_s=40)
        yield running


def _network_of_another_team() -> list[Resource]:
    ranges = [
        {"rangeName": "pods", "ipCidrRange": "10.4.0.0/14"},
        {"rangeName": "services", "ipCidrRange": "10.0.32.0/20"},
    ]
    return [
        Resource(
            type=ResourceType.NETWORK,
            id=NETWORK,
            name="shared",
            project=PROJECT,
            properties={"name": "shared", "project": PROJECT, "autoCreateSubnetworks": False, "mtu": 8896},
        ),
        Resource(
            type=ResourceType.SUBNETWORK,
            id=SUBNET,
            name="nodes",
            project=PROJECT,
            properties={
                "name": "nodes", "project": PROJECT, "region": "us-east1", "network": NETWORK,
                "ipCidrRange": "192.168.0.0/18", "secondaryIpRanges": ranges,
            },
        ),
    ]  # fmt: skip


def test_without_a_cluster_no_machine_can_be_preempted(session: TwinSession) -> None:
    assert "has no cluster, so nothing was done" in session.twin("preempt", code=1)


def test_a_preview_makes_no_network_where_one_is_adopted(session: TwinSession) -> None:
    output = session.twin("preview")
    assert "compute:Network network" in output
    assert "compute:Network network-vpc create" not in output
    assert "read" in next(line for line in output.splitlines() if "compute:Network " in line)


def test_an_interrupted_up_goes_on_from_there(session: TwinSession) -> None:
    session.edit("cluster", ray_operator=False)
    process = session.start("twin", "up")
    store = Store.open(session.state)
    wait_until(
        lambda: bool(store.list(ResourceType.LUSTRE_INSTANCE)) or None,
        timeout_s=120, every_s=0.05, doing="the Lustre instance to be created",
    )  # fmt: skip
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Traceback" not in output


def test_a_ray_operator_that_is_off_is_named_with_the_key_that_turns_it_on(session: TwinSession) -> None:
    output = session.twin("up", code=1)
    assert "Set cluster.ray_operator to true" in output
    assert "Traceback" not in output
    assert Store.open(session.state).list(ResourceType.CLUSTER)[0].name == CLUSTER


def test_a_lustre_port_that_does_not_match_keeps_pods_from_starting_and_status_says_why(session: TwinSession) -> None:
    session.edit("cluster", ray_operator=True)
    session.twin("fault", "lustre-port")
    assert "HeadPodReady" in session.twin("up", code=1)
    assert "Is the MGS running?" in " ".join(session.twin("status").replace("│", " ").split())
    session.twin("fault", "lustre-port", "--clear")


def test_up_converges_once_the_causes_are_gone(session: TwinSession) -> None:
    output = session.twin("up")
    assert "error" not in output
    assert session.output("job")["submission_id"].endswith("-a1")
    assert set(session.changes("up")) == {"same"}


def in_head(session: TwinSession, script: str) -> str:
    output = exec_in_head(
        kubeconfig=session.output("kubeconfig"), namespace="default", ray_cluster=CLUSTER,
        command=["sh", "-c", script], timeout_s=60,
    )  # fmt: skip
    return output.decode()


def test_a_full_lustre_refuses_writes_until_it_has_room_again(
    session: TwinSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in session.environment().items():
        monkeypatch.setenv(name, value)
    assert "No space left on device" in session.twin("fill-lustre")
    assert "fault on: lustre-full" in session.twin("status")
    with pytest.raises(HeadExecError, match="No space left on device"):
        in_head(session, "echo 1 | tee /lustre/written")
    session.twin("fill-lustre", "--undo")
    assert in_head(session, "echo 2 > /lustre/written; cat /lustre/written") == "2\n"
    assert (session.state.lustre(CLUSTER) / "written").read_text() == "2\n"


def test_more_machines_than_there_are_cannot_be_preempted(session: TwinSession) -> None:
    assert re.search(r"--nodes 9: the twin has \d Spot machines now", session.twin("preempt", "--nodes", "9", code=2))


def test_a_crashed_head_is_started_again(session: TwinSession) -> None:
    (head,) = session.pods("head")
    assert f"killed Ray in head pod default/{head['metadata']['name']}" in session.twin("crash-head")

    def restarted() -> bool:
        (pod,) = session.pods("head")
        (status,) = pod["status"]["containerStatuses"]
        return bool(status["restartCount"] and status["ready"]) or pod["metadata"]["uid"] != head["metadata"]["uid"]

    wait_until(restarted, timeout_s=120, every_s=0.5, doing="the head to be Ready again")


def test_the_stack_s_own_lustre_does_not_give_way_to_another_one(session: TwinSession) -> None:
    session.bring_up()
    store = Store.open(session.state)
    (own,) = store.list(ResourceType.LUSTRE_INSTANCE)
    other = dataclasses.replace(
        own,
        id=own.id.replace(own.name, "other"),
        name="other",
        properties={**own.properties, "instanceId": "other"},
    )
    store.put(other)
    access = {"source": "existing", "range_start": "10.64.0.0", "prefix_length": 22}
    own_settings = session.settings_of("lustre"), session.settings_of("private_service_access")
    try:
        session.replace("private_service_access", access)
        session.replace("lustre", {"source": "existing", "instance_id": "other"})
        refused = session.run_program("preview")
        session.replace("lustre", {"source": "existing", "instance_id": own.name})
        adopted = session.run_program("preview")
    finally:
        session.replace("lustre", own_settings[0])
        session.replace("private_service_access", own_settings[1])
        store.delete(other.type, other.id)
    assert any(f"{own.name} would be deleted with all that lies on it" in error for error in refused.errors)
    assert adopted.errors == ()
    assert "lustre-instance" not in {change.name for change in adopted.changes}


def test_destroy_leaves_the_adopted_network_as_it_was(session: TwinSession) -> None:
    session.twin("destroy")
    store = Store.open(session.state)
    left = {resource.id: resource for resource in store.list()}
    assert {NETWORK, SUBNET} <= set(left)
    assert {resource.type for resource in left.values()} <= {
        ResourceType.NETWORK, ResourceType.SUBNETWORK, ResourceType.CONNECTION, ResourceType.GLOBAL_ADDRESS,
    }  # fmt: skip
    original = {row.id: row for row in _network_of_another_team()}
    for id_ in (NETWORK, SUBNET):
        assert dataclasses.asdict(left[id_])["properties"] == original[id_].properties
    assert session.processes() == {}
