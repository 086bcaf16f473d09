"""The checkpoints of a run on disk, in NeMo-RL's layout: `step_N`; `leftovers.py` has what interrupted saves leave.

NeMo-RL (`nemo_rl/utils/checkpoint.py`, v0.4.0) writes `tmp_step_N`, moves an existing `step_N` to `old_step_N`, renames
`tmp_step_N` to `step_N`, and resumes from the highest `step_N`. A `tmp_step_N` that it finds it fills up as it is.
"""

import re
from pathlib import Path

from jobs.payload.tree import tree_size

_STEP = re.compile(r"step_(\d+)")
_TOP_LEVEL_KEY = re.compile(r"\S")
_MODEL_NAME = re.compile(r"(\s+)model_name:\s*(.+?)\s*")


def steps(checkpoint_dir: Path) -> list[int]:
    """Return the steps that have a checkpoint, in order."""
    if not checkpoint_dir.is_dir():
        return []
    names = (_STEP.fullmatch(path.name) for path in checkpoint_dir.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in names if match)


def newest(checkpoint_dir: Path) -> int:
    """Return the step that training resumes from; 0 for none."""
    return max(steps(checkpoint_dir), default=0)


def measure(checkpoint_dir: Path, step: int) -> tuple[int, int]:
    """Return a checkpoint's bytes and files; one that is pruned meanwhile counts as far as it was seen."""
    return tree_size(checkpoint_dir / f"step_{step}")


def model_of(checkpoint_dir: Path, step: int) -> str | None:
    """Return `policy.model_name` of the config saved with a checkpoint, or none if it does not say.

    Only this line is read, as the standard library has no YAML; NeMo-RL writes the file with `yaml.safe_dump`.
    """
    path = checkpoint_dir / f"step_{step}" / "config.yaml"
    if not path.is_file():
        return None
    in_policy, indent = False, None
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if _TOP_LEVEL_KEY.match(line):
            in_policy = line.rstrip() == "policy:"
            continue
        if not in_policy or not line.strip():
            continue
        indent = indent or line[: len(line) - len(line.lstrip())]
        match = _MODEL_NAME.fullmatch(line)
        if match and match[1] == indent:
            return match[2].strip("'\"")
    return None
