"""The reader of the genuine provider's schema: what it refuses, and what an edit does."""

from typing import Any

import pytest

from twin.cloud import schema

POOL = schema.load()["gcp:container/nodePool:NodePool"]
INSTANCE = schema.load()["gcp:lustre/instance:Instance"]
NETWORK = schema.load()["gcp:compute/network:Network"]

GIVEN: dict[str, Any] = {
    "name": "pool",
    "cluster": "projects/p/locations/r/clusters/c",
    "nodeConfig": {"machineType": "a4-highgpu-8g", "spot": True, "resourceLabels": {"a": "1"}, "oauthScopes": ["x"]},
}


def _replaced_by(edit: dict[str, Any]) -> dict[str, bool]:
    old = schema.planned(POOL.properties, {}, GIVEN)
    new = schema.planned(POOL.properties, old, GIVEN | {"nodeConfig": GIVEN["nodeConfig"] | edit})
    return {change.path: change.replaces for change in schema.differences(POOL.properties, old, new)}


def test_nothing_changed_is_no_difference() -> None:
    assert _replaced_by({}) == {}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({"resourceLabels": {"a": "2"}}, {"nodeConfig.resourceLabels": False}),
        ({"machineType": "a3-ultragpu-8g"}, {"nodeConfig.machineType": False}),
        ({"spot": False}, {"nodeConfig.spot": True}),
        ({"oauthScopes": ["y"]}, {"nodeConfig.oauthScopes[0]": True}),
    ],
)
def test_inside_a_block_each_property_says_whether_it_replaces(edit: dict[str, Any], expected: dict[str, bool]) -> None:
    assert _replaced_by(edit) == expected


@pytest.mark.parametrize(
    ("inputs", "path", "reason"),
    [
        ({"autoCreateSubnets": False}, "autoCreateSubnets", "no property of this name"),
        ({"mtu": "8896"}, "mtu", "expected integer, got string"),
        ({"selfLink": "x"}, "selfLink", "is an output"),
        ({"bgpBestPathSelectionMode": "BEST"}, "bgpBestPathSelectionMode", "expected one of LEGACY, STANDARD"),
    ],
)
def test_a_wrong_input_is_named_with_its_reason(inputs: dict[str, Any], path: str, reason: str) -> None:
    (failure,) = schema.check(NETWORK, {"name": "n", **inputs})
    assert failure.path == path
    assert reason in failure.reason


def test_every_missing_input_is_named_at_once() -> None:
    missing = {failure.path for failure in schema.check(INSTANCE, {})}
    assert missing == {"capacityGib", "filesystem", "instanceId", "location", "network"}


def test_a_preview_knows_what_is_given_and_not_what_google_makes_up() -> None:
    shown = schema.with_unknowns(NETWORK.properties, schema.planned(NETWORK.properties, {}, {"name": "n", "mtu": 8896}))
    assert shown["mtu"] == 8896
    assert repr(shown["selfLink"]) == "UNKNOWN"
