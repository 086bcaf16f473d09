"""What a check of the preflight finds: how it stands, what was seen, and what to type."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from components.config import StackConfig
from jobs.preflight.engine import Engine
from jobs.preflight.google_apis import GoogleApis


class Status(StrEnum):
    """A fail stops `up` or makes it useless; a warning may, or could not be looked into."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the report.

    Attributes:
        status: how it stands.
        detail: what was seen, with names and numbers.
        remedy: what to do or to type; empty only where nothing has to be done.
    """

    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the checks look at.

    Attributes:
        config: the stack's config, without errors.
        google: the project, as Google's APIs tell.
        engine: the stack, as the Pulumi engine tells.
    """

    config: StackConfig
    google: GoogleApis
    engine: Engine


Check = Callable[[Subject], Iterator[Finding]]


def ok(detail: str) -> Finding:
    """Say that all is well."""
    return Finding(status=Status.OK, detail=detail)


def warn(detail: str, remedy: str) -> Finding:
    """Say what may go wrong, or could not be looked into."""
    return Finding(status=Status.WARN, detail=detail, remedy=remedy)


def fail(detail: str, remedy: str) -> Finding:
    """Say what goes wrong."""
    return Finding(status=Status.FAIL, detail=detail, remedy=remedy)
