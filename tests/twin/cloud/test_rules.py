"""Both sides of each rule that bites people, asked through the provider."""

from typing import Any

import pytest

from tests.twin.cloud.project import (
    CLUSTER,
    CLUSTER_ID,
    CONNECTION,
    CONNECTION_ID,
    INSTANCE,
    INSTANCE_ID,
    NETWORK,
    NETWORK_ID,
    SPOT_POOL,
    Project,
)
from twin.cloud import faults
from twin.cloud.refusals import ApiRefusal, CloudRefusal, ConnectionInUse
from twin.cloud.server import HalfMade
from twin.cloud.store import ResourceState, ResourceType

POOL_ID = f"{CLUSTER_ID}/nodePools/a4"


def test_an_api_that_is_not_enabled_answers_403_with_its_name(project: Project) -> None:
    with pytest.raises(ApiRefusal, match=r"Error 403: Compute Engine API .* Enable compute.googleapis.com"):
        project.create(ResourceType.NETWORK, NETWORK)
    project.enable("compute")
    assert project.create(ResourceType.NETWORK, NETWORK)["name"] == "net"


def test_a_network_goes_after_what_stands_in_it(project: Project) -> None:
    project.with_network()
    project.create(
        ResourceType.SUBNETWORK, {"name": "s", "region": "r", "network": NETWORK_ID, "ipCidrRange": "10.0.0.0/24"}
    )
    with pytest.raises(ApiRefusal, match=r"already being used by 'projects/p/regions/r/subnetworks/s'"):
        project.delete(ResourceType.NETWORK, NETWORK_ID)
    project.delete(ResourceType.SUBNETWORK, "projects/p/regions/r/subnetworks/s")
    project.delete(ResourceType.NETWORK, NETWORK_ID)
    assert project.store.list(ResourceType.NETWORK) == []


def test_nothing_stands_on_what_is_not_there(project: Project) -> None:
    project.enable("compute")
    with pytest.raises(ApiRefusal, match=f"Error 404: The resource '{NETWORK_ID}' was not found"):
        project.create(ResourceType.ROUTER, {"name": "r", "region": "r", "network": NETWORK_ID})
    assert project.store.list(ResourceType.ROUTER) == []


def test_a_name_that_lives_is_taken(project: Project) -> None:
    project.with_network()
    with pytest.raises(ApiRefusal, match="Error 409"):
        project.create(ResourceType.NETWORK, NETWORK, name="another")


def test_lustre_needs_the_connection(project: Project) -> None:
    project.with_network()
    with pytest.raises(ApiRefusal, match="no active private services connection"):
        project.create(ResourceType.LUSTRE_INSTANCE, INSTANCE)


def test_lustre_gets_an_address_of_the_range_that_its_network_lends(project: Project) -> None:
    project.with_lustre()
    given = project.there(ResourceType.GLOBAL_ADDRESS, "projects/p/global/addresses/range").properties["address"]
    mount_point = project.there(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID).properties["mountPoint"]
    address, _, rest = mount_point.partition("@")
    assert address.rpartition(".")[0] == given.rpartition(".")[0]
    assert rest == "tcp:/lustrefs"


@pytest.mark.parametrize(
    ("throughput", "capacity"), [("500", "9000"), ("1000", "9001"), ("125", "71000"), ("500", "x"), ("300", "9000")]
)
def test_lustre_has_the_sizes_of_its_tier_only(project: Project, throughput: str, capacity: str) -> None:
    project.with_connection()
    with pytest.raises(ApiRefusal, match="INVALID_ARGUMENT"):
        project.create(
            ResourceType.LUSTRE_INSTANCE, INSTANCE | {"perUnitStorageThroughput": throughput, "capacityGib": capacity}
        )


def test_lustre_grows_and_never_shrinks(project: Project) -> None:
    project.with_lustre()
    grown = project.update(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID, INSTANCE | {"capacityGib": "54000"})
    assert grown["capacityGib"] == "54000"
    with pytest.raises(ApiRefusal, match="cannot shrink"):
        project.update(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID, INSTANCE)
    assert project.there(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID).state is ResourceState.ACTIVE


def test_lustre_does_not_grow_past_the_threshold_of_its_tier(project: Project) -> None:
    project.with_lustre()
    with pytest.raises(ApiRefusal, match="cannot grow past"):
        project.update(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID, INSTANCE | {"capacityGib": "3168000"})


def test_a_connection_is_held_while_lustre_lives_and_once_after(project: Project) -> None:
    project.with_lustre()
    for lives in (True, False):
        with pytest.raises(
            ConnectionInUse, match=r"Producer services \(e.g. CloudSQL.* are still using this connection"
        ):
            project.delete(ResourceType.CONNECTION, CONNECTION_ID)
        if lives:
            project.delete(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID)
    project.delete(ResourceType.CONNECTION, CONNECTION_ID)
    assert project.store.list(ResourceType.CONNECTION) == []


def test_a_held_connection_goes_when_the_producer_lets_go(project: Project) -> None:
    project.with_lustre()
    project.delete(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID)
    project.store.set_fault(faults.PRODUCER_HELD)
    for _ in range(2):
        with pytest.raises(ConnectionInUse):
            project.delete(ResourceType.CONNECTION, CONNECTION_ID)
    project.store.clear_fault(faults.PRODUCER_HELD)
    project.delete(ResourceType.CONNECTION, CONNECTION_ID)
    assert project.store.list(ResourceType.CONNECTION) == []


def test_a_connection_without_a_producer_goes_at_once(project: Project) -> None:
    project.with_connection()
    project.delete(ResourceType.CONNECTION, CONNECTION_ID)
    assert (project.store.list(ResourceType.CONNECTION), project.store.events_since()) == ([], [])


def test_remove_peering_meets_the_refusal_and_goes_on(project: Project) -> None:
    project.with_lustre(deletionPolicy="REMOVE_PEERING")
    project.delete(ResourceType.LUSTRE_INSTANCE, INSTANCE_ID)
    project.delete(ResourceType.CONNECTION, CONNECTION_ID)
    assert project.store.list(ResourceType.CONNECTION) == []
    refusal, removal = project.store.events_since()
    assert "are still using this connection" in refusal.text
    assert "peering was removed" in removal.text


def test_an_abandoned_connection_stays_and_holds_its_network(project: Project) -> None:
    project.with_connection(deletionPolicy="ABANDON")
    project.delete(ResourceType.CONNECTION, CONNECTION_ID)
    project.delete(ResourceType.GLOBAL_ADDRESS, "projects/p/global/addresses/range")
    with pytest.raises(ApiRefusal, match="resourceInUseByAnotherResource"):
        project.delete(ResourceType.NETWORK, NETWORK_ID)


def test_prevent_prevents(project: Project) -> None:
    project.with_connection(deletionPolicy="PREVENT")
    with pytest.raises(CloudRefusal, match="deletionPolicy is PREVENT"):
        project.delete(ResourceType.CONNECTION, CONNECTION_ID)


def test_a_connection_lends_ranges_that_are_there(project: Project) -> None:
    project.with_network()
    with pytest.raises(ApiRefusal, match="'range' was not found"):
        project.create(ResourceType.CONNECTION, CONNECTION)


def test_a_protected_cluster_stays_until_the_protection_is_lifted(project: Project) -> None:
    project.with_network()
    project.with_cluster(deletionProtection=True)
    with pytest.raises(CloudRefusal, match="deletion_protection"):
        project.delete(ResourceType.CLUSTER, CLUSTER_ID)
    assert project.kubernetes.alive == {"c"}
    project.update(ResourceType.CLUSTER, CLUSTER_ID, CLUSTER)
    project.delete(ResourceType.CLUSTER, CLUSTER_ID)
    assert (project.kubernetes.alive, project.store.list(ResourceType.CLUSTER)) == (set(), [])


def test_a_pool_needs_its_cluster_and_goes_with_it(project: Project) -> None:
    project.with_network()
    with pytest.raises(ApiRefusal, match="Error 404"):
        project.create(ResourceType.NODE_POOL, SPOT_POOL)
    project.with_cluster()
    project.create(ResourceType.NODE_POOL, SPOT_POOL)
    project.delete(ResourceType.CLUSTER, CLUSTER_ID)
    assert project.store.list(ResourceType.NODE_POOL) == []


@pytest.mark.parametrize(
    "config", [{"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}, {"flexStart": True}]
)
def test_spot_is_the_only_kind_of_capacity_of_its_pool(project: Project, config: dict[str, Any]) -> None:
    project.with_network()
    project.with_cluster()
    given: dict[str, Any] = SPOT_POOL["nodeConfig"]  # type: ignore[assignment]
    with pytest.raises(ApiRefusal, match="Spot"):
        project.create(ResourceType.NODE_POOL, SPOT_POOL | {"nodeConfig": given | config})


@pytest.mark.parametrize(
    ("fault", "said"), [(faults.STOCKOUT, "GCE_STOCKOUT"), (faults.GPU_QUOTA, "PREEMPTIBLE_NVIDIA_B200_GPUS")]
)
def test_a_pool_that_gets_no_nodes_is_kept_broken_and_mended_by_an_update(
    project: Project, fault: str, said: str
) -> None:
    project.with_network()
    project.with_cluster()
    project.store.set_fault(fault)
    with pytest.raises(HalfMade, match=said) as broken:
        project.create(ResourceType.NODE_POOL, SPOT_POOL)
    assert broken.value.id == POOL_ID
    assert project.there(ResourceType.NODE_POOL, POOL_ID).state is ResourceState.ERROR
    with pytest.raises(CloudRefusal, match=said):
        project.update(ResourceType.NODE_POOL, POOL_ID, SPOT_POOL)
    project.store.clear_fault(fault)
    project.update(ResourceType.NODE_POOL, POOL_ID, SPOT_POOL)
    assert project.there(ResourceType.NODE_POOL, POOL_ID).state is ResourceState.ACTIVE


@pytest.mark.parametrize(
    "changed",
    [
        {"nodeCount": 0},
        {"bestEffortProvisioning": {"enabled": True}},
        {"nodeConfig": {"machineType": "e2-standard-16"}},
    ],
)
def test_a_stockout_breaks_no_pool_that_needs_no_gpu_now(project: Project, changed: dict[str, Any]) -> None:
    project.with_network()
    project.with_cluster()
    project.store.set_fault(faults.STOCKOUT)
    project.create(ResourceType.NODE_POOL, SPOT_POOL | changed)
    assert project.there(ResourceType.NODE_POOL, POOL_ID).state is ResourceState.ACTIVE


def test_the_quota_counts_gpus_not_nodes(project: Project) -> None:
    project.with_network()
    project.with_cluster()
    with pytest.raises(HalfMade, match=r"Limit: 128\.0, asked for 136\.0 by 17 nodes"):
        project.create(ResourceType.NODE_POOL, SPOT_POOL | {"nodeCount": 17})
