"""What the genuine provider accepts, and what an edit does: a typed reader of gcp_schema.json.

The file says for each property, by Pulumi's names, what the Terraform provider under pulumi-gcp says: its type, whether
it is required, computed, replacing, what it excludes. From that alone follow the checks of a preview, the values that
a resource has after a create or an update, and whether an edit replaces it. Values are plain (values.py).
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from twin.cloud.values import UNKNOWN

SCHEMA_FILE = Path(__file__).with_name("gcp_schema.json")


class Property(BaseModel):
    """One property: Pulumi's name is its key in the schema; see the genuine provider for what it means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["string", "boolean", "integer", "number", "list", "map", "object"]
    required: bool = False
    optional: bool = False
    computed: bool = False
    replaces: bool = False
    secret: bool = False
    flattened: bool = False
    deprecated: bool = False
    default: Any = None
    values: tuple[str, ...] = ()
    min_items: int = Field(default=0, alias="minItems")
    max_items: int | None = Field(default=None, alias="maxItems")
    conflicts_with: tuple[str, ...] = Field(default=(), alias="conflictsWith")
    exactly_one_of: tuple[str, ...] = Field(default=(), alias="exactlyOneOf")
    element: "Property | None" = None
    properties: "dict[str, Property]" = {}

    @property
    def settable(self) -> bool:
        """Whether a program may give it; the others are outputs only."""
        return self.required or self.optional


class ResourceSchema(BaseModel):
    """One resource type; `terraform` is the type's name below Pulumi."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    terraform: str
    properties: dict[str, Property]


class ChangeKind(StrEnum):
    """What happens to a property between two states."""

    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An input that the genuine provider refuses."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference between two states, and whether the resource must be made anew for it."""

    path: str
    kind: ChangeKind
    replaces: bool


@functools.cache
def load() -> Mapping[str, ResourceSchema]:
    """Read the schema of every resource type that the twin knows, by type token."""
    return {token: ResourceSchema.model_validate(raw) for token, raw in json.loads(SCHEMA_FILE.read_text()).items()}


def check(
    schema: ResourceSchema, inputs: Mapping[str, Any], *, supplied: frozenset[str] = frozenset()
) -> list[Failure]:
    """Name everything that the genuine provider refuses in `inputs`; `supplied` is filled in by the provider."""
    failures = list(_check_object(schema.properties, inputs, "", supplied=supplied))
    return failures + list(_check_exclusions(schema.properties, inputs))


def planned(properties: Mapping[str, Property], old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a resource holds when `new` inputs meet `old` values: what is computed stays, defaults fill gaps."""
    result: dict[str, Any] = {}
    for name, declared in properties.items():
        if name in new:
            result[name] = _planned_value(declared, old.get(name), new[name])
        elif declared.computed and name in old:
            result[name] = old[name]
        elif declared.default is not None:
            result[name] = declared.default
    return result


def differences(
    properties: Mapping[str, Property], old: Mapping[str, Any], new: Mapping[str, Any], at: str = ""
) -> Iterator[Change]:
    """List what differs between two states, innermost paths first seen, and what of it replaces the resource."""
    for name, declared in properties.items():
        yield from _value_differences(declared, old.get(name), new.get(name), f"{at}.{name}" if at else name)


def with_unknowns(properties: Mapping[str, Property], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with everything that only a create will tell as UNKNOWN, so that a preview says so."""
    result: dict[str, Any] = {name: UNKNOWN for name, declared in properties.items() if declared.computed}
    for name, value in values.items():
        nested = properties[name].properties
        result[name] = with_unknowns(nested, value) if nested and isinstance(value, Mapping) else value
    return result


def _planned_value(declared: Property, old: Any, new: Any) -> Any:
    if declared.properties and isinstance(new, Mapping):
        return planned(declared.properties, old if isinstance(old, Mapping) else {}, new)
    if declared.element is not None and isinstance(new, list):
        kept = old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)
        return [_planned_value(declared.element, before, after) for before, after in zip(kept, new, strict=True)]
    return new


def _value_differences(declared: Property, old: Any, new: Any, at: str) -> Iterator[Change]:
    if new is UNKNOWN and old is not None:
        yield Change(path=at, kind=ChangeKind.UPDATE, replaces=declared.replaces)
    elif old == new:
        return
    elif declared.properties and isinstance(old, Mapping) and isinstance(new, Mapping):
        # A block that replaces does so when it comes or goes; inside, each property speaks for itself, as in Terraform.
        yield from differences(declared.properties, old, new, at)
    elif declared.element and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            inherited = declared.replaces and not declared.element.properties
            for change in _value_differences(declared.element, before, after, f"{at}[{index}]"):
                yield Change(path=change.path, kind=change.kind, replaces=change.replaces or inherited)
    else:
        kind = ChangeKind.ADD if old is None else ChangeKind.DELETE if new is None else ChangeKind.UPDATE
        replaces = declared.replaces or _holds_replacing(declared, old) or _holds_replacing(declared, new)
        yield Change(path=at, kind=kind, replaces=replaces)


def _holds_replacing(declared: Property, value: Any) -> bool:
    """Whether a block that comes or goes as a whole holds a value whose change replaces the resource."""
    if isinstance(value, list):
        return declared.element is not None and any(_holds_replacing(declared.element, item) for item in value)
    if not isinstance(value, Mapping):
        return declared.replaces and value is not None
    return any(
        nested.replaces or _holds_replacing(nested, value[name])
        for name, nested in declared.properties.items()
        if name in value
    )


def _check_object(
    properties: Mapping[str, Property], inputs: Mapping[str, Any], at: str, *, supplied: frozenset[str] = frozenset()
) -> Iterator[Failure]:
    prefix = f"{at}." if at else ""
    for name, value in inputs.items():
        declared = properties.get(name)
        if declared is None:
            yield Failure(path=prefix + name, reason="no property of this name")
        elif not declared.settable:
            yield Failure(path=prefix + name, reason="is an output and cannot be set")
        else:
            yield from _check_value(declared, value, prefix + name)
    for name, declared in properties.items():
        if declared.required and name not in inputs and name not in supplied:
            yield Failure(path=prefix + name, reason="is required and missing")


_SCALARS: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "list": list,
    "map": Mapping,
    "object": Mapping,
}


def _check_value(declared: Property, value: Any, at: str) -> Iterator[Failure]:
    if value is UNKNOWN:
        return
    # A Python bool is an int too.
    fits = isinstance(value, _SCALARS[declared.type]) and (declared.type == "boolean" or not isinstance(value, bool))
    if not fits:
        yield Failure(path=at, reason=f"expected {declared.type}, got {_kind(value)}")
    elif declared.values and value not in declared.values:
        yield Failure(path=at, reason=f"expected one of {', '.join(declared.values)}, got {value!r}")
    elif isinstance(value, Mapping):
        yield from _check_mapping(declared, value, at)
    elif isinstance(value, list):
        if declared.max_items is not None and len(value) > declared.max_items:
            yield Failure(path=at, reason=f"takes at most {declared.max_items} items, got {len(value)}")
        if len(value) < declared.min_items:
            yield Failure(path=at, reason=f"takes at least {declared.min_items} items, got {len(value)}")
        for index, item in enumerate(value):
            if declared.element is not None:
                yield from _check_value(declared.element, item, f"{at}[{index}]")


def _check_mapping(declared: Property, value: Mapping[str, Any], at: str) -> Iterator[Failure]:
    if declared.type == "object":
        yield from _check_object(declared.properties, value, at)
    elif declared.element is not None:
        for key, item in value.items():
            yield from _check_value(declared.element, item, f'{at}["{key}"]')


def _kind(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
    return names.get(type(value), "another kind of value")


def _check_exclusions(root: Mapping[str, Property], inputs: Mapping[str, Any]) -> Iterator[Failure]:
    told: set[tuple[str, ...]] = set()
    for path, declared, siblings in _walk(root, inputs, ""):
        group = declared.exactly_one_of
        if group and group not in told:
            told.add(group)
            names = [_pulumi_path(root, each) for each in group]
            given = [name for name in names if name.rpartition(".")[2] in siblings]
            if len(given) != 1:
                reason = f"exactly one of {', '.join(names)} must be given, got {', '.join(given) or 'none'}"
                yield Failure(path=path, reason=reason)
        if path.rpartition(".")[2] not in siblings:
            continue
        for other in declared.conflicts_with:
            name = _pulumi_path(root, other)
            if _present(inputs, name):
                yield Failure(path=path, reason=f"conflicts with {name}; give one of the two")


def _walk(
    properties: Mapping[str, Property], values: Mapping[str, Any], at: str
) -> Iterator[tuple[str, Property, Mapping[str, Any]]]:
    """Yield every declared property of the objects that are given, with the object that it stands in."""
    for name, declared in properties.items():
        path = f"{at}.{name}" if at else name
        yield path, declared, values
        value = values.get(name)
        if declared.properties and isinstance(value, Mapping):
            yield from _walk(declared.properties, value, path)


def _present(inputs: Mapping[str, Any], path: str) -> bool:
    value: Any = inputs
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _pulumi_path(properties: Mapping[str, Property], terraform: str) -> str:
    """Translate a Terraform path: camel case, plural for lists, no index for the lists that Pulumi flattens."""
    names = []
    for segment in terraform.split("."):
        if segment.isdigit():
            continue
        camel = _camel(segment)
        plurals = (camel, f"{camel}s", f"{camel.removesuffix('y')}ies")
        name = next((each for each in plurals if each in properties), camel)
        names.append(name)
        properties = properties[name].properties if name in properties else {}
    return ".".join(names)
