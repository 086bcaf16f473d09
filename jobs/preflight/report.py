"""Runs the checks side by side and shows what they found: as lines for a person, as JSON for a program."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

from jobs.errors import GoogleApiError, GoogleApiOff, GoogleRefused
from jobs.preflight.findings import Finding, Status, warn

_AT_ONCE = 8

Run = Callable[[], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found of one stack.

    Attributes:
        stack: its name.
        findings: the check's name and its finding, in the order of the checks.
    """

    stack: str
    findings: tuple[tuple[str, Finding], ...]

    @property
    def result(self) -> Status:
        """The worst of all."""
        statuses = {finding.status for _, finding in self.findings}
        return next((status for status in (Status.FAIL, Status.WARN) if status in statuses), Status.OK)

    def to_json(self) -> str:
        """Render it as JSON."""
        lines = [{"check": name, **asdict(finding)} for name, finding in self.findings]
        return json.dumps({"stack": self.stack, "result": self.result, "findings": lines}, indent=2)

    def to_text(self) -> str:
        """Render it as a table, each remedy on a line of its own, whole, so that it can be pasted."""
        width = max(len(name) for name, _ in self.findings)
        lines = []
        for name, finding in self.findings:
            lines.append(f"{finding.status:<4}  {name:<{width}}  {finding.detail}")
            if finding.remedy:
                lines.append(f"      {'':<{width}}  > {finding.remedy}")
        counts = {status: sum(finding.status is status for _, finding in self.findings) for status in Status}
        lines.append(", ".join(f"{count} {status}" for status, count in counts.items()))
        return "\n".join(lines)


def collect(stack: str, checks: Mapping[str, Run], *, project_id: str) -> Report:
    """Run all checks; whatever one of them meets, the others go on."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        results = pool.map(partial(_run, project_id=project_id), checks.values())
        findings = tuple((name, finding) for name, found in zip(checks, results, strict=True) for finding in found)
    return Report(stack=stack, findings=findings)


def _run(run: Run, *, project_id: str) -> Iterable[Finding]:
    """Run one check; what Google does not tell is a line like any other."""
    found: list[Finding] = []
    try:
        found.extend(run())
    except GoogleApiOff as error:
        found.append(
            warn(
                f"unknown: {error}",
                f"`up` enables it; to look before: gcloud services enable {error.api}.googleapis.com --project "
                f"{project_id}",
            )
        )
    except GoogleRefused as error:
        found.append(warn(f"unknown, you may not look: {error}", "Ask for the permission, or let its owner run this"))
    except GoogleApiError as error:
        found.append(warn(f"unknown: {error}", "What is not seen here, `up` meets"))
    return found
