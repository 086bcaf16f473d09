from pathlib import Path
from typing import Any

import yaml

from twin.kubernetes.kwok import MOUNTED, NOT_RAY, configuration

BINARIES = {name: Path(f"/b/{name}") for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok")}


def documents(*, without_ray: bool = False) -> list[Any]:
    binaries = {**BINARIES, "kube-scheduler": Path("/b/s")}
    text = configuration(
        binaries=binaries, token_file=Path("/t/tokens.csv"), pki=Path("/t/pki"), without_ray=without_ray
    )
    return list(yaml.safe_load_all(text))


def pod_stages(*, without_ray: bool) -> list[Any]:
    stages = [document["spec"] for document in documents(without_ray=without_ray) if document["kind"] == "Stage"]
    return [stage for stage in stages if stage["resourceRef"]["kind"] == "Pod"]


def test_every_component_is_bound_to_loopback() -> None:
    assert documents()[0]["options"]["bindAddress"] == "127.0.0.1"


def test_no_stage_moves_a_pod_of_a_ray_cluster() -> None:
    of_pods = pod_stages(without_ray=False)
    assert len(of_pods) == 3
    assert all(NOT_RAY in stage["selector"]["matchExpressions"] for stage in of_pods)


def test_without_ray_the_pods_of_a_ray_cluster_are_moved_too_once_they_have_all_that_they_refer_to() -> None:
    of_pods = pod_stages(without_ray=True)
    assert len(of_pods) == 4
    asked = [stage["selector"]["matchExpressions"] for stage in of_pods if stage["next"].get("statusTemplate")]
    assert [NOT_RAY in expressions for expressions in asked] == [True, False, False]
    assert [any(MOUNTED in each["key"] for each in expressions) for expressions in asked] == [False, True, False]
