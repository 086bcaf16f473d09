"""Heads of a twin without Ray, over an API server that only remembers what it was told."""

from typing import Any, cast

import httpx

from twin.kubernetes.api import ApiClient, Manifest, Resource
from twin.kubernetes.kwok import MOUNTED
from twin.kubernetes.pod_sources import Obstacle
from twin.kubernetes.simulated_heads import SimulatedHeads


class Api:
    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.deleted: list[str] = []
        self.mounted: list[str] = []

    def apply(self, _: Resource, manifest: Manifest) -> None:
        (forward,) = manifest["spec"]["forwards"]
        assert forward["ports"] == [8265]
        self.ports[manifest["metadata"]["name"]] = forward["target"]["port"]

    def patch(self, _: Resource, name: str, changes: Manifest, __: str) -> None:
        assert changes == {"metadata": {"annotations": {MOUNTED: "true"}}}
        self.mounted.append(name)

    def delete(self, _: Resource, name: str, __: str, *, uid: str) -> None:
        assert uid
        self.deleted.append(name)


def ray_pod(name: str, *, kind: str = "head", cluster: str = "one", node: str | None = "n") -> Manifest:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{name}",
        "labels": {"ray.io/cluster": "c", "ray.io/node-type": kind},
        "ownerReferences": [{"uid": cluster}],
    }
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}}


def complete(_: Manifest) -> list[Obstacle]:
    return []


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/api/version", trust_env=False).is_success
    except httpx.ConnectError:
        return False


def test_a_head_on_a_node_answers_and_a_raycluster_made_anew_has_another_dashboard() -> None:
    api = Api()
    heads = SimulatedHeads(api=cast(ApiClient, api))
    try:
        heads.reconcile([ray_pod("waiting", node=None), ray_pod("worker", kind="worker")], ["n"], complete)
        assert api.ports == {}
        heads.reconcile([ray_pod("a")], ["n"], complete)
        heads.reconcile([ray_pod("again")], ["n"], complete)
        assert api.ports["a"] == api.ports["again"]
        assert answers(api.ports["a"])
        heads.reconcile([ray_pod("b", cluster="two")], ["n"], complete)
        assert answers(api.ports["b"])
        assert not answers(api.ports["a"])
    finally:
        heads.close()
    assert not answers(api.ports["b"])


def test_pods_go_with_their_node() -> None:
    api = Api()
    heads = SimulatedHeads(api=cast(ApiClient, api))
    heads.reconcile(
        [ray_pod("w", kind="worker", node="gone"), ray_pod("x", kind="worker"), ray_pod("h", node="gone")],
        ["n"],
        complete,
    )
    assert api.deleted == ["w", "h"]
    assert api.ports == {}


def test_a_pod_becomes_ready_once_nothing_is_missing() -> None:
    api = Api()
    heads = SimulatedHeads(api=cast(ApiClient, api))
    missing = [Obstacle(waiting="w", event="e", message=message) for message in ("no Secret", "no Lustre")]
    pods = [ray_pod("x", kind="worker")]
    assert heads.reconcile(pods, ["n"], lambda _: missing) == {"x": "no Secret; no Lustre"}
    assert api.mounted == []
    for _ in range(2):
        assert heads.reconcile(pods, ["n"], complete) == {}
    assert api.mounted == ["x"]
