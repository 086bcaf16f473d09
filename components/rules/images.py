"""How the trainer's image, tens of GB, gets onto the nodes: a mirror in Artifact Registry, streamed or pulled."""

import re
from dataclasses import dataclass

from components.sections import ProjectSection, RaySection
from jobs.problems import Problem, Severity
from jobs.releases import RELEASES, image_tag

_ARTIFACT_REGISTRY = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/[^/]+/.+")
SHORTEST_HEAD_START_S = 1800
"""The trainer's image is tens of GB (the exact size is unverified); 50 GB at 50 MB/s take 1000 s, and unpacking."""


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """Where in Artifact Registry an image lies.

    Attributes:
        location: a region, or a multi-region: us, europe, asia.
        project: the repository's project.
    """

    location: str
    project: str

    def is_near(self, region: str) -> bool:
        """Whether nodes of a region find the repository at their own location."""
        return region == self.location or region.startswith(f"{self.location}-")


def mirror_of(image: str) -> Mirror | None:
    """The place of an image in Artifact Registry; none for an image elsewhere."""
    match = _ARTIFACT_REGISTRY.fullmatch(image)
    return Mirror(location=match["location"], project=match["project"]) if match else None


def streaming_has_a_mirror(ray: RaySection) -> list[Problem]:
    """GKE streams images of Artifact Registry only and pulls all others whole (GKE: Image streaming, requirements)."""
    if not ray.image_streaming or mirror_of(ray.image) is not None:
        return []
    return [
        Problem(
            key="ray.image_streaming",
            value="true",
            reason=f"{ray.image} does not lie in Artifact Registry, so it would be pulled whole by every node",
            remedy="Copy the image there (README: Image pulls) and name the copy in ray.image, or set it to false",
            severity=Severity.WARNING,
        )
    ]


def mirror_is_near(project: ProjectSection, ray: RaySection) -> list[Problem]:
    """A repository elsewhere is slow, paid for by the byte, and not streamed (GKE: Image streaming, requirements)."""
    mirror = mirror_of(ray.image)
    if mirror is None or mirror.is_near(project.region):
        return []
    return [
        Problem(
            key="ray.image",
            value=ray.image,
            reason=f"the repository lies in {mirror.location}, the nodes in {project.region}: each pull crosses "
            "regions, and nothing is streamed",
            remedy=f"Copy the image to {project.region}-docker.pkg.dev",
            severity=Severity.WARNING,
        )
    ]


def mirror_is_readable(project: ProjectSection, ray: RaySection) -> list[Problem]:
    """Nodes read the repositories of their own project (components/gke_cluster.py: NODE_ROLES), others by grant."""
    mirror = mirror_of(ray.image)
    if mirror is None or mirror.project == project.project_id:
        return []
    return [
        Problem(
            key="ray.image",
            value=ray.image,
            reason=f"the repository belongs to {mirror.project}, where the nodes' service account has no role yet",
            remedy=f"Grant it roles/artifactregistry.reader there: gcloud projects add-iam-policy-binding "
            f"{mirror.project} --role roles/artifactregistry.reader --member serviceAccount:ACCOUNT",
            severity=Severity.WARNING,
        )
    ]


def head_outwaits_the_pull(ray: RaySection) -> list[Problem]:
    """The head is ready when its image is there; `up` gives up earlier if it is told to."""
    repository, tag = image_tag(ray.image)
    is_the_trainer = repository == "nemo-rl" and tag in RELEASES
    if not is_the_trainer or ray.image_streaming or ray.head_start_timeout_s >= SHORTEST_HEAD_START_S:
        return []
    return [
        Problem(
            key="ray.head_start_timeout_s",
            value=str(ray.head_start_timeout_s),
            reason="pulling and unpacking tens of GB can take longer, and `up` would fail while the pull goes on",
            remedy=f"Write {SHORTEST_HEAD_START_S} or more",
            severity=Severity.WARNING,
        )
    ]
