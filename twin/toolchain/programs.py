"""Which programs the twin needs, and the pinned Go module that each is built from."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

MODULES_DIR = Path(__file__).with_name("modules")

# Without optimisation the modules build in half the time, and a control plane starts only half a second later.
BUILD_FLAGS = ("-gcflags=all=-N -l",)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One go.mod with its go.sum: the programs that compile together.

    Attributes:
        name: directory under `modules/`.
        packages: program name to the import path of its main package.
        link_variables: Go variables set at link time; without them the programs do not know their own version.
        data: files to keep beside the programs: name of a directory to a glob in a module of the build list.
    """

    name: str
    packages: dict[str, str]
    link_variables: dict[str, str]
    data: dict[str, tuple[str, str]]

    @property
    def directory(self) -> Path:
        """Where the module's go.mod lies."""
        return MODULES_DIR / self.name

    @property
    def key(self) -> str:
        """Identity of the build: the lock files, own sources and flags."""
        digest = hashlib.sha256(repr((BUILD_FLAGS, self.packages, self.link_variables, self.data)).encode())
        for file in sorted(self.directory.iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:16]


# In the order in which `up` needs them. Four, because their dependencies exclude each other: the Kubernetes provider
# compiles neither with the engine's pulumi/pkg nor with k8s.io 0.36, KubeRay not with controller-runtime 0.24. The
# fifth is the twin's own: changing it must not build Kubernetes again.
MODULES = (
    Module(
        name="pulumi",
        packages={"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        link_variables={"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": "v3.274.1"},
        data={},
    ),
    Module(
        name="pulumi-kubernetes",
        packages={"pulumi-resource-kubernetes": "."},
        link_variables={},
        data={},
    ),
    Module(
        name="kubernetes",
        packages={
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kwok": "sigs.k8s.io/kwok/cmd/kwok",
            "kwokctl": "sigs.k8s.io/kwok/cmd/kwokctl",
        },
        link_variables={
            "k8s.io/component-base/version.gitVersion": "v1.36.3",
            "k8s.io/client-go/pkg/version.gitVersion": "v1.36.3",
        },
        data={},
    ),
    Module(
        name="kubelet-exec",
        packages={"kubelet-exec": "."},
        link_variables={},
        data={},
    ),
    Module(
        name="kuberay",
        packages={"kuberay-operator": "github.com/ray-project/kuberay/ray-operator"},
        link_variables={},
        data={"crds": ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases/*.yaml")},
    ),
)


@dataclass(frozen=True, kw_only=True)
class OnPath:
    """When a program found on PATH serves: its version command, and the versions from `minimum` up to the next major.

    `same_minor` narrows that to the minor version of `minimum`: for programs whose configuration format moves with it.
    """

    arguments: tuple[str, ...]
    minimum: tuple[int, int]
    same_minor: bool = False


# A program without a row is always built: it does not tell its version.
SERVES_FROM_PATH = {
    "pulumi": OnPath(arguments=("version",), minimum=(3, 272)),
    "etcd": OnPath(arguments=("--version",), minimum=(3, 6)),
    "kube-apiserver": OnPath(arguments=("--version",), minimum=(1, 35)),
    "kube-controller-manager": OnPath(arguments=("--version",), minimum=(1, 35)),
    "kube-scheduler": OnPath(arguments=("--version",), minimum=(1, 35)),
    "kwok": OnPath(arguments=("--version",), minimum=(0, 8), same_minor=True),
    "kwokctl": OnPath(arguments=("--version",), minimum=(0, 8), same_minor=True),
}


def module_of(program: str) -> Module:
    """Return the module that builds `program`."""
    return next(module for module in MODULES if program in module.packages)
