"""What an update would do, read out of the engine's events, and told as Markdown. Pure functions.

Components are left out: only what they are made of exists in a cloud. So are default providers, which Pulumi does not
show either.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

LONGEST_VALUE = 60
MOST_WORDS = 4
"""Words shown of a long text that changed, such as a job's entrypoint."""

_SAME = {"same", "refresh", "read"}
_DYNAMIC = "pulumi-python:dynamic/"
_PATH_PART = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[]+)')
# The engine says on every run from where it took a provider.
_NO_NEWS = re.compile(r"using pulumi-resource-\S+ from ")


class Operation(StrEnum):
    """What happens to a resource; the values are the engine's words."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


_TOLD = {
    Operation.REPLACE: "replaced",
    Operation.DELETE: "deleted",
    Operation.CREATE: "created",
    Operation.UPDATE: "changed in place",
}
"""In the order in which a reader should see them."""


@dataclass(frozen=True, kw_only=True)
class PropertyChange:
    """One property of a resource.

    Attributes:
        path: Pulumi's property path, for example `autoscaling.maxNodeCount`.
        old: its value before as text; empty where it was absent or does not fit into a line.
        new: its value after, likewise.
        replaces: whether this change is why the resource is replaced.
    """

    path: str
    old: str
    new: str
    replaces: bool


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to one resource; `properties` is empty for one that is created or deleted."""

    operation: Operation
    type: str
    name: str
    properties: tuple[PropertyChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one run of the engine would do, or did.

    Attributes:
        changes: of resources, in the engine's order.
        unchanged: how many resources stay as they are.
        warnings: of the program and the providers.
        errors: why the engine stopped; none after a run that ended well.
    """

    changes: tuple[Change, ...]
    unchanged: int
    warnings: tuple[str, ...]
    errors: tuple[str, ...]


def read_plan(events: Iterable[Mapping[str, Any]]) -> Plan:
    """Read a plan out of the engine's events, as the Automation API gives them."""
    changes: list[Change] = []
    unchanged = 0
    told: dict[str, list[str]] = {"warning": [], "error": []}
    for event in events:
        if diagnostic := event.get("diagnostic_event"):
            message = diagnostic["message"].strip().removeprefix(f"{diagnostic['severity']}: ")
            known = told.get(diagnostic["severity"], [])
            # The Python runtime says what stopped the program once more, behind words of its own.
            if message and not any(each in message for each in known) and not _NO_NEWS.match(message):
                known.append(message)
        step = (event.get("resource_pre_event") or {}).get("metadata")
        if step is None or not _exists_in_a_cloud(step):
            continue
        if step["op"] in _SAME:
            unchanged += 1
        elif step["op"] in set(Operation):
            changes.append(_change(step))
    return Plan(
        changes=tuple(changes), unchanged=unchanged, warnings=tuple(told["warning"]), errors=tuple(told["error"])
    )


def _exists_in_a_cloud(step: Mapping[str, Any]) -> bool:
    state = step.get("new") or step.get("old") or {}
    default_provider = step["type"].startswith("pulumi:providers:") and _name(step["urn"]).startswith("default")
    return bool(state.get("custom")) and not default_provider


def _change(step: Mapping[str, Any]) -> Change:
    operation = Operation(step["op"])
    changed = operation in {Operation.UPDATE, Operation.REPLACE}
    return Change(
        operation=operation,
        type=_short_type(step["type"]),
        name=_name(step["urn"]),
        properties=tuple(_properties(step)) if changed else (),
    )


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _short_type(type_: str) -> str:
    """Write a type token as Pulumi shows it, `gcp:container:NodePool`; a dynamic one as its class names it."""
    if type_.startswith(_DYNAMIC):
        return type_.removeprefix(_DYNAMIC)
    package, _, rest = type_.partition(":")
    module, _, name = rest.rpartition(":")
    return ":".join(filter(None, (package, module.partition("/")[0], name)))


def _properties(step: Mapping[str, Any]) -> Iterable[PropertyChange]:
    old, new = (((step.get(side) or {}).get("inputs") or {}) for side in ("old", "new"))
    keys = set(step.get("keys") or ())
    detailed: Mapping[str, Any] = step.get("detailed_diff") or {}
    # A dynamic provider names at most the keys that replace; which others changed shows in the inputs.
    paths = detailed or sorted(key for key in old.keys() | new.keys() if key in keys or old.get(key) != new.get(key))
    for path in paths:
        before, after = _at(old, path), _at(new, path)
        texts = _told_words(before, after) or (_told_value(before), _told_value(after))
        kind = str((detailed.get(path) or {}).get("diff_kind", ""))
        replaces = kind.endswith("-replace") or path in keys
        yield PropertyChange(path=path, old=texts[0], new=texts[1], replaces=replaces)


def _at(value: Any, path: str) -> Any:
    """Follow a property path; None where it leads nowhere."""
    for quoted, index, plain in _PATH_PART.findall(path):
        key: Any = int(index) if index else quoted or plain
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _told_value(value: Any) -> str:
    if value == UNKNOWN:
        return "known after up"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value) if isinstance(value, str | int | float) else ""
    return text if len(text) <= LONGEST_VALUE and "\n" not in text else ""


def _told_words(before: Any, after: Any) -> tuple[str, str] | None:
    """Tell two long texts apart by the words that only one of them has; None where that is no short answer."""
    if not isinstance(before, str) or not isinstance(after, str) or max(len(before), len(after)) <= LONGEST_VALUE:
        return None
    old, new = before.split(), after.split()
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [(old[a:b], new[c:d]) for tag, a, b, c, d in steps if tag != "equal"]
    gone, come = ([word for pair in changed for word in pair[side]] for side in (0, 1))
    if max(len(gone), len(come)) > MOST_WORDS or any(len(word) > LONGEST_VALUE for word in (*gone, *come)):
        return None
    return " ".join(gone), " ".join(come)


def markdown(plan: Plan, *, heading: str, notes: Sequence[str] = ()) -> str:
    """Tell a plan to a reviewer.

    Args:
        plan: what would be done.
        heading: what was compared with what; one line.
        notes: further paragraphs, before the warnings.
    """
    if plan.errors:
        return _paragraphs(f"### {heading}", "The engine refused it:", _fenced(plan.errors))
    counts = [
        f"{count} {told}"
        for operation, told in _TOLD.items()
        if (count := sum(change.operation is operation for change in plan.changes))
    ]
    summary = f"**{', '.join([*counts, f'{plan.unchanged} unchanged'])}**"
    warnings = [f"- {warning}" for warning in plan.warnings]
    return _paragraphs(
        f"### {heading}",
        summary,
        _table(plan.changes),
        *notes,
        *(["Warnings:", "\n".join(warnings)] if warnings else []),
    )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text) + "\n"


def _fenced(texts: Sequence[str]) -> str:
    body = "\n\n".join(texts).replace("```", "'''")
    return f"```text\n{body}\n```"


def _table(changes: Sequence[Change]) -> str:
    rows = [
        f"| {told} | `{change.type}` {change.name} | {'<br>'.join(map(_told_property, change.properties))} |"
        for operation, told in _TOLD.items()
        for change in changes
        if change.operation is operation
    ]
    return "\n".join(["| | resource | properties |", "|---|---|---|", *rows]) if rows else ""


def _told_property(change: PropertyChange) -> str:
    values = f": {_code(change.old)} → {_code(change.new)}" if change.old or change.new else ""
    return f"{_code(change.path)}{values}{' (replaces)' if change.replaces else ''}"


def _code(text: str) -> str:
    escaped = text.replace("`", "'").replace("|", "\\|")
    return f"`{escaped}`" if text else "(none)"
