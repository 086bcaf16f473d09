"""The Google APIs that the stack calls, enabled before anything calls them.

They stay enabled at destroy: another stack or a person may use them, and a disabled API takes what runs on it down.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from components.placement import Placement

SERVICES = (
    "cloudresourcemanager",  # roles of the node service account
    "compute",
    "container",
    "iam",
    "logging",
    "lustre",
    "monitoring",
    "servicenetworking",
)
STREAMING_SERVICES = ("artifactregistry", "containerfilesystem")
"""What GKE's image streaming calls besides."""


def services(*, image_streaming: bool) -> tuple[str, ...]:
    """List the APIs that a stack calls, without their domain."""
    return (*SERVICES, *(STREAMING_SERVICES if image_streaming else ()))


@dataclass(frozen=True, kw_only=True)
class ProjectServicesArgs:
    """Inputs of `ProjectServices`.

    Attributes:
        place: where it lies and what it is called.
        image_streaming: whether nodes stream images.
    """

    place: Placement
    image_streaming: bool

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {**vars(self), "place": vars(self.place)}


class ProjectServices(pulumi.ComponentResource):
    """The APIs of one project.

    Attributes:
        services: one resource for each of `SERVICES` and, with image streaming, of `STREAMING_SERVICES`.
    """

    def __init__(self, name: str, args: ProjectServicesArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:project_services:ProjectServices", name, args.as_inputs(), opts)
        self.services = [
            gcp.projects.Service(
                f"{name}-{service}",
                project=args.place.project_id,
                service=f"{service}.googleapis.com",
                disable_on_destroy=False,
                opts=ResourceOptions(parent=self),
            )
            for service in services(image_streaming=args.image_streaming)
        ]
        self.register_outputs({"services": [service.service for service in self.services]})
