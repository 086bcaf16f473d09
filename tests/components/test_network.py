"""The network carries large packets, hands out pod and service ranges, and lets private nodes out."""

from tests.program import Run


def test_packets_are_as_large_as_lustre_likes(dev_run: Run) -> None:
    assert dev_run["network-vpc"].inputs["mtu"] == 8896
    assert dev_run["network-vpc"].inputs["autoCreateSubnetworks"] is False


def test_the_cluster_uses_the_subnet_s_ranges(dev_run: Run) -> None:
    ranges = {entry["rangeName"] for entry in dev_run["network-subnet"].inputs["secondaryIpRanges"]}
    policy = dev_run["gke-cluster"].inputs["ipAllocationPolicy"]
    assert {policy["clusterSecondaryRangeName"], policy["servicesSecondaryRangeName"]} == ranges


def test_the_internal_firewall_lets_in_nodes_and_pods_and_nobody_else(dev_run: Run) -> None:
    assert dev_run["network-internal"].inputs["sourceRanges"] == ["192.168.0.0/18", "10.4.0.0/14"]


def test_nodes_wait_for_nat_without_which_they_cannot_pull_images(dev_run: Run) -> None:
    assert "network-nat" in dev_run["gke-cluster"].dependencies
