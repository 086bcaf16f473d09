"""Whoever meets an error finds its class in the runbook, with what to type."""

import ast
import re

from twin.state import REPOSITORY

RUNBOOK = REPOSITORY / "docs" / "runbook.md"
# The simulated services speak Google's and Kubernetes' words, which the runbook has by symptom.
SOURCES = [
    *(path for package in ("components", "jobs") for path in (REPOSITORY / package).rglob("*.py")),
    *(REPOSITORY / "twin").glob("*.py"),
]


def error_classes() -> set[str]:
    """Every class below RlstackError that is raised itself, not only as a base of others."""
    bases: dict[str, set[str]] = {}
    raised: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef():
                    bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
                case ast.Call(func=ast.Name(id=name)):
                    raised.add(name)
    found = {"RlstackError"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return (found & raised) - {"RlstackError"}


def test_every_error_class_has_an_entry_with_what_to_type() -> None:
    entries = re.split(r"^### ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    with_remedy = {entry.split(maxsplit=1)[0] for entry in entries if "- Type:" in entry}

    classes = error_classes()
    assert "DashboardUnreachable" in classes
    assert classes - with_remedy == set()
