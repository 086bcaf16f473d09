"""The stack's config: read once, checked as a whole, frozen.

`load_config` is the only reader of `pulumi.Config`; `parse_config` does the same from plain values, without an engine.
Either gives a config that can work or says everything that is wrong with it at once.
"""

import difflib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from components.cluster_features import ClusterFeatures
from components.job_section import JobSection
from components.machines import GPU_MACHINES, Accelerators, Machine
from components.placement import Placement
from components.rules import RULES
from components.sections import (
    ClusterSection,
    CreateCluster,
    GpuPoolSection,
    LustreSection,
    MonitoringSection,
    NetworkSection,
    PodResources,
    PrivateServiceAccessSection,
    ProjectSection,
    RaySection,
)
from jobs.errors import ConfigError
from jobs.problems import Problem, Severity, errors
from jobs.releases import Release, release_for_image

SECTIONS: Mapping[str, Any] = {
    "project": ProjectSection,
    "network": NetworkSection,
    "private_service_access": PrivateServiceAccessSection,
    "lustre": LustreSection,
    "cluster": ClusterSection,
    "gpu_pool": GpuPoolSection,
    "ray": RaySection,
    "job": JobSection,
    "monitoring": MonitoringSection,
}
OPTIONAL_SECTIONS = ("monitoring",)
SECRETS = ("hf_token", "wandb_api_key")

_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {name: TypeAdapter(model) for name, model in SECTIONS.items()}
_LOOKS_SECRET = re.compile(r"token|key|secret|password", re.IGNORECASE)
_LONGEST_VALUE = 80
_TAGS = {"create", "existing", "spot", "reservation", "flex_start"}
_SCALARS = {"bool", "int", "float", "str"}
# Keys of one kind of capacity, written beside another.
_CAPACITY_KINDS = {"reservation": "reservation", "max_run_duration_s": "flex_start"}


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """A config without errors; see `components.sections` for what each section holds.

    Attributes:
        stack: the stack's name.
        release: what the image holds.
    """

    stack: str
    project: ProjectSection
    network: NetworkSection
    private_service_access: PrivateServiceAccessSection
    lustre: LustreSection
    cluster: ClusterSection
    gpu_pool: GpuPoolSection
    ray: RaySection
    job: JobSection
    monitoring: MonitoringSection
    release: Release

    @property
    def placement(self) -> Placement:
        """Where the stack lies and what its cloud names start with."""
        return Placement(stack_name=f"rlstack-{self.stack}", **self.project.model_dump())

    @property
    def machine(self) -> Machine:
        """The row of the GPU nodes' machine type."""
        return GPU_MACHINES[self.gpu_pool.machine_type]

    @property
    def accelerators(self) -> Accelerators:
        """The GPUs of one node."""
        accelerators = self.machine.accelerators
        assert accelerators is not None  # noqa: S101 - GPU_MACHINES holds rows with GPUs only
        return accelerators

    @property
    def has_fast_network(self) -> bool:
        """Whether nodes and pods get their RDMA NICs: as the config says, else where the machine type has some."""
        return self.accelerators.uses_rdma(wanted=self.gpu_pool.fast_network)

    @property
    def features(self) -> ClusterFeatures:
        """What the GKE cluster has to offer to the rest of the stack."""
        return ClusterFeatures(
            legacy_lustre_port=self.lustre.legacy_port,
            multi_networking=self.has_fast_network,
            image_streaming=self.ray.image_streaming,
        )

    @property
    def worker(self) -> PodResources:
        """What a worker pod asks for: the config's own words, else what the machine leaves to a pod."""
        return self.ray.worker or PodResources(cpu=self.machine.pod_cpu, memory_gib=self.machine.pod_memory_gib)

    @property
    def ray_operator_is_on(self) -> bool:
        """Whether the RayOperator add-on should be there; on an existing cluster it has to be."""
        return not isinstance(self.cluster, CreateCluster) or self.cluster.ray_operator

    @property
    def run_dir(self) -> str:
        """The run's directory on Lustre."""
        return f"/lustre/{self.stack}/{self.job.name}"

    @property
    def checkpoint_dir(self) -> str:
        """Where the run's checkpoints go, on Lustre."""
        return f"{self.run_dir}/checkpoints"

    @property
    def log_dir(self) -> str:
        """Where the trainer's own logs go, on Lustre."""
        return f"{self.run_dir}/logs"

    def warnings(self) -> list[Problem]:
        """What may go wrong, though nothing must."""
        sections = {name: getattr(self, name) for name in SECTIONS}
        return [finding for finding in _findings(self.stack, sections) if finding.severity is Severity.WARNING]


def parse_config(stack: str, sections: Mapping[str, Any]) -> StackConfig:
    """Build a stack's config from plain values.

    Args:
        stack: the stack's name.
        sections: section name to its mapping, as in the stack's file without the `rlstack:` prefix. Secrets among them
            are passed over.

    Raises:
        ConfigError: with every problem there is.
    """
    parsed: dict[str, Any] = {}
    problems = [_unknown_section(name) for name in sections if name not in SECTIONS and name not in SECRETS]
    sections = {**{name: {} for name in OPTIONAL_SECTIONS}, **sections}
    for name, adapter in _ADAPTERS.items():
        if name not in sections:
            problems.append(_missing_section(name))
            continue
        try:
            parsed[name] = adapter.validate_python(sections[name])
        except ValidationError as error:
            problems += _section_problems(name, error)
    problems += errors(_findings(stack, parsed))
    if problems:
        raise ConfigError(f"The config of stack {stack}", problems)
    return StackConfig(stack=stack, release=release_for_image(parsed["ray"].image, parsed["ray"].release), **parsed)


def load_config() -> StackConfig:
    """Read the stack's config from the engine and show its warnings there.

    Raises:
        pulumi.RunError: with every problem there is; the engine prints it without a traceback.
    """
    config = pulumi.Config()
    # `get_object` decrypts, so no section may hold a secret; these travel as outputs (`secret`).
    sections = {name: config.get_object(name) for name in SECTIONS}
    try:
        parsed = parse_config(
            pulumi.get_stack(), {name: value for name, value in sections.items() if value is not None}
        )
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from error
    for warning in parsed.warnings():
        pulumi.log.warn(str(warning))
    return parsed


def secret(name: str) -> pulumi.Output[str] | None:
    """Read one of `SECRETS` as a secret output; none where it was never set."""
    return pulumi.Config().get_secret(name)


def _findings(stack: str, sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Run every rule whose sections are there."""
    values = {"stack": stack, **sections}
    for rule in RULES:
        names = inspect.signature(rule).parameters
        if all(name in values for name in names):
            yield from rule(**{name: values[name] for name in names})


def _suggestion(word: str, known: list[str], what: str) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]}? {what}: {', '.join(known)}" if close else f"{what}: {', '.join(known)}"


def _unknown_section(name: str) -> Problem:
    return Problem(
        key=name,
        value="(not shown)",
        reason="there is no such section",
        remedy=_suggestion(name, [*SECTIONS, *SECRETS], "Sections and secrets"),
    )


def _missing_section(name: str) -> Problem:
    return Problem(
        key=name,
        value="(missing)",
        reason="this section is missing or misspelt",
        remedy=f"Add rlstack:{name} to the stack's file, or copy it from Pulumi.local.yaml",
    )


def _section_problems(section: str, error: ValidationError) -> Iterator[Problem]:
    """Turn pydantic's errors into problems: same key as written, value where it may be shown, one for each key."""
    seen: set[str] = set()
    for detail in error.errors(include_url=False):
        key = ".".join([section, *_as_written(detail["loc"])])
        if key not in seen:
            seen.add(key)
            yield Problem(key=key, value=_shown(key, detail), reason=_reason(detail), remedy=_remedy(section, detail))


def _as_written(location: tuple[int | str, ...]) -> list[str]:
    """Drop from a location what pydantic adds for the variants of a union: tags on the way, types at its end."""
    parts = list(location[:-1] if location and location[-1] in _SCALARS else location)
    return [str(part) for part in parts if part not in _TAGS or part is parts[-1]]


def _shown(key: str, detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return "(missing)"
    # An unknown key may be a misplaced secret.
    if detail["type"] == "extra_forbidden" or _LOOKS_SECRET.search(key):
        return "(not shown)"
    text = str(detail["input"])
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _reason(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "extra_forbidden":
            return "there is no such key"
        case "missing":
            return "this key is required"
        case _:
            return detail["msg"][0].lower() + detail["msg"][1:].rstrip(".")


def _remedy(section: str, detail: ErrorDetails) -> str:
    match detail["type"]:
        case "extra_forbidden" if section == "gpu_pool" and detail["loc"][-1] in _CAPACITY_KINDS:
            kind = _CAPACITY_KINDS[str(detail["loc"][-1])]
            return f"GKE takes it for one kind only: set gpu_pool.capacity.kind to {kind}, or remove the key"
        case "extra_forbidden":
            known = _known_keys(section, detail["loc"])
            return _suggestion(str(detail["loc"][-1]), known, "Keys here")
        case "missing":
            return "Add it"
        case "int_parsing" | "int_type":
            return "Write a plain number, in the unit that the key's name ends with"
        case "union_tag_not_found" | "union_tag_invalid":
            return f"Set {detail['ctx']['discriminator']} to one that is known" if "ctx" in detail else "Correct it"
        case _:
            return "Correct the value; components/sections.py (job: job_section.py) says what the key means"


def _known_keys(section: str, location: tuple[int | str, ...]) -> list[str]:
    """Find the keys that would have been right at a location, in the section's JSON schema."""
    schema = _ADAPTERS[section].json_schema()

    def resolve(node: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        return node

    node = resolve(schema)
    for part in location[:-1]:
        variants = [resolve(item) for item in [node, *node.get("anyOf", [])]]
        mapping = node.get("discriminator", {}).get("mapping", {})
        if part in mapping:
            node = resolve({"$ref": mapping[part]})
        elif isinstance(part, int):
            node = resolve(next((item["items"] for item in variants if "items" in item), {}))
        else:
            node = resolve(
                next((item["properties"][part] for item in variants if part in item.get("properties", {})), {})
            )
    variants = [resolve(item) for item in [node, *node.get("anyOf", [])]]
    return next((list(item["properties"]) for item in variants if "properties" in item), [])
