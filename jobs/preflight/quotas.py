"""Whether the project's quota lets the GPUs and Lustre be made, as Cloud Quotas tells.

Compute Engine's list of regions leaves newer GPUs out, so it is not asked. Quotas are limits: what else in the project
uses of them is not seen. A quota that is not listed, or not for this place, is a warning and never an ok.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from google.cloud.cloudquotas_v1 import QuotaInfo

from components.sections import CreateLustre, ReservationCapacity
from jobs.errors import GoogleApiOff, GoogleNotFound
from jobs.preflight.findings import Finding, Subject, fail, ok, warn

_UNLIMITED = -1


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one quota has to allow.

    Attributes:
        quota_id: Google's id.
        place: its dimensions, as the stack needs them.
        amount: how much.
        unit: of what.
    """

    quota_id: str
    place: Mapping[str, str]
    amount: int
    unit: str


def check_gpu_quota(subject: Subject) -> Iterator[Finding]:
    """Compare the GPU quotas with the nodes of a run.

    Spot and flex-start nodes count as preemptible. A reservation's nodes were counted when it was made, so a smaller
    quota is a warning for them.
    """
    config = subject.config
    try:
        for need in gpu_needs(subject):
            name = f"{_parent(subject, 'compute')}/quotaInfos/{need.quota_id}"
            try:
                found = compare(need, subject.google.quota(name))
            except GoogleNotFound:
                found = _unknown(need, "Cloud Quotas does not list it")
            if found.remedy and isinstance(config.gpu_pool.capacity, ReservationCapacity):
                found = warn(found.detail, f"{found.remedy}. A reservation that is yours already may not need it")
            yield _with_page(found, config.project.project_id)
    except GoogleApiOff as error:
        yield _quotas_are_off(error, config.project.project_id)


def check_lustre_quota(subject: Subject) -> Iterator[Finding]:
    """Compare the quota of the tier's storage with the instance.

    Google's page on quotas names them by the tier; the ids are not published, so the list is searched for the tier.
    """
    config = subject.config
    if not isinstance(config.lustre, CreateLustre):
        return
    tier = f"{config.lustre.throughput_mbps_per_tib}mbps"
    place = {"zone": config.project.zone, "location": config.project.zone, "region": config.project.region}
    try:
        quotas = subject.google.quotas(_parent(subject, "lustre"))
    except GoogleApiOff as error:
        yield _quotas_are_off(error, config.project.project_id)
        return
    matching = [quota for quota in quotas if is_of_tier(quota, tier)]
    for quota in matching:
        need = Need(quota_id=quota.quota_id, place=place, amount=config.lustre.capacity_gib, unit="GiB")
        yield _with_page(compare(need, quota), config.project.project_id)
    if not matching:
        need = Need(quota_id=f"storage of the {tier} tier", place=place, amount=config.lustre.capacity_gib, unit="GiB")
        yield _with_page(_unknown(need, "Cloud Quotas does not list it"), config.project.project_id)


def gpu_needs(subject: Subject) -> Iterator[Need]:
    """Name the GPU quotas that the pool counts against."""
    config = subject.config
    family = config.accelerators.quota_family
    gpus = config.gpu_pool.node_count * config.accelerators.count
    region = {"region": config.project.region}
    if isinstance(config.gpu_pool.capacity, ReservationCapacity):
        place = {**region, "gpu_family": family}
        yield Need(quota_id="GPUS-PER-GPU-FAMILY-per-project-region", place=place, amount=gpus, unit="GPUs")
    else:
        name = family.replace("_", "-")
        yield Need(quota_id=f"PREEMPTIBLE-{name}-GPUS-per-project-region", place=region, amount=gpus, unit="GPUs")
    yield Need(quota_id="GPUS-ALL-REGIONS-per-project", place={}, amount=gpus, unit="GPUs")


def is_of_tier(quota: QuotaInfo, tier: str) -> bool:
    """Whether a quota limits the storage of a tier, by its id or its metric; 500 is not 1500."""
    words = f"{quota.quota_id} {quota.metric}".lower().replace("-", "_").replace(".", "_").replace("/", "_")
    return f"_{tier}" in words.replace(" ", "_") or f"for{tier}" in words


def compare(need: Need, quota: QuotaInfo) -> Finding:
    """Hold a need against the quota's figure for its place.

    The figures come from specific to general. One that leaves out a dimension of the quota is a default: it is what
    Google shows where nothing was granted, so it can refuse and not assure.
    """
    for figure in quota.dimensions_infos:
        named = dict(figure.dimensions)
        if any(need.place.get(dimension) != value for dimension, value in named.items()):
            continue
        where = ", ".join(named[dimension] for dimension in sorted(named))
        limit = figure.details.value
        said = f"{need.quota_id} is {'unlimited' if limit == _UNLIMITED else limit}{f' for {where}' if where else ''}"
        if limit != _UNLIMITED and limit < need.amount:
            return fail(f"{said}; the stack needs {need.amount} {need.unit}", f"Ask for {need.amount}")
        left_out = [dimension for dimension in quota.dimensions if dimension not in named]
        if left_out:
            return warn(
                f"{said} by default, and nothing is said for this {' and '.join(left_out)}; "
                f"the stack needs {need.amount} {need.unit}",
                "See whether it was granted",
            )
        return ok(f"{said}; the stack needs {need.amount} {need.unit}")
    return _unknown(need, "no figure of it is for this place")


def _parent(subject: Subject, service: str) -> str:
    return f"projects/{subject.config.project.project_id}/locations/global/services/{service}.googleapis.com"


def _unknown(need: Need, why: str) -> Finding:
    return warn(
        f"{need.quota_id} is unknown: {why}; the stack needs {need.amount} {need.unit}", "See whether it was granted"
    )


def _with_page(found: Finding, project_id: str) -> Finding:
    """Add to a remedy where quotas are read and asked for."""
    if not found.remedy:
        return found
    page = f"https://console.cloud.google.com/iam-admin/quotas?project={project_id}"
    return Finding(status=found.status, detail=found.detail, remedy=f"{found.remedy}: {page}")


def _quotas_are_off(error: GoogleApiOff, project_id: str) -> Finding:
    """Say that the quota is unknown; the stack itself does without this API."""
    return warn(
        f"Quota is unknown: {error}",
        f"gcloud services enable {error.api}.googleapis.com --project {project_id}, or see "
        f"https://console.cloud.google.com/iam-admin/quotas?project={project_id}",
    )
