"""The rows of machine types agree with what GKE publishes and with each other."""

import pytest

from components.machines import GPU_MACHINES, MACHINES


def left_to_pods(*, cpu: int, memory_gib: int) -> tuple[float, float]:
    """Compute GKE's published reservation: shares of successive slices, and 100 MiB of memory."""
    reserved = []
    for amount, slices in (
        (cpu, ((1, 0.06), (1, 0.01), (2, 0.005), (cpu, 0.0025))),
        (memory_gib, ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06), (memory_gib, 0.02))),
    ):
        rest, total = float(amount), 0.0
        for size, share in slices:
            total += min(rest, size) * share
            rest -= min(rest, size)
        reserved.append(total)
    return cpu - reserved[0], memory_gib - reserved[1] - 0.1


@pytest.mark.parametrize("name", MACHINES)
def test_a_pod_that_fits_the_row_fits_the_node(name: str) -> None:
    machine = MACHINES[name]
    cpu, memory_gib = left_to_pods(cpu=machine.cpu, memory_gib=machine.memory_gib)
    assert machine.allocatable_cpu <= cpu
    assert machine.allocatable_memory_gib <= memory_gib


@pytest.mark.parametrize("name", GPU_MACHINES)
def test_a_worker_has_the_node_to_itself_but_for_the_cluster_s_own_pods(name: str) -> None:
    machine = GPU_MACHINES[name]
    assert machine.allocatable_cpu / 2 < machine.pod_cpu < machine.allocatable_cpu
    assert machine.allocatable_memory_gib / 2 < machine.pod_memory_gib < machine.allocatable_memory_gib


@pytest.mark.parametrize("name", GPU_MACHINES)
def test_a_row_with_rdma_has_a_second_gvnic_and_a_tuning_of_nccl(name: str) -> None:
    accelerators = GPU_MACHINES[name].accelerators
    assert accelerators is not None
    assert (accelerators.rdma_nics > 0) == (GPU_MACHINES[name].gvnics == 2) == bool(accelerators.nccl_tuner_config)


@pytest.mark.parametrize("name", MACHINES)
def test_zones_come_with_the_day_they_were_read_and_doubts_name_real_fields(name: str) -> None:
    machine = MACHINES[name]
    assert bool(machine.zones) == (machine.zones_read_on is not None)
    assert machine.unverified <= vars(machine).keys()
