"""What Google refuses of a node's further NICs: both sides of each rule, asked through the provider."""

from typing import Any

import pytest

from tests.twin.cloud.project import CLUSTER_ID, NETWORK, NETWORK_ID, SPOT_POOL, Project
from twin.cloud.refusals import ApiRefusal
from twin.cloud.store import ResourceType

RDMA_ID = "projects/p/global/networks/rdma"
SUBNET_ID = "projects/p/regions/us-east1/subnetworks/rdma-0"
RDMA = {
    "name": "rdma",
    "autoCreateSubnetworks": False,
    "networkProfile": "https://www.googleapis.com/compute/beta/projects/p/global/networkProfiles/us-east1-b-vpc-roce",
}
SUBNET = {"name": "rdma-0", "region": "us-east1", "network": RDMA_ID, "ipCidrRange": "192.168.128.0/21"}
MULTI_NETWORKING = {"enableMultiNetworking": True, "datapathProvider": "ADVANCED_DATAPATH"}


def pool(zone: str = "us-east1-b") -> dict[str, Any]:
    further = [{"network": "rdma", "subnetwork": "rdma-0"}]
    return SPOT_POOL | {
        "nodeCount": 0,
        "nodeLocations": [zone],
        "networkConfig": {"additionalNodeNetworkConfigs": further},
    }


def with_rdma(project: Project, **cluster: Any) -> None:
    project.with_network()
    project.create(ResourceType.NETWORK, RDMA)
    project.create(ResourceType.SUBNETWORK, SUBNET)
    project.with_cluster(**cluster)


def test_a_roce_network_takes_no_firewall_rule(project: Project) -> None:
    project.with_network()
    project.create(ResourceType.NETWORK, RDMA)
    project.create(ResourceType.FIREWALL, {"name": "f", "network": NETWORK_ID, "allows": [{"protocol": "tcp"}]})
    with pytest.raises(ApiRefusal, match="allows no firewall rules"):
        project.create(ResourceType.FIREWALL, {"name": "g", "network": RDMA_ID, "allows": [{"protocol": "tcp"}]})


def test_further_nics_need_a_cluster_with_multi_networking(project: Project) -> None:
    with_rdma(project)
    with pytest.raises(ApiRefusal, match="need multi-networking, which is off on cluster c"):
        project.create(ResourceType.NODE_POOL, pool())
    project.delete(ResourceType.CLUSTER, CLUSTER_ID)
    project.with_cluster(**MULTI_NETWORKING)
    project.create(ResourceType.NODE_POOL, pool())


def test_multi_networking_needs_dataplane_v2(project: Project) -> None:
    project.with_network()
    with pytest.raises(ApiRefusal, match="multi-networking needs Dataplane V2"):
        project.with_cluster(enableMultiNetworking=True)
    project.with_cluster(**MULTI_NETWORKING)


def test_a_roce_network_takes_machines_of_its_zone_only(project: Project) -> None:
    with_rdma(project, **MULTI_NETWORKING)
    with pytest.raises(ApiRefusal, match="has the RoCE profile of us-east1-b and takes no machine in us-east1-c"):
        project.create(ResourceType.NODE_POOL, pool("us-east1-c"))
    project.create(ResourceType.NODE_POOL, pool("us-east1-b"))


def test_subnet_and_network_of_a_nic_go_after_the_pool(project: Project) -> None:
    with_rdma(project, **MULTI_NETWORKING)
    project.create(ResourceType.NODE_POOL, pool())
    for kind, id_ in ((ResourceType.SUBNETWORK, SUBNET_ID), (ResourceType.NETWORK, RDMA_ID)):
        with pytest.raises(ApiRefusal, match="already being used by"):
            project.delete(kind, id_)
    project.delete(ResourceType.NODE_POOL, f"{CLUSTER_ID}/nodePools/a4")
    project.delete(ResourceType.SUBNETWORK, SUBNET_ID)
    project.delete(ResourceType.NETWORK, RDMA_ID)
    assert [network.name for network in project.store.list(ResourceType.NETWORK)] == [NETWORK["name"]]
