from pathlib import Path

import yaml

from twin.kubernetes.kwok import NOT_RAY, configuration

BINARIES = {name: Path(f"/b/{name}") for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok")}
DOCUMENTS = list(
    yaml.safe_load_all(
        configuration(binaries={**BINARIES, "kube-scheduler": Path("/b/s")}, token_file=Path("/t/tokens.csv"))
    )
)


def test_every_component_is_bound_to_loopback() -> None:
    assert DOCUMENTS[0]["options"]["bindAddress"] == "127.0.0.1"


def test_no_stage_moves_a_pod_of_a_ray_cluster() -> None:
    stages = [document["spec"] for document in DOCUMENTS if document["kind"] == "Stage"]
    of_pods = [stage for stage in stages if stage["resourceRef"]["kind"] == "Pod"]
    assert len(of_pods) == 3
    assert all(NOT_RAY in stage["selector"]["matchExpressions"] for stage in of_pods)
