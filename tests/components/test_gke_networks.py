"""What Kubernetes knows of the NICs: one pair of objects for each, before the pods that name them."""

import json

from components.gke_networks import interface_annotations
from components.machines import Accelerators
from tests.program import Run

EIGHT = Accelerators(type="nvidia-b200", count=8, quota_family="B200", rdma_nics=8, nccl_tuner_config="t")


def test_every_network_points_at_parameters_that_name_a_subnet_of_the_stack(dev_run: Run) -> None:
    networks = dev_run.of_type("kubernetes:networking.gke.io/v1:Network")
    parameters = {
        each.inputs["metadata"]["name"]: each
        for each in dev_run.of_type("kubernetes:networking.gke.io/v1:GKENetworkParamSet")
    }
    subnets = {each.inputs["name"] for each in dev_run.of_type("gcp:compute/subnetwork:Subnetwork")}
    assert len(networks) == len(parameters) == 9
    for network in networks:
        spec = network.inputs["spec"]
        target = parameters[spec["parametersRef"]["name"]]
        assert spec["type"] == "Device"
        assert target.name in network.dependencies
        assert target.inputs["spec"]["vpcSubnet"] in subnets
        rdma = network.inputs["metadata"]["name"].startswith("rdma-")
        assert target.inputs["spec"]["deviceMode"] == ("RDMA" if rdma else "NetDevice")


def test_a_pod_names_the_networks_that_there_are_and_keeps_its_first_nic(dev_run: Run) -> None:
    annotations = interface_annotations(EIGHT)
    interfaces = json.loads(annotations["networking.gke.io/interfaces"])
    assert annotations["networking.gke.io/default-interface"] == "eth0"
    assert interfaces[0] == {"interfaceName": "eth0", "network": "default"}
    assert {"interfaceName": "eth2", "network": "rdma-0"} in interfaces
    assert {"interfaceName": "eth9", "network": "rdma-7"} in interfaces
    there = {each.inputs["metadata"]["name"] for each in dev_run.of_type("kubernetes:networking.gke.io/v1:Network")}
    assert {interface["network"] for interface in interfaces[1:]} == there


def test_networks_and_installer_come_before_the_pods(dev_run: Run) -> None:
    assert {"networks-rdma-7", "gib-installer"} <= dev_run["ray-cluster"].dependencies | dev_run["ray"].dependencies
