"""The container images that the twin has: directories of this machine that a pod sees at the image's own paths."""

import sys
from dataclasses import dataclass
from pathlib import Path

from twin.state import REPOSITORY

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAGS = ("1.0", "1.1")


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image.

    Attributes:
        directories: path in the pod to the directory of this machine that is seen there, read-only.
        environment: what the image sets before the pod's own variables.
        workdir: where a container without `workingDir` starts.
    """

    directories: dict[str, Path]
    environment: dict[str, str]
    workdir: str


def _grpo_cpu() -> Image:
    """The trainer for CPUs: its directory, and this Python with its packages, Ray among them."""
    # The interpreter of a virtual environment is a link into the Python that made it: a pod needs both.
    pythons = {prefix: Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    bin_dir = REPOSITORY / "twin" / "image" / "bin"
    return Image(
        directories={
            **{path: where for path, where in pythons.items() if path != "/usr"},
            "/opt/nemo-rl": REPOSITORY / "twin" / "image" / "nemo-rl",
            "/opt/bin": bin_dir,
        },
        environment={
            "PATH": f"/opt/bin:{Path(sys.executable).parent}:{_SYSTEM_PATH}",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            # A pod claims hundreds of CPUs that this machine has not: Ray would start and keep a worker for each.
            "RAY_enable_worker_prestart": "0",
            "RAY_prestart_worker_first_driver": "0",
            "RAY_num_workers_soft_limit": "2",
        },
        workdir="/opt/nemo-rl",
    )


IMAGES: dict[str, Image] = {f"rlstack/grpo-cpu:{tag}": _grpo_cpu() for tag in _TAGS}


def find(reference: str) -> Image | None:
    """Find an image by the last two parts of its reference, so that any registry may stand before them."""
    return IMAGES.get("/".join(reference.split("/")[-2:]))


def not_found(reference: str) -> str:
    """Say that the twin has no such image, and which it has."""
    return (
        f'failed to pull image "{reference}": not found. The twin has only {", ".join(IMAGES)}; '
        "set ray.image to one of them for a stack on the twin"
    )
