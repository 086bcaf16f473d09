"""GKE's kinds for pods with several NICs, which a cluster with multi-networking on knows and no other does.

The schemas hold what GKE's own definitions do (kubernetes/cloud-provider-gcp, crd/config/crds) of the fields that a
person writes for networks of whole NICs, and nothing more, so that the API server refuses a misspelt one; the device
mode RDMA is newer than those. That pods which name a network ask for its NICs, and that nodes have them, is left out.
"""

from typing import Any

from twin.cloud.store import Resource
from twin.kubernetes.api import DEFINITIONS, ApiClient, Manifest

GROUP = "networking.gke.io"

_TEXT = {"type": "string"}


def enabled(cluster: Resource) -> bool:
    """Whether a cluster has multi-networking on."""
    return bool(cluster.properties.get("enableMultiNetworking"))


def install(api: ApiClient) -> None:
    """Make the kinds known; they stay as long as the cluster, which cannot turn multi-networking off."""
    for definition in definitions():
        api.apply(DEFINITIONS, definition)


def definitions() -> list[Manifest]:
    """Build the definitions."""
    parameters = _object(
        {
            "vpc": _TEXT,
            "vpcSubnet": _TEXT,
            "deviceMode": {"type": "string", "enum": ["DPDK-VFIO", "NetDevice", "RDMA"]},
        },
        required=["vpc", "vpcSubnet"],
    )
    reference = _object({"group": _TEXT, "kind": _TEXT, "name": _TEXT}, required=["group", "kind", "name"])
    network = _object(
        {"type": {"type": "string", "enum": ["L2", "L3", "Device"]}, "parametersRef": reference}, required=["type"]
    )
    return [_definition("GKENetworkParamSet", parameters), _definition("Network", network)]


def _object(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _definition(kind: str, spec: dict[str, Any]) -> Manifest:
    singular = kind.lower()
    schema = _object({"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}, "spec": spec}, required=[])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": f"{singular}s", "singular": singular, "listKind": f"{kind}List"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
