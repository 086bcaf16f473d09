"""The names that a stack's own name gives to things in Google Cloud and Kubernetes."""

import re

from components.sections import ProjectSection, RaySection
from jobs.problems import Problem

# Names are `rlstack-<stack>` and a role; the limits are those of the services that hold them.
CLOUD_NAMES = {
    "Lustre instance": ("rlstack-{stack}", 63),
    "RayCluster": ("rlstack-{stack}", 53),  # KubeRay appends to it for pods and services
    "GKE cluster": ("rlstack-{stack}", 40),
    "GPU node pool": ("rlstack-{stack}-gpu", 40),
    "node service account": ("rlstack-{stack}-nodes", 30),
}
_STACK_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z]([-_a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([a-z0-9]([-_a-z0-9]{0,61}[a-z0-9])?)?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
MOST_LABELS = 64


def names_fit(stack: str) -> list[Problem]:
    """Every cloud name carries the stack's name, so its letters and length are those of the strictest service.

    Sources: GKE (cluster and node pool: 40), IAM (service account id: 6 to 30), KubeRay (RayCluster: 53), Lustre (63).
    """
    problems = []
    if not _STACK_NAME.fullmatch(stack):
        problems.append(
            Problem(
                key="stack",
                value=stack,
                reason="names in Google Cloud are lower-case letters, digits and inner hyphens, a letter first",
                remedy="Make the stack under such a name: pulumi stack init NAME",
            )
        )
    for what, (pattern, limit) in CLOUD_NAMES.items():
        name = pattern.format(stack=stack)
        if len(name) > limit:
            problems.append(
                Problem(
                    key="stack",
                    value=stack,
                    reason=f"the {what} would be called {name}, {len(name)} characters of at most {limit}",
                    remedy=f"Use a stack name that is {len(name) - limit} characters shorter",
                )
            )
    return problems


def labels_fit(project: ProjectSection) -> list[Problem]:
    """Labels stand on what Google bills; a letter or digit at both ends is narrower than Google asks.

    Sources: Google Cloud (64 labels; lower-case letters, digits, hyphens, underscores; 63 characters), `goog` (Google's
    own).
    """
    problems = [
        Problem(
            key=f"project.labels.{key}",
            value=value,
            reason="a label is lower-case letters, digits and inner hyphens or underscores, 63 at most, its key with a "
            "letter first, and keys that start with goog are Google's own",
            remedy="Write it so",
        )
        for key, value in project.labels.items()
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value) or key.startswith("goog")
    ]
    if len(project.labels) > MOST_LABELS:
        problems.append(
            Problem(
                key="project.labels",
                value=f"({len(project.labels)} labels)",
                reason=f"Google takes {MOST_LABELS} labels on a resource",
                remedy=f"Remove {len(project.labels) - MOST_LABELS}",
            )
        )
    return problems


def namespace_is_a_name(ray: RaySection) -> list[Problem]:
    """A Kubernetes namespace is a DNS label (RFC 1123)."""
    if _NAMESPACE.fullmatch(ray.namespace):
        return []
    return [
        Problem(
            key="ray.namespace",
            value=ray.namespace,
            reason="a namespace's name is lower-case letters, digits and inner hyphens, 63 at most",
            remedy="Write such a name, of a namespace that is there",
        )
    ]
