import base64
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import TwinError
from twin.kubernetes.api import Manifest
from twin.kubernetes.mounts import Sources
from twin.kubernetes.projected import ProjectedVolumes, token_request

POD = {"metadata": {"name": "head", "namespace": "ray", "uid": "u-1"}}
LIFETIME_S = 3600


class TokenServer:
    """Answers TokenRequests as the API server does, and counts them."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Manifest]] = []

    def request_token(self, account: str, namespace: str, spec: Manifest) -> Manifest:
        self.requests.append((f"{namespace}/{account}", spec))
        ends = datetime.fromtimestamp(time.time() + spec["expirationSeconds"], UTC)
        return {"token": f"token-{len(self.requests)}", "expirationTimestamp": ends.isoformat()}


def volumes(tmp_path: Path, server: TokenServer, *sources: Manifest, **spec: Any) -> ProjectedVolumes:
    volume = {"name": "scaler", "projected": {"defaultMode": 0o400, "sources": list(sources)}}
    return ProjectedVolumes(
        api=server,  # type: ignore[arg-type]
        pod={**POD, "spec": {"volumes": [volume], **spec}},
        sources=Sources(
            claims={},
            secrets={"s": {"key": base64.b64encode(b"value").decode()}},
            config_maps={"kube-root-ca.crt": {"ca.crt": "PEM", "other": "x"}},
            directory=tmp_path,
        ),
        address="10.4.0.2",
    )


def test_every_source_becomes_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    volumes(
        tmp_path,
        TokenServer(),
        {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        serviceAccountName="scaler",
    ).write()
    files = {file.name: file for file in (tmp_path / "volumes" / "scaler").iterdir()}
    contents = {name: file.read_text() for name, file in files.items()}
    assert contents == {"token": "token-1", "ca.crt": "PEM", "key": "value", "namespace": "ray"}
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o400}


def test_a_token_is_asked_for_its_pod_and_account_and_replaced_well_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = TokenServer()
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_S}}
    projected = volumes(tmp_path, server, source, serviceAccountName="scaler")
    projected.write()
    file = tmp_path / "volumes" / "scaler" / "token"
    began = time.time()
    monkeypatch.setattr(time, "time", lambda: began + 0.7 * LIFETIME_S)
    projected.renew()
    assert file.read_text() == "token-1"
    monkeypatch.setattr(time, "time", lambda: began + 0.9 * LIFETIME_S)
    projected.renew()
    projected.renew()
    assert file.read_text() == "token-2"
    assert [account for account, _ in server.requests] == ["ray/scaler"] * 2
    assert server.requests[0][1]["boundObjectRef"]["uid"] == "u-1"


def test_an_audience_is_passed_on() -> None:
    assert token_request(POD, {"path": "t", "audience": "vault"})["audiences"] == ["vault"]
    assert "audiences" not in token_request(POD, {"path": "t"})


def test_a_source_that_the_twin_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(TwinError, match="projects no clusterTrustBundle"):
        volumes(tmp_path, TokenServer(), {"clusterTrustBundle": {"path": "x"}}).write()
