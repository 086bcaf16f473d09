"""Where the twin keeps what it makes: one directory, so that `make clean` can remove all of it."""

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
STATE_VARIABLE = "RLSTACK_TWIN_STATE"


@dataclass(frozen=True)
class TwinState:
    """The paths under one state directory; see docs/architecture.md for what lies where."""

    root: Path

    @classmethod
    def from_environment(cls) -> "TwinState":
        """Take $RLSTACK_TWIN_STATE, else `.twin` beside Pulumi.yaml."""
        return cls(Path(os.environ.get(STATE_VARIABLE) or REPOSITORY / ".twin").absolute())

    @property
    def cloud_db(self) -> Path:
        """The simulated project: `twin.cloud.store`."""
        return self.root / "cloud.db"

    @property
    def without_ray(self) -> Path:
        """Exists in a twin whose Ray pods are Ready without a process: `python -m twin up --without-ray`."""
        return self.root / "without-ray"

    @property
    def bin_dir(self) -> Path:
        """What stands on the engine's PATH."""
        return self.root / "bin"

    @property
    def backend_dir(self) -> Path:
        """The engine's file backend: state of every stack."""
        return self.root / "pulumi" / "backend"

    @property
    def pulumi_home(self) -> Path:
        """The engine's home."""
        return self.root / "pulumi" / "home"

    @property
    def passphrase(self) -> Path:
        """The passphrase of the stacks' secrets; random, mode 0600."""
        return self.root / "passphrase"

    @property
    def access_token(self) -> Path:
        """The twin's Google credential; random, mode 0600."""
        return self.root / "access-token"

    @property
    def ca_bundle(self) -> Path:
        """The certificate authorities that the twin's clients trust."""
        return self.root / "ca-bundle.crt"

    def workspace(self, stack: str) -> Path:
        """The copy of one stack's settings that the engine works on."""
        return self.root / "workspace" / stack

    def cluster(self, name: str) -> Path:
        """Working directory of one GKE cluster."""
        return self.root / "clusters" / name

    def lustre(self, instance_id: str) -> Path:
        """The file system of one Lustre instance."""
        return self.root / "lustre" / instance_id

    @property
    def temporary(self) -> Path:
        """Where the engine's programs put files that some of them never remove."""
        return self.root / "tmp"

    @property
    def buckets(self) -> Path:
        """The buckets of Cloud Storage, by name."""
        return self.root / "buckets"

    @property
    def pods(self) -> Path:
        """What the pods keep, by namespace and name."""
        return self.root / "pods"

    def pod(self, namespace: str, name: str) -> Path:
        """Root, temporary files and logs of one pod."""
        return self.pods / namespace / name
