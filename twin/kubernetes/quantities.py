"""Kubernetes quantities ("200m", "1000Gi", "8") as plain numbers, and what a pod asks of a node."""

from collections import defaultdict
from decimal import Decimal
from typing import Any

Amounts = dict[str, float]
"""Resource name to amount: CPUs in cores, memory and storage in bytes, GPUs in pieces."""

# Longest first: "Mi" ends in no shorter suffix, but "m" must not be taken for a plain number.
_SUFFIXES = {
    **{f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")},
    "m": Decimal("0.001"),
    **{letter: 1000 ** (power + 1) for power, letter in enumerate("kMGTPE")},
}


def amount(quantity: str | float) -> float:
    """Read one quantity; `k8s.io/apimachinery/pkg/api/resource` defines the format."""
    text = str(quantity)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return float(Decimal(text.removesuffix(suffix)) * factor)
    return float(text)


def amounts(quantities: dict[str, Any] | None) -> Amounts:
    """Read a map of quantities, such as a node's allocatable."""
    return {name: amount(quantity) for name, quantity in (quantities or {}).items()}


def pod_requests(spec: dict[str, Any]) -> Amounts:
    """Add up what a pod's containers request; an init container counts where it alone asks for more."""
    total: dict[str, float] = defaultdict(float)
    for container in spec["containers"]:
        resources = container.get("resources", {})
        for name, value in (amounts(resources.get("limits")) | amounts(resources.get("requests"))).items():
            total[name] += value
    for container in spec.get("initContainers", []):
        for name, value in amounts(container.get("resources", {}).get("requests")).items():
            total[name] = max(total[name], value)
    return {**total, "pods": 1}
