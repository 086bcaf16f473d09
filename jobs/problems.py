"""What is wrong with an input: key, value, reason, remedy. Rules return these; callers collect all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error refuses the input; a warning is shown and lets it pass."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One finding about one key.

    Attributes:
        key: dotted path as the user wrote it, for example `lustre.capacity_gib`.
        value: the offending value as text, never a secret.
        reason: why it cannot work and what would follow.
        remedy: what to write instead.
    """

    key: str
    value: str
    reason: str
    remedy: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.severity}: {self.key}={self.value}: {self.reason}. {self.remedy}."


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Keep what refuses the input."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]
