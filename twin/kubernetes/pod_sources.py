"""Finds what a pod's spec refers to, or says in the kubelet's words why the pod cannot start yet."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from twin.cloud.lustre_mount import mount_problem
from twin.cloud.store import Resource, ResourceType, Store
from twin.kubernetes import images
from twin.kubernetes.api import CLAIMS, CONFIG_MAPS, SECRETS, VOLUMES, ApiClient, Manifest
from twin.kubernetes.api import Resource as Kind
from twin.kubernetes.lustre_mounts import LustreMounts
from twin.kubernetes.mounts import Sources
from twin.state import TwinState

LUSTRE_DRIVER = "lustre.csi.storage.gke.io"


@dataclass(kw_only=True)
class Obstacle(Exception):
    """Why a pod cannot start yet; it is looked for again until it is gone.

    Attributes:
        waiting: reason of the containers' waiting state.
        event: reason of the pod's event.
        message: the sentence.
    """

    waiting: str
    event: str
    message: str


@dataclass
class SourceFinder:
    """Looks references up in one cluster.

    Attributes:
        cluster: the cluster's row in the store.
        lustre: the file systems that pods mount.
    """

    state: TwinState
    store: Store
    api: ApiClient
    cluster: Resource
    lustre: LustreMounts

    def find(self, pod: Manifest, directory: Path) -> Sources:
        """Look up all that a pod refers to.

        Raises:
            Obstacle: an image, a Secret, a ConfigMap or a volume is not to be had.
        """
        namespace, spec = pod["metadata"]["namespace"], pod["spec"]
        for container in spec["containers"]:
            if images.find(container["image"]) is None:
                message = images.not_found(container["image"])
                raise Obstacle(waiting="ImagePullBackOff", event="Failed", message=message)
        names = _References.of(spec)
        return Sources(
            claims={claim: self._file_system(claim, namespace) for claim in names.claims},
            secrets={name: self._object(SECRETS, name, namespace).get("data", {}) for name in names.secrets},
            config_maps={
                name: self._object(CONFIG_MAPS, name, namespace).get("data", {}) for name in names.config_maps
            },
            directory=directory,
        )

    def obstacles(self, pod: Manifest) -> list[Obstacle]:
        """Say what of a pod's Secrets, ConfigMaps and volumes is not to be had, without its image; mounts nothing."""
        namespace, names = pod["metadata"]["namespace"], _References.of(pod["spec"])
        looks: list[Callable[[], object]] = [
            *(partial(self._object, SECRETS, name, namespace) for name in sorted(names.secrets)),
            *(partial(self._object, CONFIG_MAPS, name, namespace) for name in sorted(names.config_maps)),
            *(partial(self._instance, claim, namespace) for claim in sorted(names.claims)),
        ]
        found = []
        for look in looks:
            try:
                look()
            except Obstacle as obstacle:
                found.append(obstacle)
        return found

    def _object(self, kind: Kind, name: str, namespace: str) -> Manifest:
        found = self.api.get(kind, name, namespace)
        if found is None:
            message = f'{kind.plural.removesuffix("s")} "{name}" not found in namespace {namespace}'
            raise Obstacle(waiting="CreateContainerConfigError", event="Failed", message=message)
        return found

    def _file_system(self, claim: str, namespace: str) -> Path:
        """The directory of the Lustre instance behind a bound claim, ready to be mounted."""
        directory = self.state.lustre(self._instance(claim, namespace))
        directory.mkdir(parents=True, exist_ok=True)
        self.lustre.share(directory)
        return directory

    def _instance(self, claim: str, namespace: str) -> str:
        """The name of the Lustre instance behind a bound claim, which pods can mount."""
        volume_name = self._object(CLAIMS, claim, namespace)["spec"].get("volumeName", "")
        volume = self.api.get(VOLUMES, volume_name) if volume_name else None
        source = (volume or {}).get("spec", {}).get("csi") or {}
        if source.get("driver") != LUSTRE_DRIVER:
            message = f"claim {claim} is bound to no volume of driver {LUSTRE_DRIVER}: the twin mounts nothing else"
            raise Obstacle(waiting="ContainerCreating", event="FailedMount", message=message)
        # project/location/instance; the Cluster Toolkit writes two more parts after these.
        project, location, instance = source["volumeHandle"].split("/")[:3]
        instance_id = f"projects/{project}/locations/{location}/instances/{instance}"
        problem = mount_problem(self.store, instance=instance_id, cluster=self.cluster.id)
        if problem is not None:
            raise Obstacle(waiting="ContainerCreating", event="FailedMount", message=problem)
        row = self.store.get(ResourceType.LUSTRE_INSTANCE, instance_id)
        return row.name if row else instance


@dataclass(frozen=True, kw_only=True)
class _References:
    """Names of what a pod refers to."""

    secrets: frozenset[str]
    config_maps: frozenset[str]
    claims: frozenset[str]

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "_References":
        volumes = spec.get("volumes", [])
        projected = [source for v in volumes for source in v.get("projected", {}).get("sources", [])]
        secrets = {v["secret"]["secretName"] for v in volumes if "secret" in v} | set(_named(spec, "secret"))
        secrets |= {source["secret"]["name"] for source in projected if "secret" in source}
        config_maps = {v["configMap"]["name"] for v in [*volumes, *projected] if "configMap" in v}
        config_maps |= set(_named(spec, "configMap"))
        claims = {v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v}
        return cls(secrets=frozenset(secrets), config_maps=frozenset(config_maps), claims=frozenset(claims))


def _named(spec: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Names of the Secrets or ConfigMaps that the containers' environment refers to."""
    for container in spec["containers"]:
        for source in container.get("envFrom", []):
            if reference := source.get(f"{kind}Ref"):
                yield reference["name"]
        for entry in container.get("env", []):
            if reference := entry.get("valueFrom", {}).get(f"{kind}KeyRef"):
                yield reference["name"]
