"""What the trainer asks of Ray, as NeMo-RL v0.4.0 asks it (`virtual_cluster.py`, `venvs.py`): environment, GPUs, nodes.

The flaws are kept on purpose, because supervision has to live with them: the whole environment becomes part of the
runtime environment, and the wait for a CPU on every living node has no deadline.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from nemo_rl_cpu.config import ClusterConfig
from nemo_rl_cpu.rollouts import RolloutWorker

MAX_RETRIES_VARIABLE = "NRL_VIRTUAL_CLUSTER_MAX_RETRIES"
_PLACEMENT_TIMEOUT_S = 180
# A GPU's bundle holds a whole CPU in NeMo-RL; the nodes that share this machine's few have none to spare.
_BUNDLE = {"GPU": 1, "CPU": 0.1}


class ResourceInsufficientError(Exception):
    """The Ray cluster has fewer GPUs than the run is configured for."""


def init_ray() -> None:
    """Join the running cluster and hand every environment variable to its workers.

    Raises:
        ConnectionError: no Ray cluster runs here.
    """
    ray.init(address="auto", log_to_driver=True, include_dashboard=False, runtime_env={"env_vars": dict(os.environ)})
    print(f"Connected to existing Ray cluster: {ray.cluster_resources()}")


def _require_gpus(cluster: ClusterConfig) -> None:
    requested = cluster.num_nodes * cluster.gpus_per_node
    available = int(ray.cluster_resources().get("GPU", 0))
    if requested > available:
        raise ResourceInsufficientError(
            f"Not enough GPUs available. Requested {requested} GPUs, but only {available} are available in the cluster."
        )


def wait_for_gpus(cluster: ClusterConfig) -> None:
    """Wait until the cluster has the GPUs: 1, 2, 4 ... seconds between tries, 63 seconds with NeMo-RL's six tries.

    $NRL_VIRTUAL_CLUSTER_MAX_RETRIES sets the number of tries.

    Raises:
        ResourceInsufficientError: the GPUs did not come.
    """
    tries = int(os.environ.get(MAX_RETRIES_VARIABLE, "6"))
    for attempt in range(tries):
        try:
            return _require_gpus(cluster)
        except ResourceInsufficientError as error:
            print(error)
            print(f"Retrying placement group creation... {attempt + 1}/{tries}. Next retry in {2**attempt} seconds.")
            time.sleep(2**attempt)
    raise ResourceInsufficientError(
        f"Maximum number of retries reached ({tries}). Cluster resources may be insufficient or cluster itself is "
        "highly unstable. Please check your cluster configuration and your cluster logs."
    )


def place_nodes(cluster: ClusterConfig) -> list[Any]:
    """Reserve one placement group of GPU bundles per node.

    Raises:
        TimeoutError: they could not be placed within 180 s.
    """
    groups = [
        placement_group([_BUNDLE] * cluster.gpus_per_node, strategy="PACK", name=f"grpo-node{node}")
        for node in range(cluster.num_nodes)
    ]
    try:
        ray.get([group.ready() for group in groups], timeout=_PLACEMENT_TIMEOUT_S)
    except ray.exceptions.GetTimeoutError as error:
        for group in groups:
            remove_placement_group(group)
        raise TimeoutError(
            "Timed out waiting for placement groups to be ready. The cluster may not have enough resources "
            "to satisfy the requested configuration, or the resources may be busy with other tasks."
        ) from error
    return groups


def visit_every_node() -> None:
    """Take a CPU on every node that Ray calls alive, for as long as it takes, and give it back.

    NeMo-RL builds its virtual environments so. A node without a logical CPU, or one that died a moment ago, makes this
    wait for ever.
    """
    living = [node for node in ray.nodes() if node["Alive"]]
    group = placement_group([{"CPU": 1}] * len(living), strategy="STRICT_SPREAD")
    ray.get(group.ready())
    remove_placement_group(group)


class RayWorkers:
    """One rollout worker per node. A node that dies ends the run with Ray's error, as it ends NeMo-RL's."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors

    def broadcast(self, method: str, *arguments: Any) -> None:
        """Call a method of every worker and wait for all of them."""
        shared = [ray.put(argument) for argument in arguments]
        ray.get([getattr(actor, method).remote(*shared) for actor in self._actors])

    def map(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Share the calls out among the workers in turn."""
        results: list[Any] = ray.get(
            [getattr(self._actors[index % len(self._actors)], method).remote(*call) for index, call in enumerate(calls)]
        )
        return results


def connect_ray(cluster: ClusterConfig) -> RayWorkers:
    """Join Ray, reserve the nodes' GPUs and start a worker in each node's first bundle."""
    init_ray()
    wait_for_gpus(cluster)
    groups = place_nodes(cluster)
    print(f"  ✓ Ray cluster for policy initialized with {len(groups)} nodes")
    visit_every_node()
    actor = ray.remote(RolloutWorker)
    return RayWorkers(
        [
            actor.options(
                num_gpus=_BUNDLE["GPU"],
                num_cpus=_BUNDLE["CPU"],
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=0
                ),
            ).remote()
            for group in groups
        ]
    )
