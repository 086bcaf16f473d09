"""The fast network: the machine has its NICs, and their addresses are free and enough."""

import pytest

from components.machines import GPU_MACHINES, Accelerators, Machine
from tests.components.rules.verdicts import refused

NO_RDMA = Machine(
    cpu=224,
    memory_gib=3968,
    allocatable_cpu=222,
    allocatable_memory_gib=3700,
    boot_disk_type="hyperdisk-balanced",
    accelerators=Accelerators(type="nvidia-l4", count=8, quota_family="NVIDIA_L4"),
)


@pytest.mark.parametrize(
    ("wanted", "keys"), [(True, {"gpu_pool.fast_network"}), (False, set()), (None, set())], ids=["on", "off", "unsaid"]
)
def test_a_machine_without_rdma_is_refused_only_where_rdma_is_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: bool | None, keys: set[str]
) -> None:
    rows = {**GPU_MACHINES, "a4-highgpu-8g": NO_RDMA}
    monkeypatch.setattr("components.rules.fast_network.GPU_MACHINES", rows)
    changes = {} if wanted is None else {"gpu_pool__fast_network": wanted}
    assert refused(**changes) == keys


@pytest.mark.parametrize(
    ("key", "just_beside", "just_inside", "named"),
    [
        ("gvnic_cidr", "192.168.64.0/24", "192.168.63.0/24", "gvnic_cidr"),  # subnet: 192.168.0.0/18
        ("gvnic_cidr", "192.168.127.0/24", "192.168.128.0/24", "rdma_cidr"),  # RDMA: 192.168.128.0/18
        ("rdma_cidr", "10.64.4.0/22", "10.64.0.0/22", "rdma_cidr"),  # Google's services: 10.64.0.0/22
    ],
)
def test_addresses_of_the_further_nics_overlap_no_others(
    key: str, just_beside: str, just_inside: str, named: str
) -> None:
    assert refused(**{f"gpu_pool__{key}": just_beside}) == set()
    assert refused(**{f"gpu_pool__{key}": just_inside}) == {f"gpu_pool.{named}"}


def test_addresses_that_nothing_uses_may_overlap() -> None:
    assert refused(gpu_pool__fast_network=False, gpu_pool__rdma_cidr="192.168.0.0/18") == set()


@pytest.mark.parametrize(
    ("nodes", "key", "enough", "too_few"),
    [
        (8, "rdma_cidr", "192.168.128.0/25", "192.168.128.0/26"),  # eight times 8 nodes and 4 of Google's: eight /28
        (8, "gvnic_cidr", "192.168.64.0/28", "192.168.64.0/29"),
        (4, "gvnic_cidr", "192.168.64.0/29", "192.168.64.0/30"),
        (2, "gvnic_cidr", "192.168.64.0/29", "192.168.64.0/30"),  # Google makes no smaller subnet
    ],
)
def test_every_nic_of_every_node_has_an_address(nodes: int, key: str, enough: str, too_few: str) -> None:
    assert refused(gpu_pool__node_count=nodes, **{f"gpu_pool__{key}": enough}) == set()
    assert refused(gpu_pool__node_count=nodes, **{f"gpu_pool__{key}": too_few}) == {f"gpu_pool.{key}"}
