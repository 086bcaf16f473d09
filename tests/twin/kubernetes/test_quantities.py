import pytest

from tests.twin.kubernetes import rows
from twin.kubernetes.quantities import amount, pod_requests


@pytest.mark.parametrize(
    ("quantity", "value"),
    [("8", 8), (8, 8), ("200m", 0.2), ("1000Gi", 1000 * 1024**3), ("1.5Mi", 1.5 * 1024**2), ("3G", 3e9), ("2k", 2000)],
)
def test_quantities_are_read_as_kubernetes_defines_them(quantity: str | int, value: float) -> None:
    assert amount(quantity) == pytest.approx(value)


def test_a_pod_asks_for_the_sum_of_its_containers_or_its_largest_init_container() -> None:
    spec = rows.pod("p", {"cpu": "1", "memory": "1Gi"})["spec"]
    spec["containers"] *= 2
    spec["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "200m", "memory": "5Gi"}}}]
    assert pod_requests(spec) == {"cpu": 2.0, "memory": 5 * 1024**3, "pods": 1}


def test_a_limit_counts_where_no_request_is_given() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}, "requests": {"cpu": 1}}}]}
    assert pod_requests(spec)["nvidia.com/gpu"] == 8
