"""The Lustre instance: sizes that Google makes, names that Lustre takes."""

import re

from components.lustre_tiers import LUSTRE_TIERS, LUSTRE_ZONES, LUSTRE_ZONES_READ_ON
from components.sections import CreateLustre, LustreSection, ProjectSection
from jobs.problems import Problem, Severity


def capacity_on_tier(lustre: LustreSection) -> list[Problem]:
    """An instance's size lies on its tier's step; Google refuses any other after minutes."""
    if not isinstance(lustre, CreateLustre):
        return []
    tier, capacity = LUSTRE_TIERS[lustre.throughput_mbps_per_tib], lustre.capacity_gib
    if not tier.allows(capacity):
        below, above = tier.nearest(capacity)
        sizes = str(below) if below == above else f"{below} or {above}"
        return [
            Problem(
                key="lustre.capacity_gib",
                value=str(capacity),
                reason=f"the {lustre.throughput_mbps_per_tib} MB/s per TiB tier goes from {tier.minimum} to "
                f"{tier.maximum} GiB in multiples of {tier.minimum}, above {tier.threshold} of {tier.large_step}",
                remedy=f"Write {sizes}",
            )
        ]
    if capacity > tier.older_maximum:
        return [
            Problem(
                key="lustre.capacity_gib",
                value=str(capacity),
                reason=f"some of Google's pages still give {tier.older_maximum} GiB as this tier's maximum",
                remedy="Ask for the quota before you rely on it",
                severity=Severity.WARNING,
            )
        ]
    return []


def zone_offers_lustre(project: ProjectSection, lustre: LustreSection) -> list[Problem]:
    """The list of zones is partial and ages, so this warns; the cloud has the last word (Managed Lustre: locations)."""
    if not isinstance(lustre, CreateLustre) or project.zone in LUSTRE_ZONES:
        return []
    return [
        Problem(
            key="project.zone",
            value=project.zone,
            reason=f"it was not among the zones of Managed Lustre that could be read on {LUSTRE_ZONES_READ_ON}",
            remedy="Check: python -m jobs preflight, or Managed Lustre's page on locations",
            severity=Severity.WARNING,
        )
    ]


def filesystem_name(lustre: LustreSection) -> list[Problem]:
    """Lustre's own limit: eight letters or digits (pulumi-gcp: lustre.Instance.filesystem)."""
    if not isinstance(lustre, CreateLustre) or re.fullmatch(r"[a-z0-9]{1,8}", lustre.filesystem):
        return []
    return [
        Problem(
            key="lustre.filesystem",
            value=lustre.filesystem,
            reason="a Lustre file system's name is one to eight lower-case letters or digits",
            remedy="Write a shorter name, for example lustrefs",
        )
    ]
