"""The trainer's image and what follows from it."""

from components.sections import RaySection
from jobs.errors import ConfigError
from jobs.problems import Problem
from jobs.releases import Release, release_for_image


def known_release(ray: RaySection) -> Release | None:
    """What the image holds, if that is known."""
    try:
        return release_for_image(ray.image, ray.release)
    except ConfigError:
        return None


def ray_version_follows_image(ray: RaySection) -> list[Problem]:
    """KubeRay picks probes by rayVersion (ray-operator/controllers/ray/common/pod.go: supportsUnifiedHealthCheck)."""
    try:
        release = release_for_image(ray.image, ray.release)
    except ConfigError as error:
        return list(error.problems)
    if ray.ray_version in {None, release.ray_version}:
        return []
    return [
        Problem(
            key="ray.ray_version",
            value=str(ray.ray_version),
            reason=f"the image {ray.image} holds Ray {release.ray_version}, and KubeRay chooses its probes by this "
            "number: pods would never become ready",
            remedy="Remove ray.ray_version: it follows from the image",
        )
    ]
