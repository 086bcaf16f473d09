"""Features of the GKE cluster that nodes, drivers and pods must agree on; each follows from another section's key."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterFeatures:
    """What the cluster and its nodes can do.

    Attributes:
        legacy_lustre_port: whether Lustre's driver speaks to port 6988; the instance and the firewall follow the same
            setting.
        multi_networking: whether pods can have further NICs.
        image_streaming: whether nodes stream images instead of pulling them whole.
    """

    legacy_lustre_port: bool
    multi_networking: bool
    image_streaming: bool
