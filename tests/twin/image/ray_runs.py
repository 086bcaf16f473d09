"""Starts a Ray cluster as the twin's pods would form it, and runs the image's entry script on it.

    python -m tests.twin.image.ray_runs '[["key=value", ...], ...]'

Run it in a network namespace of its own: Ray listens on every interface. Prints one JSON list with a pair of exit code
and log for each run.
"""

import json
import os
import subprocess
import sys

from ray.cluster_utils import Cluster

from tests.twin.image.runs import IMAGE

GPU_NODES, GPUS_PER_NODE = 2, 8
_OBJECT_STORE_BYTES = 100_000_000


def main() -> None:
    """Bring the cluster up, make the runs one after the other, take it down."""
    head = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": _OBJECT_STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(GPU_NODES):
            cluster.add_node(num_cpus=2, num_gpus=GPUS_PER_NODE, object_store_memory=_OBJECT_STORE_BYTES)
        cluster.wait_for_nodes()
        path = os.pathsep.join([str(IMAGE / "bin"), os.environ["PATH"]])
        environment = {**os.environ, "RAY_ADDRESS": cluster.address, "PATH": path}
        results = []
        for overrides in json.loads(sys.argv[1]):
            run = subprocess.run(
                ["uv", "run", "python", "examples/run_grpo.py", *overrides],
                cwd=IMAGE / "nemo-rl",
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                check=False,
            )
            results.append((run.returncode, run.stdout))
        print(json.dumps(results))
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
