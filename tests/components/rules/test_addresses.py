"""Rules about addresses: what just passes, and what just fails."""

import pytest

from tests.components.rules.verdicts import refused


@pytest.mark.parametrize(
    ("key", "just_beside", "just_inside"),
    [
        ("network__subnet_cidr", "10.8.0.0/18", "10.7.192.0/18"),  # pods: 10.4.0.0/14
        ("network__services_cidr", "10.0.32.0/20", "10.64.0.0/20"),  # Google's services: 10.64.0.0/22
        ("network__pods_cidr", "10.4.0.0/14", "10.0.0.0/14"),  # services: 10.0.32.0/20
        ("private_service_access__range_start", "10.8.0.0", "10.7.252.0"),
        ("private_service_access__range_start", "192.167.252.0", "192.168.0.0"),  # subnet: 192.168.0.0/18
    ],
)
def test_address_ranges_do_not_overlap(key: str, just_beside: str, just_inside: str) -> None:
    assert refused(**{key: just_beside}) == set()
    assert len(refused(**{key: just_inside})) == 1


@pytest.mark.parametrize(("prefix", "keys"), [(24, set()), (25, {"private_service_access.prefix_length"})])
def test_lustre_gets_a_range_of_256_addresses_or_more(prefix: int, keys: set[str]) -> None:
    assert refused(private_service_access__prefix_length=prefix) == keys


@pytest.mark.parametrize(
    ("cidr", "keys"), [("0.0.0.0/1", set()), ("0.0.0.0/0", {"cluster.authorized_networks.0.cidr"})]
)
def test_the_control_plane_is_not_opened_to_the_internet(cidr: str, keys: set[str]) -> None:
    assert refused(cluster__authorized_networks=[{"name": "n", "cidr": cidr}]) == keys
