"""What can be known without a Kubernetes API server; the way itself is walked by the tests of the twin."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import PortForwardError, UsageError
from jobs.kubernetes_api import _with_files, parse_kubeconfig
from jobs.port_forward import open_dashboard

USER = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "no-such-plugin"}}


def kubeconfig(server: str = "https://127.0.0.1:1", **cluster: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "c", "user": USER}],
    }


@pytest.fixture(autouse=True)
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.com")
    monkeypatch.setenv("no_proxy", "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"clusters": []}', "apiVersion: v1"])
def test_what_is_no_kubeconfig_is_the_users_to_repair(text: str) -> None:
    with pytest.raises(UsageError, match="kubeconfig"):
        parse_kubeconfig(text)


def test_inline_secrets_become_private_files_and_the_kubeconfig_stays_as_it_was(tmp_path: Path) -> None:
    data = base64.b64encode(b"an authority").decode()
    given = kubeconfig(**{"certificate-authority-data": data})

    cluster = _with_files(given, tmp_path)["clusters"][0]["cluster"]

    path = Path(cluster["certificate-authority"])
    assert path.read_bytes() == b"an authority"
    assert path.stat().st_mode & 0o077 == 0
    assert "certificate-authority-data" not in cluster
    assert given["clusters"][0]["cluster"]["certificate-authority-data"] == data


def test_a_missing_credential_plugin_is_named_with_its_remedy() -> None:
    with (
        pytest.raises(PortForwardError, match=r"no-such-plugin.*gke-gcloud-auth-plugin"),
        open_dashboard(kubeconfig=json.dumps(kubeconfig()), namespace="ray", head_service="head", timeout_s=20),
    ):
        pass


def test_loopback_is_exempt_from_proxies_and_other_servers_are_not_touched() -> None:
    for server in ("https://gke.example", "https://127.0.0.1:1"):
        with (
            pytest.raises(PortForwardError),
            open_dashboard(
                kubeconfig=json.dumps(kubeconfig(server)), namespace="ray", head_service="head", timeout_s=20
            ),
        ):
            pass
        expected = "example.com" if "gke" in server else "example.com,127.0.0.1,localhost,::1"
        assert os.environ["NO_PROXY"] == expected
