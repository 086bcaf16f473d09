import shlex

from twin.kubernetes.ray_start import object_store_bytes, rewrite

GIB = 1024**3
HEAD = (
    "ulimit -n 65536; ray start --head  --dashboard-host=0.0.0.0  --num-cpus=1  --memory=4294967296  "
    "--metrics-export-port=8080  --dashboard-agent-listen-port=52365  --block "
)


def options(command: str) -> list[str]:
    return shlex.split(command.partition("ray start")[2])


def test_ports_that_ray_binds_to_every_address_become_free_ones() -> None:
    given = options(rewrite(HEAD, address="10.4.0.2", store_bytes=100))
    assert "--metrics-export-port=8080" not in given
    assert "--dashboard-agent-listen-port=52365" not in given
    for option in ("metrics-export-port", "dashboard-agent-listen-port", "min-worker-port", "max-worker-port"):
        assert f"--{option}=0" in given


def test_what_the_operator_generated_otherwise_stays() -> None:
    rewritten = rewrite(HEAD, address="10.4.0.2", store_bytes=100)
    assert rewritten.startswith("ulimit -n 65536; ray start --head")
    assert {"--num-cpus=1", "--memory=4294967296", "--dashboard-host=0.0.0.0", "--block"} <= set(options(rewritten))


def test_an_option_with_its_value_in_the_next_word_is_replaced_whole() -> None:
    given = options(rewrite("ray start --node-ip-address 1.2.3.4 --block", address="10.4.0.3", store_bytes=100))
    assert "1.2.3.4" not in given
    assert "--node-ip-address=10.4.0.3" in given
    assert "--block" in given


def test_a_command_after_the_start_is_not_swallowed() -> None:
    rewritten = rewrite("ray start --head --block && echo done", address="10.4.0.2", store_bytes=1)
    assert rewritten.endswith("&& echo done")


def test_a_command_without_ray_start_is_left_alone() -> None:
    assert rewrite("ray stop", address="10.4.0.2", store_bytes=1) == "ray stop"


def test_the_object_store_fits_the_container_its_shm_and_the_machine() -> None:
    assert object_store_bytes(memory_bytes=10 * GIB, shm_bytes=64 * GIB, machine_bytes=1000 * GIB) == 3 * GIB
    assert object_store_bytes(memory_bytes=1000 * GIB, shm_bytes=GIB, machine_bytes=1000 * GIB) < GIB
    assert object_store_bytes(memory_bytes=1000 * GIB, shm_bytes=512 * GIB, machine_bytes=20 * GIB) == GIB
