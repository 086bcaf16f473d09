"""What keeps a pod from mounting Lustre: each of the five things alone, and none of them."""

from typing import Any

import pytest

from tests.twin.cloud.project import (
    CLUSTER,
    CLUSTER_ID,
    CONNECTION_ID,
    INSTANCE,
    INSTANCE_ID,
    NETWORK_ID,
    Project,
)
from twin.cloud import faults
from twin.cloud.lustre_mount import mount_problem
from twin.cloud.store import ResourceType

FIREWALL_ID = "projects/p/global/firewalls/lustre"


@pytest.fixture
def mountable(project: Project) -> Project:
    """A project in which the mount works."""
    project.with_lustre()
    project.with_cluster()
    source = project.there(ResourceType.GLOBAL_ADDRESS, "projects/p/global/addresses/range").properties
    firewall = {
        "name": "lustre",
        "network": NETWORK_ID,
        "allows": [{"protocol": "tcp", "ports": ["988"]}],
        "sourceRanges": [f"{source['address']}/{source['prefixLength']}"],
    }
    project.create(ResourceType.FIREWALL, firewall)
    assert mount_problem(project.store, instance="fs", cluster="c") is None
    return project


def _problem(project: Project) -> str:
    problem = mount_problem(project.store, instance="fs", cluster=CLUSTER_ID)
    assert problem is not None
    return problem


def _firewall(project: Project, **changed: Any) -> None:
    known = project.there(ResourceType.FIREWALL, FIREWALL_ID).properties
    project.update(ResourceType.FIREWALL, FIREWALL_ID, known | changed)


def test_the_driver_must_be_on(mountable: Project) -> None:
    mountable.update(
        ResourceType.CLUSTER, CLUSTER_ID, CLUSTER | {"addonsConfig": {"lustreCsiDriverConfig": {"enabled": False}}}
    )
    assert "not found in the list of registered CSI drivers" in _problem(mountable)


@pytest.mark.parametrize(
    "changed",
    [
        {"allows": [{"protocol": "tcp", "ports": ["6988"]}]},
        {"allows": [{"protocol": "udp"}]},
        {"sourceRanges": ["192.168.0.0/16"]},
        {"disabled": True},
    ],
)
def test_the_port_must_be_open_from_the_peered_range(mountable: Project, changed: dict[str, Any]) -> None:
    _firewall(mountable, **changed)
    problem = _problem(mountable)
    assert "Is the MGS running?" in problem
    assert "lets tcp:988 in" in problem


@pytest.mark.parametrize("ports", [["900-1000"], []])
def test_any_way_to_open_the_port_serves(mountable: Project, ports: list[str]) -> None:
    _firewall(mountable, allows=[{"protocol": "tcp", "ports": ports}])
    assert mount_problem(mountable.store, instance="fs", cluster="c") is None


def test_a_legacy_instance_needs_a_legacy_driver_and_its_port_open(mountable: Project) -> None:
    mountable.update(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID, INSTANCE | {"gkeSupportEnabled": True})
    assert "port 6988, the driver speaks to port 988" in _problem(mountable)
    addons = {"lustreCsiDriverConfig": {"enabled": True, "enableLegacyLustrePort": True}}
    mountable.update(ResourceType.CLUSTER, CLUSTER_ID, CLUSTER | {"addonsConfig": addons})
    assert "lets tcp:6988 in" in _problem(mountable)
    _firewall(mountable, allows=[{"protocol": "tcp", "ports": ["6988"]}])
    assert mount_problem(mountable.store, instance="fs", cluster="c") is None


def test_the_port_may_change_behind_the_stacks_back(mountable: Project) -> None:
    mountable.store.set_fault(faults.LUSTRE_PORT)
    assert "port 6988, the driver speaks to port 988" in _problem(mountable)


def test_the_peering_must_be_there(mountable: Project) -> None:
    mountable.store.delete(ResourceType.CONNECTION, CONNECTION_ID)
    assert "has no service connection" in _problem(mountable)


def test_the_instance_must_be_there(mountable: Project) -> None:
    mountable.delete(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID)
    assert "there is no instance fs" in _problem(mountable)
