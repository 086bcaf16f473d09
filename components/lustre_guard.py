"""Refuses, at preview, a change of config that would replace, shrink or give up the stack's Lustre instance.

All three are loss of data.

`protect` would refuse too, but it refuses `pulumi destroy` as well, and a stack must go down with one command. This
resource is only a record of what the instance was made with; its provider compares in `check`, whose failures the
engine prints as plain errors, in previews too. Growth past the tier's threshold is refused as well: Google makes larger
instances, but grows none into that size. The module's path is a persisted name: stacks keep it in their state.
"""

from collections.abc import Mapping
from typing import Any

from pulumi import ResourceOptions
from pulumi.dynamic import CheckFailure, CheckResult, CreateResult, DiffResult, Resource, UpdateResult

from components.lustre_tiers import LUSTRE_TIERS
from jobs.dynamic_provider import DynamicProvider

PLACE = ("project", "location", "instance_id")
# Lustre cannot change these; the provider would delete the instance and make an empty one.
FIXED = (*PLACE, "network", "filesystem", "throughput_mbps_per_tib", "legacy_port")
REMEDY = (
    "Put the old value back. To move for good, export the checkpoints you need, run `pulumi destroy` and bring the "
    "stack up anew"
)


def refusals(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Say, by key, why a change of an instance cannot be let through; empty where it can.

    Args:
        old: what the instance was made with; empty before there is one.
        new: what it should become.
    """
    # A record without the key is of a version that kept records of the stack's own instances only.
    was_ours, is_ours = bool(old) and old.get("is_ours", True), new.get("is_ours", True)
    if not was_ours:
        return {}
    if not is_ours:
        # With the very same instance the stack lets go of it and goes on to read it.
        if all(old[key] == new[key] for key in PLACE):
            return {}
        return {
            "instance_id": f"lustre: the stack's own instance {old['instance_id']} would give way to "
            f"{new['instance_id']}, which exists; {old['instance_id']} would be deleted with all that lies on it. "
            f"{REMEDY}"
        }
    reasons = {
        key: f"lustre: {key} would change from {_shown(old[key])} to {_shown(new.get(key))}. That replaces the "
        f"instance, and all that lies on Lustre is lost. {REMEDY}"
        for key in FIXED
        if key in old and old[key] != new.get(key)
    }
    old_gib, new_gib = int(old["capacity_gib"]), int(new["capacity_gib"])
    tier = LUSTRE_TIERS[int(old["throughput_mbps_per_tib"])]
    if old_gib <= tier.threshold < new_gib:
        reasons["capacity_gib"] = (
            f"lustre: capacity_gib would go from {old_gib} to {new_gib} GiB. An instance made with at most "
            f"{tier.threshold} GiB cannot grow past that, and Google would refuse. Write {tier.threshold} or less. To "
            "go further, export the checkpoints you need, run `pulumi destroy` and bring the stack up anew"
        )
    if new_gib < old_gib:
        reasons["capacity_gib"] = (
            f"lustre: capacity_gib would go from {old_gib} to {new_gib} GiB. Lustre "
            f"can grow and never shrink, and a smaller instance is a new, empty one. {REMEDY}"
        )
    return reasons


def _shown(value: Any) -> str:
    """Write whole numbers as such: the engine hands all numbers over as floats."""
    return f"{value:g}" if isinstance(value, float) else str(value)


class LustreGuardProvider(DynamicProvider):
    """Keeps the record; touches nothing in the cloud."""

    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        """Refuse what would lose data."""
        failures = [CheckFailure(key, reason) for key, reason in refusals(_olds, news).items()]
        return CheckResult(news, failures)

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Never replace: what `check` lets through is a change of the record."""
        return DiffResult(changes=any(_olds.get(key) != value for key, value in _news.items() if key != "__provider"))

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Keep the record under the instance's id."""
        return CreateResult(str(props["instance_id"]), props)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Keep the new record."""
        return UpdateResult(_news)


class LustreGuard(Resource, module="lustre_guard", name="LustreGuard"):
    """A record of what the Lustre instance was made with, or of which one is adopted."""

    def __init__(self, name: str, record: Mapping[str, Any], opts: ResourceOptions | None = None) -> None:
        keys = (*FIXED, "capacity_gib", "is_ours")
        super().__init__(LustreGuardProvider(), name, {key: record[key] for key in keys if key in record}, opts)
