"""What an earlier stack of the same name left behind: names that `up` collides with, rules that hold a network.

What the stack's own state lists is the stack's and no leftover. Where the state cannot be read, whose a thing is stays
open, and nothing is called a failure.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from components.config import StackConfig
from components.sections import (
    CreateCluster,
    CreateLustre,
    CreateNetwork,
    CreatePrivateServiceAccess,
    ExistingCluster,
    ExistingNetwork,
)
from jobs.errors import GoogleApiError, GoogleApiOff, GoogleNotFound
from jobs.preflight.existing import SERVICE_PEERING
from jobs.preflight.findings import Finding, Status, Subject, fail, ok, warn

# GKE's own firewall rules go with their cluster, or stay and hold the network.
_GKE_RULES = ("gke-", "k8s-", "k8s2-")
_CONNECTION = "servicenetworking.googleapis.com"


@dataclass(frozen=True, kw_only=True)
class Name:
    """A name that the stack gives to one resource.

    Attributes:
        what: what bears it.
        id: its id in the stack's state.
        read: asks whether it exists.
        remove: the command that removes it, or makes it the stack's.
    """

    what: str
    id: str
    read: Callable[[], object]
    remove: str


def check_leftovers(subject: Subject) -> Iterator[Finding]:
    """Look for everything that bears one of the stack's names, and for what holds its network."""
    owned = subject.engine.resource_ids()
    found = [
        *_collisions(names(subject), owned),
        *_connection(subject, owned),
        *_gke_rules(subject, owned),
        *_collisions(networks(subject), owned),
    ]
    if owned is None and any(finding.status is not Status.OK for finding in found):
        found.append(
            warn(
                "The state of the stack could not be read, so these may be the running stack's own",
                f"Look before you remove anything: pulumi stack --show-ids --stack {subject.engine.stack}",
            )
        )
    yield from found or [ok("nothing is left of an earlier stack of this name")]


def names(subject: Subject) -> Iterator[Name]:
    """List the names that the program gives outside networks, in the order in which leftovers have to go."""
    config, google, place = subject.config, subject.google, subject.config.placement
    project, name = place.project_id, place.stack_name

    if isinstance(config.cluster, CreateCluster):
        cluster = f"projects/{project}/locations/{place.region}/clusters/{name}"
        yield Name(
            what=f"GKE cluster {name}",
            id=cluster,
            read=lambda: google.get("container", lambda api: api.projects().locations().clusters().get(name=cluster)),
            remove=f"gcloud container clusters delete {name} --location {place.region} --project {project}",
        )
        account = f"projects/{project}/serviceAccounts/{name}-nodes@{project}.iam.gserviceaccount.com"
        yield Name(
            what=f"service account {name}-nodes",
            id=account,
            read=lambda: google.get("iam", lambda api: api.projects().serviceAccounts().get(name=account)),
            remove=f"gcloud iam service-accounts delete {account.rpartition('/')[2]} --project {project}",
        )
    if isinstance(config.lustre, CreateLustre):
        instance = f"projects/{project}/locations/{place.zone}/instances/{name}"
        yield Name(
            what=f"Lustre instance {name}, with all that lies on it,",
            id=instance,
            read=lambda: google.lustre_instance(instance),
            remove=(
                "Keep it by lustre.source existing, or lose its checkpoints: "
                f"gcloud lustre instances delete {name} --location {place.zone} --project {project}"
            ),
        )
    if isinstance(config.private_service_access, CreatePrivateServiceAccess):
        addresses = f"{name}-services"
        yield Name(
            what=f"peering range {addresses}",
            id=f"projects/{project}/global/addresses/{addresses}",
            read=lambda: google.get(
                "compute", lambda api: api.globalAddresses().get(project=project, address=addresses)
            ),
            remove=f"{_keep(config)}gcloud compute addresses delete {addresses} --global --project {project}",
        )
    # On a network of the stack's own the rule is the network's affair, and its own cluster's pools go with it.
    if isinstance(config.network, ExistingNetwork) and isinstance(config.lustre, CreateLustre):
        yield Name(
            what=f"firewall rule {name}-lustre",
            id=f"projects/{project}/global/firewalls/{name}-lustre",
            read=lambda: google.get(
                "compute", lambda api: api.firewalls().get(project=project, firewall=f"{name}-lustre")
            ),
            remove=f"gcloud compute firewall-rules delete {name}-lustre --project {project}",
        )
    if isinstance(config.cluster, ExistingCluster):
        pools = f"projects/{project}/locations/{place.region}/clusters/{config.cluster.cluster_name}/nodePools"
        yield Name(
            what=f"node pool {name}-gpu",
            id=f"{pools}/{name}-gpu",
            read=lambda: google.get(
                "container",
                lambda api: api.projects().locations().clusters().nodePools().get(name=f"{pools}/{name}-gpu"),
            ),
            remove=(
                f"gcloud container node-pools delete {name}-gpu --cluster {config.cluster.cluster_name} "
                f"--location {place.region} --project {project}"
            ),
        )


def networks(subject: Subject) -> Iterator[Name]:
    """List the stack's networks, each with the commands that empty and remove it: nothing goes with a network."""
    config, place = subject.config, subject.config.placement
    name, where = place.stack_name, f"--project {place.project_id} --region {place.region}"
    inside: dict[str, tuple[str, list[str], list[str]]] = {}  # router, firewall rules, subnets
    if isinstance(config.network, CreateNetwork):
        inside[name] = (name, [f"{name}-internal", f"{name}-lustre"], [name])
    if config.has_fast_network:
        rdma = [f"{name}-rdma-{nic}" for nic in range(config.accelerators.rdma_nics)]
        inside |= {
            f"{name}-gvnic": ("", [f"{name}-gvnic-internal"], [f"{name}-gvnic"]),
            f"{name}-rdma": ("", [], rdma),
        }
    for network, (router, rules, subnets) in inside.items():
        steps = [
            f"gcloud -q compute routers delete {router} {where}" if router else "",
            f"gcloud -q compute firewall-rules delete {' '.join(rules)} --project {place.project_id}" if rules else "",
            f"gcloud -q compute networks subnets delete {' '.join(subnets)} {where}",
            f"gcloud compute networks delete {network} --project {place.project_id}",
        ]
        yield Name(
            what=f"network {network}",
            id=f"projects/{place.project_id}/global/networks/{network}",
            read=partial(_read_network, subject, network),
            remove="; ".join(filter(None, steps)),
        )


def _keep(config: StackConfig) -> str:
    """Say how to use what an adopted network has already; nothing on a network of the stack's own."""
    if not isinstance(config.network, ExistingNetwork):
        return ""
    return (
        "Use it by private_service_access.source existing, with the range_start and prefix_length that it has, or, if "
        "no service uses it: "
    )


def _read_network(subject: Subject, name: str) -> dict[str, Any]:
    project = subject.config.project.project_id
    return subject.google.get("compute", lambda api: api.networks().get(project=project, network=name))


def _collisions(found: Iterator[Name], owned: frozenset[str] | None) -> Iterator[Finding]:
    for name in found:
        if owned is not None and name.id in owned:
            continue
        try:
            name.read()
        except (GoogleNotFound, GoogleApiOff):
            # Nothing can exist behind an API that is off.
            continue
        except GoogleApiError as error:
            yield warn(f"Whether there is a {name.what} is unknown: {error}", "Run the preflight again")
            continue
        yield _left(f"{name.what} exists already and is not the stack's: `up` cannot make it", name.remove, owned)


def _connection(subject: Subject, owned: frozenset[str] | None) -> Iterator[Finding]:
    """A network has but one connection; a second one is refused."""
    config, project = subject.config, subject.config.project.project_id
    if not isinstance(config.private_service_access, CreatePrivateServiceAccess):
        return
    network = (
        config.network.network_name if isinstance(config.network, ExistingNetwork) else config.placement.stack_name
    )
    if owned is not None and any(id_.endswith(f"/networks/{network}:{_CONNECTION}") for id_ in owned):
        return
    try:
        found = _read_network(subject, network)
    except GoogleApiError:
        # That a network cannot be read is another line's business.
        return
    if any(peering.get("name") == SERVICE_PEERING for peering in found.get("peerings", [])):
        remove = f"gcloud compute networks peerings delete {SERVICE_PEERING} --network {network} --project {project}"
        yield _left(
            f"network {network} has a connection to Google's services that is not the stack's",
            f"{_keep(config)}{remove}",
            owned,
        )


def _gke_rules(subject: Subject, owned: frozenset[str] | None) -> Iterator[Finding]:
    """Rules that outlived their cluster; they collide with nothing, and no network goes while it has one."""
    config, place = subject.config, subject.config.placement
    cluster = f"projects/{place.project_id}/locations/{place.region}/clusters/{place.stack_name}"
    if not isinstance(config.network, CreateNetwork) or (owned is not None and cluster in owned):
        return
    try:
        rules = [
            rule["name"]
            for rule in subject.google.items("compute", lambda api: api.firewalls(), project=place.project_id)
            if rule.get("network", "").rpartition("/")[2] == place.stack_name and rule["name"].startswith(_GKE_RULES)
        ]
    except GoogleApiOff:
        return
    except GoogleApiError as error:
        yield warn(f"Whether GKE has left firewall rules is unknown: {error}", "Run the preflight again")
        return
    if rules:
        yield warn(
            f"network {place.stack_name} still has GKE's firewall rules {', '.join(rules)}: it cannot be deleted",
            f"gcloud compute firewall-rules delete {' '.join(rules)} --project {place.project_id}",
        )


def _left(detail: str, remedy: str, owned: frozenset[str] | None) -> Finding:
    return (warn if owned is None else fail)(detail, remedy)
