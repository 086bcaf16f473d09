"""The cluster is private, guarded by IAM, equipped for Ray and Lustre, and its credentials are in no kubeconfig."""

import json

from components.gke_cluster import kubeconfig
from tests.components.rules.verdicts import EXISTING_CLUSTER, EXISTING_NETWORK
from tests.golden import assert_golden
from tests.program import Run, changed, run_program, stack_settings


def test_the_kubeconfig_asks_a_plugin_and_holds_no_token() -> None:
    text = kubeconfig("rlstack-dev", "gke-0a1b.us-east1.gke.goog")
    assert_golden("kubeconfig", json.loads(text))
    assert "token" not in text
    assert "certificate" not in text


def test_only_iam_guards_the_control_plane_unless_networks_are_named(dev_run: Run) -> None:
    inputs = dev_run["gke-cluster"].inputs
    assert inputs["controlPlaneEndpointsConfig"]["ipEndpointsConfig"] == {"enabled": False}
    assert "masterAuthorizedNetworksConfig" not in inputs

    office = [{"name": "office", "cidr": "203.0.113.0/24"}]
    inputs = run_program("dev", changed(stack_settings("dev"), cluster__authorized_networks=office))[
        "gke-cluster"
    ].inputs
    assert inputs["controlPlaneEndpointsConfig"]["ipEndpointsConfig"] == {"enabled": True}
    assert inputs["masterAuthorizedNetworksConfig"] == {
        "cidrBlocks": [{"cidrBlock": "203.0.113.0/24", "displayName": "office"}]
    }


def test_nodes_are_private_and_policies_are_enforced(run: Run) -> None:
    inputs = run["gke-cluster"].inputs
    assert inputs["privateClusterConfig"]["enablePrivateNodes"] is True
    assert inputs["datapathProvider"] == "ADVANCED_DATAPATH"


def test_the_operator_comes_with_logging_and_monitoring_or_not_at_all() -> None:
    for enabled in (True, False):
        run = run_program("dev", changed(stack_settings("dev"), cluster__ray_operator=enabled))
        assert run["gke-cluster"].inputs["addonsConfig"]["rayOperatorConfigs"] == [
            {
                "enabled": enabled,
                "rayClusterLoggingConfig": {"enabled": enabled},
                "rayClusterMonitoringConfig": {"enabled": enabled},
            }
        ]


def test_nodes_run_as_an_account_that_can_do_little(dev_run: Run) -> None:
    roles = {member.inputs["role"] for member in dev_run.of_type("gcp:projects/iAMMember:IAMMember")}
    assert not roles & {"roles/owner", "roles/editor", "roles/container.admin", "roles/storage.objectAdmin"}
    for pool in ("gke-system", "gpus-pool"):
        assert dev_run[pool].inputs["nodeConfig"]["serviceAccount"].startswith("rlstack-dev-nodes@")


def test_the_system_pool_is_never_spot_and_holds_the_image(run: Run) -> None:
    config = run["gke-system"].inputs["nodeConfig"]
    assert "spot" not in config
    assert config["diskSizeGb"] >= 100


def test_nodes_are_not_upgraded_under_a_run(dev_run: Run) -> None:
    (exclusion,) = dev_run["gke-cluster"].inputs["maintenancePolicy"]["maintenanceExclusions"]
    assert exclusion["exclusionOptions"]["scope"] == "NO_MINOR_OR_NODE_UPGRADES"


def test_an_existing_cluster_is_read_and_gets_no_more_than_the_gpu_pool() -> None:
    settings = changed(stack_settings("dev"), network=EXISTING_NETWORK, cluster=EXISTING_CLUSTER)
    run = run_program("dev", settings)
    assert [resource.name for resource in run.resources if resource.parent == "gke"] == ["gke-cluster"]
    assert run["gke-cluster"].read
    assert run["gpus-pool"].inputs["nodeConfig"]["serviceAccount"] == EXISTING_CLUSTER["node_service_account"]
    head = run["ray-cluster"].inputs["spec"]["headGroupSpec"]["template"]["spec"]
    assert head["nodeSelector"] == {"cloud.google.com/gke-nodepool": "system"}
