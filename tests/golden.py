"""Golden files: what a pure function or the whole program is known to give, kept under tests/golden/ as JSON.

After a change that is meant: `UPDATE_GOLDEN=1 python -m pytest tests/components tests/test_program.py`, then read what
`git diff` says.
"""

import json
import os
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).with_name("golden")


def assert_golden(name: str, value: Any) -> None:
    """Compare a value with its golden file, or write the file when told to."""
    file = DIRECTORY / f"{name}.json"
    text = json.dumps(value, indent=2, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert json.loads(text) == json.loads(file.read_text()), (
        f"differs from {file.name}; tests/golden.py says what to do"
    )
