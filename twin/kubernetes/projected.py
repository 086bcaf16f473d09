"""Projected volumes: Secrets, ConfigMaps, a pod's own fields and service-account tokens as files of one directory.

The container sees the directory itself and not a copy, for a token ends: the kubelet writes the next one into the same
file well before that. On this machine the directory lies within the state directory, as the twin's own credential does;
a token is bound to its pod and worth nothing after it.
"""

import base64
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from jobs.errors import TwinError
from twin.kubernetes.api import ApiClient, Manifest
from twin.kubernetes.containers import pod_field
from twin.kubernetes.mounts import Sources, chosen

RENEWED_AFTER = 0.8
"""Share of a token's life after which the kubelet asks for the next one."""
DEFAULT_LIFETIME_S = 3600
DEFAULT_MODE = 0o644


@dataclass(kw_only=True)
class TokenFile:
    """A file that holds a token of the pod's service account.

    Attributes:
        path: the file, on this machine.
        mode: its permissions.
        request: the spec of the TokenRequest.
        renew_at: when the next token is due, Unix seconds.
    """

    path: Path
    mode: int
    request: Manifest
    renew_at: float = 0.0


@dataclass
class ProjectedVolumes:
    """The projected volumes of one pod.

    Attributes:
        address: the pod's address, which is one of its fields.
        tokens: the files with tokens.
    """

    api: ApiClient
    pod: Manifest
    sources: Sources
    address: str
    tokens: list[TokenFile] = field(default_factory=list)

    def write(self) -> None:
        """Write every file.

        Raises:
            TwinError: a source that the twin does not know.
            ApiError: the API server gave no token.
        """
        for volume in self.pod["spec"].get("volumes", []):
            projected = volume.get("projected", {})
            directory, mode = self.sources.volume(volume["name"]), projected.get("defaultMode", DEFAULT_MODE)
            for source in projected.get("sources", []):
                if request := source.get("serviceAccountToken"):
                    path = directory / request["path"]
                    self.tokens.append(TokenFile(path=path, mode=mode, request=token_request(self.pod, request)))
                else:
                    for name, content in self._files(source):
                        replace_file(directory / name, content, mode)
        self.renew()

    def renew(self) -> None:
        """Write the tokens that are due."""
        spec, metadata = self.pod["spec"], self.pod["metadata"]
        account = spec.get("serviceAccountName", "default")
        for file in [file for file in self.tokens if time.time() >= file.renew_at]:
            token = self.api.request_token(account, metadata["namespace"], file.request)
            replace_file(file.path, token["token"].encode(), file.mode)
            now = time.time()
            file.renew_at = now + RENEWED_AFTER * (expiry(token) - now)

    def _files(self, source: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        if secret := source.get("secret"):
            name = secret["name"]
            for path, content in chosen(self.sources.secrets[name], secret.get("items"), f"Secret {name}").items():
                yield path, base64.b64decode(content)
        elif config_map := source.get("configMap"):
            name = config_map["name"]
            texts = chosen(self.sources.config_maps[name], config_map.get("items"), f"ConfigMap {name}")
            for path, text in texts.items():
                yield path, text.encode()
        elif own := source.get("downwardAPI"):
            for item in own.get("items", []):
                yield item["path"], pod_field(self.pod, item["fieldRef"]["fieldPath"], self.address).encode()
        else:
            known = "serviceAccountToken, secret, configMap, downwardAPI"
            raise TwinError(f"the twin projects no {', '.join(source)} into a volume; it knows {known}")


def token_request(pod: Manifest, source: Mapping[str, Any]) -> Manifest:
    """Build the spec of a TokenRequest for one source of a volume; the token ends with the pod."""
    metadata = pod["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    audiences = {"audiences": [source["audience"]]} if source.get("audience") else {}
    lifetime_s = source.get("expirationSeconds", DEFAULT_LIFETIME_S)
    return {"boundObjectRef": bound, "expirationSeconds": lifetime_s, **audiences}


def expiry(token: Manifest) -> float:
    """When a token ends, Unix seconds."""
    return datetime.fromisoformat(token["expirationTimestamp"]).timestamp()


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file so that a reader sees the old content or the new one, and never with more permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.replace(path)
