"""Plain values in place of the engine's property values.

The SDK's own reading of the protocol leaves three things to its user: an unknown arrives as one of the protocol's
marker strings and its `Computed` cannot be sent back; every number is a float; secrets are wrappers round a value.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from pulumi.provider.experimental.property_value import PropertyValue


class Unknown:
    """A value that a later operation will tell; there is one, UNKNOWN."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()

_MARKER: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
# sdk/go/common/resource/plugin/rpc.go: the unknowns of string, bool, number, array, asset, archive and object.
_MARKERS: Final = frozenset(
    {
        _MARKER,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)


def plain(value: PropertyValue) -> Any:
    """Take the wrappers off; whole numbers become int, unknowns UNKNOWN, and keys that hold null are left out."""
    inner = value.value
    if isinstance(inner, str):
        return UNKNOWN if inner in _MARKERS else inner
    if isinstance(inner, float):
        return int(inner) if inner.is_integer() else inner
    if isinstance(inner, Mapping):
        return plain_map(inner)
    if isinstance(inner, tuple):
        return [plain(item) for item in cast(tuple[PropertyValue, ...], inner)]
    return inner


def plain_map(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """Take the wrappers off all properties; those that are null are left out."""
    return {key: plain(value) for key, value in values.items() if value.value is not None}


def wrap(value: Any) -> PropertyValue:
    """Put a plain value into the protocol's form."""
    if value is UNKNOWN:
        return PropertyValue(_MARKER)
    if isinstance(value, Mapping):
        return PropertyValue({key: wrap(item) for key, item in value.items()})
    if isinstance(value, list):
        return PropertyValue([wrap(item) for item in value])
    return PropertyValue(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def wrap_map(values: Mapping[str, Any], secret: Collection[str] = ()) -> dict[str, PropertyValue]:
    """Put properties into the protocol's form, those named in `secret` as secrets."""
    return {key: wrap(value).with_secret(key in secret) for key, value in values.items()}


def secret_keys(*values: Mapping[str, PropertyValue]) -> frozenset[str]:
    """Name the properties that are or hold secrets in any of these."""
    return frozenset(key for each in values for key, value in each.items() if value.contains_secret())


def is_known(value: Any) -> bool:
    """Whether no part of a plain value is unknown."""
    if isinstance(value, Mapping):
        return all(is_known(item) for item in value.values())
    if isinstance(value, list):
        return all(is_known(item) for item in value)
    return value is not UNKNOWN
