"""The only place where providers are made: every resource of the stack says which project and cluster it means.

The stack's settings disable the default providers of `gcp` and `kubernetes`, so a resource that forgot its provider
is an error and never lands in the project or cluster that the shell happens to point at.
"""

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes

from components.placement import Placement


def google_provider(name: str, place: Placement) -> gcp.Provider:
    """Make the provider of one project; who calls it comes from Application Default Credentials."""
    return gcp.Provider(name, project=place.project_id, region=place.region, zone=place.zone)


def cluster_provider(name: str, kubeconfig: pulumi.Input[str]) -> kubernetes.Provider:
    """Make the provider of one cluster.

    Args:
        name: the resource's name.
        kubeconfig: kubeconfig as text.
    """
    return kubernetes.Provider(
        name,
        kubeconfig=kubeconfig,
        # What lived in a cluster that is gone is gone: without this, destroy and refresh stop at a dead API server.
        delete_unreachable=True,
        # A new token is an update of the Secret, which running pods see; the default would delete it and make another.
        enable_secret_mutable=True,
    )
