"""The connection can always go, on a network of the stack's own, and never takes another's with it."""

import pytest

from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_NETWORK
from tests.program import Run, changed, run_program, stack_settings


def test_the_stack_s_own_peering_is_removed_so_that_destroy_ends(run: Run) -> None:
    assert run["access-connection"].inputs["deletionPolicy"] == "REMOVE_PEERING"
    assert run["access-range"].inputs["deletionPolicy"] == "DELETE"


@pytest.mark.parametrize("policy", ["DELETE", "ABANDON"])
def test_the_policy_can_be_chosen(policy: str) -> None:
    settings = changed(stack_settings("dev"), private_service_access__deletion_policy=policy)
    assert run_program("dev", settings)["access-connection"].inputs["deletionPolicy"] == policy


def test_on_an_existing_network_connection_and_range_are_left_behind_together() -> None:
    run = run_program("dev", changed(stack_settings("dev"), network=EXISTING_NETWORK))
    assert run["access-connection"].inputs["deletionPolicy"] == "ABANDON"
    assert run["access-range"].inputs["deletionPolicy"] == "ABANDON"


def test_an_existing_connection_is_neither_made_nor_read() -> None:
    settings = changed(stack_settings("dev"), network=EXISTING_NETWORK, private_service_access=EXISTING_ACCESS)
    run = run_program("dev", settings)
    assert not run.of_type("gcp:servicenetworking/connection:Connection")
    assert not run.of_type("gcp:compute/globalAddress:GlobalAddress")
    assert run["lustre-port"].inputs["sourceRanges"] == ["10.64.0.0/22"]
