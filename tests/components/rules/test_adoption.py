"""Rules about adoption: what just passes, and what just fails."""

from typing import Any

import pytest

from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_CLUSTER, EXISTING_NETWORK, refused


def test_the_peering_of_a_shared_network_is_not_removed() -> None:
    policy = {"private_service_access__deletion_policy": "REMOVE_PEERING"}
    assert refused(**policy) == set()
    assert refused(network=EXISTING_NETWORK, **policy) == {"private_service_access.deletion_policy"}
    assert refused(network=EXISTING_NETWORK, private_service_access__deletion_policy="ABANDON") == set()


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("cluster", EXISTING_CLUSTER),
        ("private_service_access", EXISTING_ACCESS),
        ("lustre", {"source": "existing", "instance_id": "shared"}),
    ],
)
def test_what_exists_lies_on_an_existing_network(section: str, value: dict[str, Any]) -> None:
    lustre_needs = {"private_service_access": EXISTING_ACCESS} if section == "lustre" else {}
    assert f"{section}.source" in refused(**{section: value}, **lustre_needs)
    assert refused(**{section: value, "network": EXISTING_NETWORK}, **lustre_needs) == set()


def test_a_network_with_an_instance_takes_no_second_connection() -> None:
    lustre = {"source": "existing", "instance_id": "shared"}
    assert refused(network=EXISTING_NETWORK, lustre=lustre) == {"private_service_access.source"}
