"""Puts a base model into the model cache before training: `uv run python examples/prefetch.py MODEL_NAME`.

What the hub's client does in NeMo-RL's container; run again, it finds the model there. Exit code 2 for a model that
does not exist.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# As in run_grpo.py: before numpy is loaded, and the same for the bits of the weights.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
sys.path.insert(0, str(ROOT))

from nemo_rl_cpu.base_model import BASE_MODELS, load_base_model  # noqa: E402
from nemo_rl_cpu.main import model_cache  # noqa: E402


def main(name: str) -> int:
    """Load the model, which puts it into the cache if it is not there."""
    if name not in BASE_MODELS:
        print(f"LookupError: there is no base model {name}; there are {', '.join(BASE_MODELS)}")
        return 2
    load_base_model(name, model_cache())
    print(f"{name} is in {model_cache()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
