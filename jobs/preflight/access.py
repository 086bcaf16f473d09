"""Whether the project's APIs answer, and whether the caller has the rights that `up` and `destroy` need.

A role is judged by a few permissions that only it (or a larger one) gives, so custom roles count for what they hold.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from components.config import StackConfig
from components.project_services import services as services_of_stack
from components.sections import CreateCluster, CreateLustre, CreateNetwork, CreatePrivateServiceAccess
from jobs.errors import GoogleApiError, GoogleApiOff
from jobs.preflight.findings import Finding, Subject, fail, ok, warn

_ENABLED = "ENABLED"


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One role that the caller needs, and what shows that it is there.

    Attributes:
        role: the role that Google ships.
        permissions: what is asked for; all of them can be tested on a project.
        is_needed: whether this config needs it.
    """

    role: str
    permissions: tuple[str, ...]
    is_needed: Callable[[StackConfig], bool]


# From the resources of the program and Google's pages of roles and permissions; not tried with an account that has just
# these.
GRANTS = (
    Grant(
        role="roles/serviceusage.serviceUsageAdmin",
        permissions=("serviceusage.services.enable", "serviceusage.services.get"),
        is_needed=lambda _: True,
    ),
    Grant(
        role="roles/compute.networkAdmin",
        permissions=(
            "compute.networks.create",
            "compute.networks.delete",
            "compute.subnetworks.create",
            "compute.routers.create",
        ),
        is_needed=lambda config: isinstance(config.network, CreateNetwork) or config.has_fast_network,
    ),
    Grant(
        role="roles/compute.networkAdmin",
        permissions=(
            "compute.globalAddresses.createInternal",
            "compute.networks.removePeering",
            "servicenetworking.services.addPeering",
        ),
        is_needed=lambda config: isinstance(config.private_service_access, CreatePrivateServiceAccess),
    ),
    Grant(
        role="roles/compute.securityAdmin",
        permissions=("compute.firewalls.create", "compute.firewalls.delete"),
        is_needed=lambda config: (
            isinstance(config.network, CreateNetwork)
            or isinstance(config.lustre, CreateLustre)
            or config.has_fast_network
        ),
    ),
    Grant(
        role="roles/lustre.admin",
        permissions=("lustre.instances.create", "lustre.instances.delete"),
        is_needed=lambda config: isinstance(config.lustre, CreateLustre),
    ),
    Grant(
        role="roles/container.admin",
        permissions=("container.clusters.update", "container.secrets.create", "container.pods.portForward"),
        is_needed=lambda _: True,
    ),
    Grant(
        role="roles/container.admin",
        permissions=("container.clusters.create", "container.clusters.delete"),
        is_needed=lambda config: isinstance(config.cluster, CreateCluster),
    ),
    Grant(
        role="roles/iam.serviceAccountAdmin",
        permissions=("iam.serviceAccounts.create", "iam.serviceAccounts.delete"),
        is_needed=lambda config: isinstance(config.cluster, CreateCluster),
    ),
    Grant(
        role="roles/iam.serviceAccountUser",
        permissions=("iam.serviceAccounts.actAs",),
        is_needed=lambda _: True,
    ),
    Grant(
        role="roles/monitoring.editor",
        permissions=("monitoring.dashboards.create", "monitoring.alertPolicies.create"),
        is_needed=lambda config: config.monitoring.enabled,
    ),
    Grant(
        role="roles/resourcemanager.projectIamAdmin",
        permissions=("resourcemanager.projects.setIamPolicy",),
        is_needed=lambda config: isinstance(config.cluster, CreateCluster),
    ),
)


def check_apis(subject: Subject) -> Iterator[Finding]:
    """See which APIs are on. The stack enables the missing ones, through an API that has to be on already."""
    project_id = subject.config.project.project_id
    services = services_of_stack(image_streaming=subject.config.ray.image_streaming)
    names = [f"projects/{project_id}/services/{service}.googleapis.com" for service in services]
    try:
        answer = subject.google.get(
            "serviceusage", lambda api: api.services().batchGet(parent=f"projects/{project_id}", names=names)
        )
    except GoogleApiOff as error:
        yield fail(
            f"{error}: the stack enables all other APIs through it",
            f"gcloud services enable serviceusage.googleapis.com --project {project_id}",
        )
        return
    states = {entry["name"].rpartition("/")[2]: entry.get("state") for entry in answer.get("services", [])}
    off = [service for service in services if states.get(f"{service}.googleapis.com") != _ENABLED]
    if off:
        yield ok(f"not enabled yet, `up` enables them: {', '.join(off)}")
    else:
        yield ok(f"all {len(services)} are enabled")


def check_roles(subject: Subject) -> Iterator[Finding]:
    """Ask for each role by itself, so that one unknown permission hides no other."""
    config, project_id = subject.config, subject.config.project.project_id
    held = 0
    for grant in GRANTS:
        if not grant.is_needed(config):
            continue
        try:
            given = _held(subject, grant)
        except GoogleApiOff:
            raise
        except GoogleApiError as error:
            yield warn(
                f"{grant.role} could not be looked into: {error}",
                "See what you have: gcloud projects get-iam-policy "
                f"{project_id} --flatten=bindings --filter=bindings.members:{subject.google.member}",
            )
            continue
        missing = [permission for permission in grant.permissions if permission not in given]
        if missing:
            yield fail(
                f"{grant.role} is missing: you may not {', '.join(missing)}",
                f"gcloud projects add-iam-policy-binding {project_id} "
                f"--member={subject.google.member} --role={grant.role}",
            )
        else:
            held += len(given)
    if held:
        yield ok(f"{held} permissions tested and held")


def _held(subject: Subject, grant: Grant) -> list[str]:
    resource, body = f"projects/{subject.config.project.project_id}", {"permissions": list(grant.permissions)}
    answer = subject.google.get(
        "cloudresourcemanager", lambda api: api.projects().testIamPermissions(resource=resource, body=body)
    )
    held: list[str] = answer.get("permissions", [])
    return held
