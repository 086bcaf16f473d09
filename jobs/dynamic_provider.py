"""What the stack's dynamic providers have in common."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from pulumi.dynamic import ResourceProvider

from jobs.errors import RlstackError

_METHODS = ("check", "create", "read", "diff", "update", "delete")
_WHOLE = 1000  # Python's own limit of a traceback where none is set


class DynamicProvider(ResourceProvider):
    """A provider whose own errors reach the user as their text; a fault of this program keeps its traceback."""

    # Nothing is captured in the pickle, so there is nothing to hide; `[secret]` in every diff helps nobody.
    serialize_as_secret_always = False

    def __init_subclass__(cls) -> None:
        """Wrap each method that the subclass has."""
        super().__init_subclass__()
        for name in _METHODS:
            if method := vars(cls).get(name):
                setattr(cls, name, _telling(method))


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    """Have an error raised on purpose shown without where in the code it was raised, and after what.

    The SDK hands the engine `traceback.format_exc()` (pulumi/dynamic/__main__.py), which heeds Python's limit.
    """

    @functools.wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        sys.tracebacklimit = _WHOLE
        try:
            return method(*args, **kwargs)
        except RlstackError as error:
            sys.tracebacklimit = 0
            raise error from None

    return told
