"""The GKE version that a cluster starts with, and the oldest that has what the stack needs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from components.machines import GPU_MACHINES
from components.sections import (
    ClusterSection,
    CreateCluster,
    ExistingCluster,
    FlexStartCapacity,
    GpuPoolSection,
    LustreSection,
)
from jobs.problems import Problem


@dataclass(frozen=True, kw_only=True)
class Need:
    """A feature, and the oldest GKE version that has it.

    Attributes:
        feature: what the stack needs.
        oldest: the oldest version of each minor that has it, in ascending order; later minors have it all along.
        remedy: what helps besides a newer version.
    """

    feature: str
    oldest: tuple[str, ...]
    remedy: str = ""


# Sources: GoogleCloudPlatform/lustre-csi-driver's docs (driver, port), Google's page on the Ray add-on.
LUSTRE_DRIVER = Need(feature="the Lustre CSI driver", oldest=("1.31.5-gke.1299000", "1.32.1-gke.1673000"))
LUSTRE_PORT = Need(
    feature="Lustre's port 988", oldest=("1.33.2-gke.4780000",), remedy=", or set lustre.legacy_port to true"
)
# Google's page on flex-start (kubernetes-engine/docs/concepts/dws).
FLEX_START = Need(feature="flex-start", oldest=("1.32.2-gke.1652000",))
RAY_OPERATOR = Need(feature="the RayOperator add-on", oldest=("1.30.0-gke.1747000",))


def _parts(version: str) -> tuple[int, ...]:
    """Minor, patch and build, as far as they are written: 1.33.2-gke.4780000 gives (33, 2, 4780000)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))[1:]


def _suffices(written: str, oldest: tuple[str, ...]) -> bool:
    """Compare as far as the version is written: of a bare 1.33, GKE takes the newest that it offers."""
    ours = _parts(written)
    same_minor = next((parts for parts in map(_parts, oldest) if parts[0] == ours[0]), None)
    if same_minor is not None:
        return ours >= same_minor[: len(ours)]
    return ours[0] > _parts(oldest[-1])[0]


def gke_version_suffices(cluster: ClusterSection, gpu_pool: GpuPoolSection, lustre: LustreSection) -> list[Problem]:
    """Below a feature's oldest version GKE refuses it, or pods wait for a mount or a GPU that never comes."""
    if not isinstance(cluster, CreateCluster):
        return []
    return [
        Problem(
            key="cluster.min_version",
            value=cluster.min_version,
            reason=f"{need.feature} needs GKE {' or '.join(need.oldest)} or newer",
            remedy=f"Write {'.'.join(need.oldest[-1].split('.')[:2])} or newer{need.remedy}",
        )
        for need in unmet_needs(cluster.min_version, cluster, gpu_pool, lustre)
    ]


def unmet_needs(
    version: str, cluster: ClusterSection, gpu_pool: GpuPoolSection, lustre: LustreSection
) -> Iterator[Need]:
    """Yield what a stack needs and a GKE version has not."""
    needs = [LUSTRE_DRIVER]
    if not lustre.legacy_port:
        needs.append(LUSTRE_PORT)
    if isinstance(cluster, ExistingCluster) or cluster.ray_operator:
        needs.append(RAY_OPERATOR)
    if isinstance(gpu_pool.capacity, FlexStartCapacity):
        needs.append(FLEX_START)
    if (machine := GPU_MACHINES.get(gpu_pool.machine_type)) and machine.oldest_gke:
        needs.append(Need(feature=gpu_pool.machine_type, oldest=machine.oldest_gke))
    yield from (need for need in needs if not _suffices(version, need.oldest))
