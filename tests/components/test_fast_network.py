"""The fast network: two VPCs of the stack's own, cut for a node's NICs, attached to pool and cluster, or nothing."""

from ipaddress import IPv4Network

import pytest

from components.machines import GPU_MACHINES
from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_NETWORK
from tests.program import Run, changed, run_program, stack_settings

FIREWALL = "gcp:compute/firewall:Firewall"
NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"


def test_the_rdma_network_has_the_profile_of_the_zone_and_no_firewall(dev_run: Run) -> None:
    network = dev_run["fast-rdma"].inputs
    assert network["networkProfile"].endswith("/projects/my-project-id/global/networkProfiles/us-east1-b-vpc-roce")
    assert (network["mtu"], network["routingMode"]) == (8896, "REGIONAL")
    firewalls = [rule.inputs["network"] for rule in dev_run.of_type(FIREWALL)]
    assert firewalls
    assert not any("rdma" in network for network in firewalls)


@pytest.mark.parametrize("machine_type", GPU_MACHINES)
def test_every_rdma_nic_of_a_row_has_a_subnet_and_all_lie_within_the_range(machine_type: str) -> None:
    run = run_program("dev", changed(stack_settings("dev"), gpu_pool__machine_type=machine_type))
    accelerators = GPU_MACHINES[machine_type].accelerators
    assert accelerators is not None
    cidrs = [
        IPv4Network(subnet.inputs["ipCidrRange"]) for subnet in run.of_type(SUBNET) if "-rdma-" in subnet.inputs["name"]
    ]
    assert len(cidrs) == accelerators.rdma_nics
    assert all(cidr.subnet_of(IPv4Network("192.168.128.0/18")) and cidr.prefixlen == 21 for cidr in cidrs)
    assert len(set(cidrs)) == len(cidrs)


def test_the_pool_is_attached_to_each_network_in_the_order_of_the_nics(dev_run: Run) -> None:
    further = dev_run["gpus-pool"].inputs["networkConfig"]["additionalNodeNetworkConfigs"]
    assert further == [
        {"network": "rlstack-dev-gvnic", "subnetwork": "rlstack-dev-gvnic"},
        *({"network": "rlstack-dev-rdma", "subnetwork": f"rlstack-dev-rdma-{index}"} for index in range(8)),
    ]


def test_the_cluster_has_multi_networking_from_the_start_and_is_made_anew_for_it(dev_run: Run, local_run: Run) -> None:
    cluster = dev_run["gke-cluster"]
    assert cluster.inputs["enableMultiNetworking"] is True
    assert cluster.inputs["addonsConfig"]["lustreCsiDriverConfig"]["disableMultiNic"] is True
    assert cluster.options["replaceOnChanges"] == ["enableMultiNetworking"]
    assert "enableMultiNetworking" not in local_run["gke-cluster"].inputs
    assert "disableMultiNic" not in local_run["gke-cluster"].inputs["addonsConfig"]["lustreCsiDriverConfig"]


def test_one_switch_turns_all_of_it_off() -> None:
    run = run_program("dev", changed(stack_settings("dev"), gpu_pool__fast_network=False))
    assert len(run.of_type(NETWORK)) == 1
    assert run["gpus-pool"].inputs["networkConfig"] == {"enablePrivateNodes": True}
    kinds = {resource.type.rpartition(":")[2] for resource in run.resources}
    assert not kinds & {"FastNetwork", "GkeNetworks", "Gib", "GKENetworkParamSet", "DaemonSet"}
    spec = run["ray-cluster"].inputs["spec"]
    assert "networking.gke.io" not in str(spec)
    assert "gib" not in str(spec).lower()
    for group in (spec["headGroupSpec"], spec["workerGroupSpecs"][0]):
        environment = {entry["name"]: entry["value"] for entry in group["template"]["spec"]["containers"][0]["env"]}
        assert environment["NCCL_SOCKET_IFNAME"] == "eth0"


def test_in_an_existing_network_the_further_networks_are_the_stack_s_own() -> None:
    settings = changed(stack_settings("dev"), network=EXISTING_NETWORK, private_service_access=EXISTING_ACCESS)
    made = {network.inputs["name"] for network in run_program("dev", settings).of_type(NETWORK) if not network.read}
    assert made == {"rlstack-dev-gvnic", "rlstack-dev-rdma"}
