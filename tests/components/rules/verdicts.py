"""What the rules say of a changed `Pulumi.dev.yaml`: refused or warned about, and for which keys."""

import inspect
from typing import Any

from pydantic import TypeAdapter

from components.config import SECTIONS, parse_config
from components.rules import Rule
from jobs.errors import ConfigError
from jobs.problems import Problem, Severity
from tests.program import Inputs, changed, stack_settings

SETTINGS = stack_settings("dev")
EXISTING_NETWORK = {
    "source": "existing",
    "network_name": "shared",
    "subnet_name": "gpus",
    "pods_range_name": "pods",
    "services_range_name": "services",
}
EXISTING_ACCESS = {"source": "existing", "range_start": "10.64.0.0", "prefix_length": 22}
EXISTING_CLUSTER = {
    "source": "existing",
    "cluster_name": "shared",
    "system_pool_name": "system",
    "node_service_account": "nodes@my-project-id.iam.gserviceaccount.com",
}


def problem_keys(stack: str, settings: Inputs) -> set[str]:
    """Return the keys that a config is refused for."""
    try:
        parse_config(stack, settings)
    except ConfigError as error:
        return {problem.key for problem in error.problems}
    return set()


def refused(**changes: Any) -> set[str]:
    """Return the keys that a changed config is refused for."""
    return problem_keys("dev", changed(SETTINGS, **changes))


def warned(**changes: Any) -> set[str]:
    """Return the keys that a changed config is warned about."""
    findings = parse_config("dev", changed(SETTINGS, **changes)).warnings()
    assert all(finding.severity is Severity.WARNING for finding in findings)
    return {finding.key for finding in findings}


def found_by(rule: Rule, *, stack: str = "dev", **changes: Any) -> list[Problem]:
    """Return what one rule alone finds in a changed config."""
    settings = changed(SETTINGS, **changes)
    values: dict[str, Any] = {"stack": stack}
    for name in set(inspect.signature(rule).parameters) & set(settings):
        values[name] = TypeAdapter[Any](SECTIONS[name]).validate_python(settings[name])
    return rule(**{name: values[name] for name in inspect.signature(rule).parameters})
