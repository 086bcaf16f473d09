"""KubeRay's `ray start` command, made to share one network namespace and one machine with other Ray nodes.

All pods of a RayCluster live in one namespace, each with its own address. What Ray binds to the node's address stays
as it is; what it binds to every address (metrics, workers) must take a free port.
"""

import re
import shlex

_RAY_START = re.compile(r"\bray start\b[^;&|\n]*")
# Ray takes 30 % of a container's memory for its object store, and no more than /dev/shm holds. The machine under all
# pods holds far less than the pods are told, so one node's store is also kept to a share of it.
_STORE_SHARE = 0.3
_MACHINE_SHARE = 0.05
_SMALLEST_STORE_BYTES = 100 * 1024**2


def object_store_bytes(*, memory_bytes: float, shm_bytes: float, machine_bytes: float) -> int:
    """Size a node's object store as Ray would inside the container, within a twentieth of this machine's memory.

    Args:
        memory_bytes: the container's memory limit.
        shm_bytes: size of its /dev/shm.
        machine_bytes: memory of this machine.
    """
    wanted = min(memory_bytes * _STORE_SHARE, shm_bytes * 0.95, machine_bytes * _MACHINE_SHARE)
    return max(_SMALLEST_STORE_BYTES, int(wanted))


def rewrite(command: str, *, address: str, store_bytes: int) -> str:
    """Rewrite every `ray start` in a shell command; text without one comes back as it is."""
    forced = {
        "node-ip-address": address,
        "metrics-export-port": "0",
        "dashboard-agent-listen-port": "0",
        "min-worker-port": "0",
        "max-worker-port": "0",
        "object-store-memory": str(store_bytes),
    }

    def replace(match: re.Match[str]) -> str:
        return shlex.join([*_without(shlex.split(match[0]), forced), *(f"--{k}={v}" for k, v in forced.items())])

    return _RAY_START.sub(replace, command)


def _without(words: list[str], options: dict[str, str]) -> list[str]:
    kept: list[str] = []
    skip_value = False
    for word in words:
        name, assigned, _ = word.removeprefix("--").partition("=")
        if skip_value:
            skip_value = False
        elif word.startswith("--") and name in options:
            skip_value = not assigned
        else:
            kept.append(word)
    return kept
