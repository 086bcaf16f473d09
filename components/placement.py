"""Where the stack's resources lie and what they are called: what every component on Google Cloud needs to know."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and under which name.

    Attributes:
        project_id: the Google Cloud project.
        region: region of the cluster and the subnet.
        zone: zone of nodes and Lustre.
        stack_name: what every cloud name starts with, so that two stacks in one project never collide.
        labels: labels on what Google bills, never on the RayCluster or its pods.
    """

    project_id: str
    region: str
    zone: str
    stack_name: str
    labels: dict[str, str]
