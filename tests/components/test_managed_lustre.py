"""Lustre is made after its connection, on one port everywhere, and found where it is mounted."""

import pytest

from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_NETWORK
from tests.program import Run, changed, run_program, stack_settings


def test_the_instance_waits_for_the_connection_and_for_the_guard(run: Run) -> None:
    assert {"access-connection", "lustre-guard"} <= run["lustre-instance"].dependencies


def test_lustre_and_the_cluster_do_not_wait_for_each_other(run: Run) -> None:
    assert not any(name.startswith("gke") for name in run["lustre-instance"].dependencies)
    assert not any(name.startswith(("lustre", "access")) for name in run["gke-cluster"].dependencies)


@pytest.mark.parametrize(("legacy", "port"), [(False, "988"), (True, "6988")])
def test_one_setting_pairs_instance_driver_and_firewall(legacy: bool, port: str) -> None:
    run = run_program("dev", changed(stack_settings("dev"), lustre__legacy_port=legacy))
    addons = run["gke-cluster"].inputs["addonsConfig"]
    assert run["lustre-instance"].inputs["gkeSupportEnabled"] is legacy
    assert addons["lustreCsiDriverConfig"]["enableLegacyLustrePort"] is legacy
    assert run["lustre-port"].inputs["allows"] == [{"protocol": "tcp", "ports": [port]}]


def test_the_guard_records_what_the_instance_is_made_with(dev_run: Run) -> None:
    guard, instance = dev_run["lustre-guard"].inputs, dev_run["lustre-instance"].inputs
    assert guard["location"] == instance["location"]
    assert guard["network"] == instance["network"]
    assert guard["filesystem"] == instance["filesystem"]
    assert guard["instance_id"] == instance["instanceId"]
    assert f"{guard['capacity_gib']:g}" == instance["capacityGib"]
    assert f"{guard['throughput_mbps_per_tib']:g}" == instance["perUnitStorageThroughput"]


def test_a_replacement_that_gets_through_never_deletes_first(dev_run: Run) -> None:
    options = dev_run["lustre-instance"].options
    assert options["deleteBeforeReplaceDefined"]
    assert not options.get("deleteBeforeReplace")


def test_an_existing_instance_is_read_and_on_record_and_has_no_firewall() -> None:
    settings = changed(
        stack_settings("dev"),
        network=EXISTING_NETWORK,
        private_service_access=EXISTING_ACCESS,
        lustre={"source": "existing", "instance_id": "shared"},
    )
    run = run_program("dev", settings)
    assert {resource.name for resource in run.resources if resource.parent == "lustre"} == {
        "lustre-guard",
        "lustre-instance",
    }
    assert run["lustre-instance"].read
    assert run["volume-volume"].inputs["spec"]["csi"]["volumeHandle"] == "my-project-id/us-east1-b/shared"
    assert run["volume-volume"].inputs["spec"]["capacity"] == {"storage": "18000Gi"}
