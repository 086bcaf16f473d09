"""Which nodes Ray calls alive. A killed node is called so for about 15 s more (Ray 2.60: 14.5 s)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """The living nodes at one moment, by Ray's node id.

    Attributes:
        addresses: all nodes, the head too.
        gpus: GPUs of those that have any.
    """

    addresses: Mapping[str, str]
    gpus: Mapping[str, int]

    def has(self, nodes: int, gpus_per_node: int) -> bool:
        """Whether there are enough nodes with enough GPUs each."""
        return sum(gpus >= gpus_per_node for gpus in self.gpus.values()) >= nodes


class NodeTable(Protocol):
    """Where views come from."""

    def view(self) -> NodeView:
        """Return the nodes that are alive now."""
        ...


class RayNodeTable:
    """Ray's own table, as a driver of the cluster that this job runs on sees it."""

    def __init__(self) -> None:
        import ray  # noqa: PLC0415 - the image's; everything else here works without

        self._ray = ray
        # The job's working_dir is of no use to this driver, and no worker of it ever starts.
        ray.init(address="auto", log_to_driver=False, logging_level="warning")

    def view(self) -> NodeView:
        """Return the nodes that are alive now."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        return NodeView(
            addresses={node["NodeID"]: node["NodeManagerAddress"] for node in alive},
            gpus={node["NodeID"]: int(node["Resources"]["GPU"]) for node in alive if node["Resources"].get("GPU")},
        )
