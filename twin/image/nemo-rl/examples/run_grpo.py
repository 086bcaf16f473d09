"""Entry script: `uv run python examples/run_grpo.py [--config FILE] [key=value ...]`, as in NeMo-RL's container."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Before numpy is loaded: a step is many small products, which threads slow down, and Ray's workers inherit both.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
# The container has its package installed; here it is found on the path, by the driver and by Ray's workers.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
sys.path.insert(0, str(ROOT))

from nemo_rl_cpu.main import main  # noqa: E402
from nemo_rl_cpu.virtual_cluster import connect_ray  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], connect=connect_ray))
