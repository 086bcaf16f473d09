"""Looks at a run's checkpoints where they lie, on the head, and prints what is there as one JSON object.

`jobs/checkpoints.py` sends this file's source: `python3 -c SOURCE CHECKPOINT_DIR RUN_DIR`. So it stands alone, on the
standard library, and reads the few keys that it needs of the saved YAML line by line, as `yaml.safe_dump` writes them.
"""

import hashlib
import json
import math
import os
import re
import sys
import time
from typing import Any

_NAME = re.compile(r"(?P<kind>tmp_|old_)?step_(?P<step>\d{1,9})(?:\.\d+)?")
_LEASE = re.compile(r"lease-(\d+)\.json")
_HEARTBEAT_S = 120.0  # twice a lease's time to live
_KEYS = {"policy": ("model_name",), "checkpointing": ("keep_top_k", "metric_name", "higher_is_better")}
_WORDS = {"null": None, "true": True, "false": False}


def _config(path: str) -> "dict[str, Any]":
    """Read the known keys of a checkpoint's config.yaml; the first level of indentation is the section's own."""
    found: dict[str, Any] = {}
    section, indent = "", ""
    try:
        with open(f"{path}/config.yaml", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - stands alone
            for line in lines:
                if line[:1].strip():
                    section, indent = line.rstrip().removesuffix(":"), ""
                    continue
                key, colon, value = line.strip().partition(":")
                indent = indent or line[: len(line) - len(line.lstrip())]
                if colon and key in _KEYS.get(section, ()) and line.startswith(indent + key):
                    text = value.strip()
                    number = int(text) if text.isdecimal() else text.strip("'\"")
                    found[key] = _WORDS.get(text, number)
    except OSError:
        pass
    return found


def _metrics(path: str) -> "dict[str, float] | None":
    """Read the numbers of a checkpoint's training_info.json; none if there is no such file to be read."""
    try:
        with open(f"{path}/training_info.json", encoding="utf-8") as text:  # noqa: PTH123
            info = json.load(text)
    except (OSError, ValueError):
        return None
    return {str(key): value for key, value in info.items() if isinstance(value, int | float) and math.isfinite(value)}


def _size(path: str) -> "tuple[int, int]":
    size = files = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                size += os.lstat(f"{directory}/{name}").st_size
            except FileNotFoundError:
                continue  # pruned while we looked
            files += 1
    return size, files


def _state(kind: "str | None", path: str, *, is_loadable: bool) -> str:
    if kind == "old_":
        # Between two renames: what is left of a save that was interrupted there.
        return "replaced" if os.path.isdir(path.replace("old_step_", "step_")) else "only copy"  # noqa: PTH112
    return "complete" if kind is None and is_loadable else "incomplete"


def _exported_step(checkpoint_dir: str, run_dir: str) -> "int | None":
    """Read the step that jobs/payload/export.py copied whole last; none if what lies there is not what it copied."""
    try:
        with open(f"{run_dir}/supervisor/exported.json", encoding="utf-8") as text:  # noqa: PTH123
            record = json.load(text)
        step = int(record["step"])
        with open(f"{checkpoint_dir}/step_{step}/training_info.json", "rb") as info:  # noqa: PTH123
            is_it = hashlib.sha256(info.read()).hexdigest() == record["training_info_sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return step if is_it else None


def _is_supervised(run_dir: str) -> bool:
    """Whether a supervisor holds the run's lease (jobs/payload/lease.py) and its heart has beaten of late."""
    try:
        leases = [name for name in os.listdir(f"{run_dir}/supervisor") if _LEASE.fullmatch(name)]  # noqa: PTH208
        path = f"{run_dir}/supervisor/{max(leases, key=lambda name: int(_LEASE.fullmatch(name)[1]))}"  # type: ignore[index]
        with open(path, encoding="utf-8") as text:  # noqa: PTH123
            released = json.load(text)["released"]
        return not released and time.time() - os.stat(path).st_mtime < _HEARTBEAT_S  # noqa: PTH116
    except (OSError, ValueError, LookupError, TypeError):
        return False


def scan(checkpoint_dir: str, run_dir: str) -> "dict[str, Any]":
    """Return every checkpoint and leftover of a run, and how NeMo-RL prunes there."""
    entries, newest, pruning = [], -1, {}
    for directory in (checkpoint_dir, f"{run_dir}/set-aside"):
        try:
            names = sorted(os.listdir(directory))  # noqa: PTH208
        except FileNotFoundError:
            continue
        for name in names:
            match, path = _NAME.fullmatch(name), f"{directory}/{name}"
            if not match or not os.path.isdir(path):  # noqa: PTH112
                continue
            try:
                modified = os.stat(path).st_mtime  # noqa: PTH116
            except FileNotFoundError:
                continue
            config, metrics, (size, files) = _config(path), _metrics(path), _size(path)
            state = _state(match["kind"], path, is_loadable=metrics is not None)
            if directory != checkpoint_dir:
                state = "set aside"
            step = int(match["step"])
            if state == "complete" and step > newest:
                newest, pruning = step, config
            entries.append(
                {
                    "name": name,
                    "step": step,
                    "state": state,
                    "age_s": max(0.0, round(time.time() - modified, 1)),
                    "bytes": size,
                    "files": files,
                    "model": config.get("model_name"),
                    "metrics": metrics or {},
                }
            )
    numbers = {key: pruning.get(key) for key in _KEYS["checkpointing"]}
    return {
        "checkpoints": entries,
        **numbers,
        "exported_step": _exported_step(checkpoint_dir, run_dir),
        "is_supervised": _is_supervised(run_dir),
    }


if __name__ == "__main__":
    print(json.dumps(scan(sys.argv[1], sys.argv[2])))
