"""The size of a directory that others write to and prune meanwhile."""

import os
from pathlib import Path


def tree_size(directory: Path) -> tuple[int, int]:
    """Return bytes and number of all files below a directory, as far as they stay while it looks."""
    sizes = []
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                sizes.append((Path(parent) / name).lstat().st_size)
            except FileNotFoundError:
                continue
    return sum(sizes), len(sizes)
