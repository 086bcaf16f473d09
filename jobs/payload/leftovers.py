"""What interrupted saves and imports leave on Lustre, set aside so that nobody takes it for whole.

Nothing is deleted without a word. A leftover can be as large as a checkpoint, so that of those set aside in one
directory only the newest stays; each older one is named when it is deleted.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from jobs.payload import checkpoints

_LEFTOVER = re.compile(r"(?:tmp|old)_step_(\d+)")
_NUMBER = re.compile(r".*\.(\d+)")
_KEPT = 1


def clear_saves(checkpoint_dir: Path, aside: Path) -> list[str]:
    """Set aside what interrupted saves left beside the checkpoints; returns a sentence for each thing done.

    An `old_step_N` without its `step_N` is the only copy of that checkpoint, and becomes `step_N` again. A `step_N`
    that is not the newest and lacks its `training_info.json` was being pruned; NeMo-RL would never finish that.
    """
    told = []
    for path in sorted(checkpoint_dir.iterdir()) if checkpoint_dir.is_dir() else []:
        match = _LEFTOVER.fullmatch(path.name)
        if not match:
            continue
        complete = checkpoint_dir / f"step_{match[1]}"
        if path.name.startswith("old_") and not complete.exists():
            path.rename(complete)
            told.append(f"{path.name} was the only copy of {complete.name} and is {complete.name} again")
        else:
            told += _set_aside(path, aside, left_by="an interrupted save")
    for step in checkpoints.steps(checkpoint_dir)[:-1]:
        path = checkpoint_dir / f"step_{step}"
        if not (path / "training_info.json").is_file():
            told += _set_aside(path, aside, left_by="an interrupted removal")
    return told


def clear_import(environment: Mapping[str, str], model_name: str) -> list[str]:
    """Set aside an interrupted import of a model into Megatron's format; returns a sentence for each thing done.

    NeMo-RL (v0.4.0 to v0.7.0) takes an import for whole once `iter_0000000` exists, and Megatron-Bridge writes
    `run_config.yaml` into it last of all (training/checkpointing.py, read on its main branch; not run here). Another
    run that imports the same model into the same cache at this moment fails, and its supervisor starts it again.
    """
    directory = environment.get("NRL_MEGATRON_CHECKPOINT_DIR", "").strip()
    if not directory and (home := environment.get("HF_HOME", "").strip()):
        directory = f"{home}/nemo_rl"
    if not directory:
        return []
    # NeMo-RL's own name for a model that is a path and not a hub's name.
    name = f"model_{model_name.replace('/', '_')}" if Path(model_name).exists() else model_name
    # v0.6.0 adds a hash of the overrides of the model's own config.
    imports = [Path(directory, name), *Path(directory, name).parent.glob(f"{Path(name).name}__hfovr_*")]
    told = []
    for path in imports:
        iteration = path / "iter_0000000"
        if iteration.is_dir() and not (iteration / "run_config.yaml").is_file():
            told += _set_aside(path, Path(directory) / "set-aside", left_by="an interrupted import")
    return told


def _set_aside(path: Path, aside: Path, *, left_by: str) -> list[str]:
    aside.mkdir(parents=True, exist_ok=True)
    numbered = {int(match[1]): entry for entry in aside.iterdir() if (match := _NUMBER.fullmatch(entry.name))}
    target = aside / f"{path.name}.{max(numbered, default=0) + 1}"
    path.rename(target)
    told = [f"{path.name}, left by {left_by}, is set aside as {target}"]
    for number in sorted(numbered)[: len(numbered) + 1 - _KEPT]:
        try:
            shutil.rmtree(numbered[number])
        except OSError as error:
            told.append(f"{numbered[number]}, set aside earlier, cannot be deleted: {error}")
        else:
            told.append(f"{numbered[number]}, set aside earlier, is deleted: only the newest leftover is kept")
    return told
