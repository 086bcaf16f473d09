"""The provider as the engine uses it: previews, edits, refreshes, and what is left by engines that were killed."""

import asyncio
from dataclasses import replace

import pytest
from pulumi.provider.experimental import provider as sdk

from tests.twin.cloud.project import CLUSTER, CLUSTER_ID, INSTANCE, NETWORK, NETWORK_ID, SPOT_POOL, Project, unknown
from twin.cloud import faults
from twin.cloud.refusals import ApiRefusal, Interrupted
from twin.cloud.store import ProcessIdentity, ResourceState, ResourceType
from twin.cloud.values import UNKNOWN, plain_map, wrap_map

DEAD = ProcessIdentity(pid=2**22 + 1, started=1)


def test_a_preview_knows_nothing_of_a_network_that_is_not_there_and_refuses_nothing(project: Project) -> None:
    given = unknown(INSTANCE, "network")
    assert project.check(ResourceType.LUSTRE_INSTANCE, given) == []
    seen = project.create(ResourceType.LUSTRE_INSTANCE, given, preview=True)
    assert seen["mountPoint"] is UNKNOWN
    assert seen["network"] is UNKNOWN
    assert seen["capacityGib"] == "36000"
    assert project.store.list() == []


def test_what_only_google_tells_inside_a_block_is_unknown_in_a_preview(project: Project) -> None:
    given = CLUSTER | {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"allowExternalTraffic": True}}}
    seen = project.create(ResourceType.CLUSTER, given, preview=True)
    assert seen["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] is UNKNOWN
    assert seen["masterAuth"] is UNKNOWN


def test_a_cluster_tells_where_it_answers_beside_what_was_given(project: Project) -> None:
    project.with_network()
    given = {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"allowExternalTraffic": True}}}
    project.with_cluster(**given)
    made = project.there(ResourceType.CLUSTER, CLUSTER_ID).properties
    dns = made["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
    assert dns == {"allowExternalTraffic": True, "endpoint": "localhost:6443"}
    assert made["masterAuth"]["clusterCaCertificate"] == "Q0E="


def test_inputs_are_refused_by_path(project: Project) -> None:
    wrong = {"cluster": "c", "nodeCount": "2", "nodeConfig": {"spot": True, "taints": [{"key": "a", "value": "b"}]}}
    refused = project.check(ResourceType.NODE_POOL, wrong | {"nodeCuont": 1})
    assert {"nodeCount", "nodeConfig.taints[0].effect", "nodeCuont"} <= set(refused)


def test_a_place_that_nobody_tells_is_refused_before_anything_is_made(project: Project) -> None:
    assert project.check(ResourceType.ROUTER, {"name": "r", "network": NETWORK_ID}) == ["region"]


def test_nothing_changed_is_no_diff(project: Project) -> None:
    project.with_network()
    project.with_cluster()
    project.create(ResourceType.NODE_POOL, SPOT_POOL)
    assert project.diff(ResourceType.NODE_POOL, f"{CLUSTER_ID}/nodePools/a4", SPOT_POOL).changes is False
    assert project.diff(ResourceType.CLUSTER, CLUSTER_ID, CLUSTER).changes is False


def test_an_edit_replaces_only_where_google_cannot_change_it(project: Project) -> None:
    project.with_network()
    project.with_cluster()
    project.create(ResourceType.NODE_POOL, SPOT_POOL)
    id_ = f"{CLUSTER_ID}/nodePools/a4"
    grown = project.diff(ResourceType.NODE_POOL, id_, SPOT_POOL | {"nodeCount": 3})
    assert (grown.changes, grown.replaces, list(grown.detailed_diff)) == (True, [], ["nodeCount"])
    flexible = project.diff(ResourceType.NODE_POOL, id_, SPOT_POOL | {"nodeConfig": {"flexStart": True}})
    assert "nodeConfig.spot" in flexible.replaces


def test_an_update_keeps_what_google_told(project: Project) -> None:
    project.with_lustre()
    id_ = "projects/p/locations/us-east1-b/instances/fs"
    before = project.there(ResourceType.LUSTRE_INSTANCE, id_).properties["mountPoint"]
    after = project.update(ResourceType.LUSTRE_INSTANCE, id_, INSTANCE | {"labels": {"a": "b"}})
    assert (after["mountPoint"], after["labels"]) == (before, {"a": "b"})


def test_a_refresh_tells_what_changed_behind_the_stacks_back(project: Project) -> None:
    project.with_network()
    made = project.there(ResourceType.NETWORK, NETWORK_ID)
    project.store.put(replace(made, properties=made.properties | {"description": "by hand"}))
    found = project.read(ResourceType.NETWORK, NETWORK_ID, NETWORK)
    assert plain_map(found.properties)["description"] == "by hand"
    assert plain_map(found.inputs) == NETWORK


def test_what_is_gone_is_told_by_an_empty_id(project: Project) -> None:
    assert project.read(ResourceType.NETWORK, NETWORK_ID, NETWORK).resource_id == ""


def test_a_lookup_by_id_returns_inputs_that_the_provider_itself_accepts(project: Project) -> None:
    project.with_network()
    found = project.read(ResourceType.NETWORK, NETWORK_ID)
    assert found.resource_id == NETWORK_ID
    assert project.check(ResourceType.NETWORK, plain_map(found.inputs)) == []


def test_an_api_error_strikes_once_and_leaves_nothing(project: Project) -> None:
    project.enable("compute")
    project.store.set_fault(faults.API_ERROR)
    with pytest.raises(ApiRefusal, match="Error 500"):
        project.create(ResourceType.NETWORK, NETWORK)
    assert project.store.list(ResourceType.NETWORK) == []
    project.create(ResourceType.NETWORK, NETWORK)
    assert [each.name for each in project.store.list(ResourceType.NETWORK)] == ["net"]


def _left(project: Project, state: ResourceState) -> None:
    made = project.there(ResourceType.NETWORK, NETWORK_ID)
    project.store.put(replace(made, state=state, owner=DEAD))


def test_what_a_killed_engine_had_half_made_is_gone_when_the_next_starts(project: Project) -> None:
    project.with_network()
    _left(project, ResourceState.CREATING)
    project.engine()
    assert project.store.list(ResourceType.NETWORK) == []


def test_a_half_made_cluster_goes_with_its_control_plane(project: Project) -> None:
    project.with_network()
    project.with_cluster()
    made = project.there(ResourceType.CLUSTER, CLUSTER_ID)
    project.store.put(replace(made, state=ResourceState.CREATING, owner=DEAD))
    project.engine()
    assert (project.kubernetes.alive, project.store.list(ResourceType.CLUSTER)) == (set(), [])


@pytest.mark.parametrize("state", [ResourceState.UPDATING, ResourceState.DELETING])
def test_what_a_killed_engine_was_changing_is_as_it_was(project: Project, state: ResourceState) -> None:
    project.with_network()
    _left(project, state)
    project.engine()
    assert project.there(ResourceType.NETWORK, NETWORK_ID).state is ResourceState.ACTIVE


def test_a_resource_whose_engine_died_before_the_answer_is_made_again(project: Project) -> None:
    project.with_network()
    project.engine()
    assert project.create(ResourceType.NETWORK, NETWORK)["name"] == "net"
    project.diff(ResourceType.NETWORK, NETWORK_ID, NETWORK)
    with pytest.raises(ApiRefusal, match="Error 409"):
        project.create(ResourceType.NETWORK, NETWORK)


def test_a_cancelled_create_leaves_nothing_and_a_cancelled_delete_everything(project: Project) -> None:
    project.with_network()
    project.clock.speed = 1e-9
    asyncio.run(project.provider.cancel())
    with pytest.raises(Interrupted):
        project.create(ResourceType.ROUTER, {"name": "r", "region": "r", "network": NETWORK_ID})
    with pytest.raises(Interrupted):
        project.delete(ResourceType.NETWORK, NETWORK_ID)
    assert project.store.list(ResourceType.ROUTER) == []
    assert project.there(ResourceType.NETWORK, NETWORK_ID).state is ResourceState.ACTIVE


def test_a_secret_input_comes_back_as_a_secret(project: Project) -> None:
    project.with_network()
    given = wrap_map({"name": "n", "description": "s"}, {"description"})
    request = sdk.CreateRequest(f"urn:pulumi:d::p::{ResourceType.NETWORK}::n", given, 0, False)
    made = asyncio.run(project.provider.create(request))
    assert [name for name, value in made.properties.items() if value.contains_secret()] == ["description"]


def test_an_unknown_type_is_named_with_those_that_are_known(project: Project) -> None:
    with pytest.raises(Exception, match=r"gcp:sql/x:X: the twin has no such resource; it knows .*compute/network"):
        project.check("gcp:sql/x:X", {})


def test_two_lustre_instances_never_share_an_address(project: Project) -> None:
    project.with_lustre()
    project.create(ResourceType.LUSTRE_INSTANCE, INSTANCE | {"instanceId": "two"}, name="two")
    project.delete(ResourceType.LUSTRE_INSTANCE, "projects/p/locations/us-east1-b/instances/fs")
    project.create(ResourceType.LUSTRE_INSTANCE, INSTANCE | {"instanceId": "three"}, name="three")
    rows = project.store.list(ResourceType.LUSTRE_INSTANCE)
    assert len({row.properties["mountPoint"] for row in rows}) == len(rows)
