"""What a container sees at which path: the table that launch.py turns into mounts inside the pod's own namespace.

The root is a tmpfs that holds the system's directories read-only, the image's directories, a /tmp and a home of its
own, and the pod's volumes. Nothing else of this machine is there, and nothing of it can be written.
"""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobs.errors import TwinError
from twin.kubernetes.images import Image
from twin.kubernetes.quantities import amount

SHM = "/dev/shm"  # noqa: S108 - the path that a container sees
DEFAULT_SHM_BYTES = 64 * 1024**2
"""What a container gets without a volume there, as containerd gives it."""

_SYSTEM_DIRECTORIES = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "sys", "usr")


class MountKind(StrEnum):
    """How a path comes to be there."""

    BIND = "bind"
    TMPFS = "tmpfs"
    FILES = "files"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One path of a container.

    Attributes:
        target: where the container sees it.
        source: the directory or file of this machine (BIND).
        size_bytes: most that it holds (TMPFS); 0 for no limit of its own.
        files: name to content in base64 (FILES, a tmpfs that nothing of this machine holds a copy of).
        mode: permissions of those files.
    """

    kind: MountKind
    target: str
    source: str = ""
    read_only: bool = False
    size_bytes: int = 0
    files: dict[str, str] = field(default_factory=dict, repr=False)
    mode: int = 0o644

    def as_plan(self) -> dict[str, Any]:
        """As launch.py reads it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the volumes of a pod come from.

    Attributes:
        claims: name of a PersistentVolumeClaim to the directory of its file system.
        secrets: name of a Secret to its data, base64.
        config_maps: name of a ConfigMap to its data, plain text.
        directory: the pod's own directory, for whatever lives and dies with it.
    """

    claims: Mapping[str, Path]
    secrets: Mapping[str, Mapping[str, str]]
    config_maps: Mapping[str, Mapping[str, str]]
    directory: Path

    def volume(self, name: str) -> Path:
        """The directory of a volume that lives and dies with the pod."""
        return self.directory / "volumes" / name


def volume_mount(volume: Mapping[str, Any], target: str, sources: Sources, *, read_only: bool) -> Mount:
    """Turn one volume into a mount; kinds that the twin gives no content are directories of the pod."""
    if claim := volume.get("persistentVolumeClaim"):
        source = str(sources.claims[claim["claimName"]])
        return Mount(kind=MountKind.BIND, target=target, source=source, read_only=read_only)
    if secret := volume.get("secret"):
        name = secret["secretName"]
        files = chosen(sources.secrets[name], secret.get("items"), f"Secret {name}")
        return Mount(kind=MountKind.FILES, target=target, files=files, mode=0o400, read_only=True)
    if config_map := volume.get("configMap"):
        name = config_map["name"]
        data = {k: base64.b64encode(v.encode()).decode() for k, v in sources.config_maps[name].items()}
        files = chosen(data, config_map.get("items"), f"ConfigMap {name}")
        return Mount(kind=MountKind.FILES, target=target, files=files, read_only=True)
    empty = volume.get("emptyDir") or {}
    if empty.get("medium") == "Memory":
        return Mount(kind=MountKind.TMPFS, target=target, size_bytes=int(amount(empty.get("sizeLimit", 0))))
    source = str(sources.volume(volume["name"]))
    return Mount(kind=MountKind.BIND, target=target, source=source, read_only=read_only or "projected" in volume)


def container_mounts(
    pod_spec: Mapping[str, Any], container: Mapping[str, Any], image: Image, sources: Sources
) -> list[Mount]:
    """List what one container sees, in the order in which it must be mounted."""
    own = sources.directory / container["name"]
    volumes = {volume["name"]: volume for volume in pod_spec.get("volumes", [])}
    table = [
        *(
            Mount(kind=MountKind.BIND, target=f"/{name}", source=f"/{name}", read_only=True)
            for name in _SYSTEM_DIRECTORIES
        ),
        Mount(kind=MountKind.BIND, target="/dev", source="/dev"),
        Mount(kind=MountKind.TMPFS, target=SHM, size_bytes=DEFAULT_SHM_BYTES),
        Mount(kind=MountKind.BIND, target="/tmp", source=str(own / "tmp")),  # noqa: S108
        Mount(kind=MountKind.BIND, target=image.environment["HOME"], source=str(own / "home")),
        *(
            Mount(kind=MountKind.BIND, target=target, source=str(source), read_only=True)
            for target, source in image.directories.items()
        ),
    ]
    for mount in container.get("volumeMounts", []):
        read_only = bool(mount.get("readOnly"))
        made = volume_mount(volumes[mount["name"]], mount["mountPath"], sources, read_only=read_only)
        table = [entry for entry in table if entry.target != made.target]
        table.append(made)
    # A path above another must be there first; the sort is stable, so equals keep their order.
    return sorted(table, key=lambda entry: entry.target.count("/") if entry.target != "/" else 0)


def shm_bytes(mounts: list[Mount]) -> float:
    """Size of a container's /dev/shm; without a limit of its own, what the kernel gives any tmpfs: all there is."""
    size = next((mount.size_bytes for mount in mounts if mount.target == SHM), DEFAULT_SHM_BYTES)
    return size or float("inf")


def keyed(data: Mapping[str, str], key: str, source: str) -> str:
    """Read one key of a Secret or ConfigMap.

    Raises:
        TwinError: the key is not there.
    """
    if key not in data:
        raise TwinError(f"{source} has no key {key}; it has {', '.join(sorted(data)) or 'none'}")
    return data[key]


def chosen(data: Mapping[str, str], items: list[dict[str, str]] | None, source: str) -> dict[str, str]:
    """Choose and rename keys of a Secret or ConfigMap as a volume's `items` say; all of them without.

    Raises:
        TwinError: a key is not there.
    """
    return {item["path"]: keyed(data, item["key"], source) for item in items} if items else dict(data)
