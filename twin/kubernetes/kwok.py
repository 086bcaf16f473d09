"""The configuration of one cluster for kwokctl: the control plane on loopback, and stages that leave Ray pods alone.

KWOK stands for the kubelet of every node. Its stock stages make any pod Ready at once; here they pass over the pods of
a RayCluster, whose status the agent sets from real processes. A PortForward object, which the agent writes for
each head, tells KWOK's kubelet where its dashboard really answers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from twin.kubernetes.nodes import TERMINATES_AT

RAY_CLUSTER_LABEL = "ray.io/cluster"
MOUNTED = "rlstack.twin/mounted"
"""Annotation of a Ray pod, in a twin without Ray, that has all that its spec refers to; see simulated_heads.py."""
NOT_RAY = {"key": f'.metadata.labels["{RAY_CLUSTER_LABEL}"]', "operator": "DoesNotExist"}

STAYING = {"key": f'.metadata.annotations["{TERMINATES_AT}"]', "operator": "DoesNotExist"}
LIVING = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
DELETED = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}

# Go templates. What they leave out of KWOK's stock stages (sidecars, readiness gates) nothing here uses.
_POD_READY = """
{{ $now := Now }}
conditions:
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Initialized}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Ready}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: ContainersReady}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  state: {terminated: {exitCode: 0, finishedAt: {{ $now | Quote }}, reason: Completed, startedAt: {{ $now | Quote }}}}
{{ end }}
phase: Running
startTime: {{ $now | Quote }}
"""

_POD_COMPLETE = """
{{ $now := Now }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: false
  restartCount: 0
  state: {terminated: {exitCode: 0, finishedAt: {{ $now | Quote }}, reason: Completed, startedAt: {{ $now | Quote }}}}
{{ end }}
phase: Succeeded
"""

_NODE_READY = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
  message: {{ .message | Quote }}
  reason: {{ .reason | Quote }}
  status: {{ .status | Quote }}
  type: {{ .type | Quote }}
{{ end }}
addresses:
- {address: {{ NodeIP | Quote }}, type: InternalIP}
- {address: {{ NodeName | Quote }}, type: Hostname}
daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
phase: Running
"""


def _stage(name: str, kind: str, when: list[dict[str, Any]], next_: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": next_,
        },
    }


def stages(*, without_ray: bool) -> list[dict[str, Any]]:
    """How KWOK moves nodes and pods; Ray's pods only where no Ray is to run."""
    pending = {"key": ".status.phase", "operator": "In", "values": ["Pending"]}
    running = {"key": ".status.phase", "operator": "In", "values": ["Running"]}
    of_a_job = {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]}
    not_ready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "NotIn",
        "values": ["True"],
    }
    mine = [] if without_ray else [NOT_RAY]
    ready = {"statusTemplate": _POD_READY}
    has_all = {"key": f'.metadata.annotations["{MOUNTED}"]', "operator": "Exists"}
    return [
        _stage("node-ready", "Node", [not_ready, STAYING], {"statusTemplate": _NODE_READY}),
        _stage("pod-ready", "Pod", [NOT_RAY, LIVING, pending], ready),
        *([_stage("ray-pod-ready", "Pod", [has_all, LIVING, pending], ready)] if without_ray else []),
        _stage("pod-complete", "Pod", [*mine, LIVING, running, of_a_job], {"statusTemplate": _POD_COMPLETE}),
        _stage("pod-delete", "Pod", [*mine, DELETED], {"delete": True}),
    ]


def configuration(*, binaries: Mapping[str, Path], token_file: Path, pki: Path, without_ray: bool) -> str:
    """Build kwokctl's configuration as YAML.

    Args:
        binaries: program name to path: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok.
        token_file: kube-apiserver's static tokens.
        pki: where kwokctl will keep the cluster's certificates; the API server shows one to the kubelets.
        without_ray: whether KWOK makes Ray's pods Ready too.
    """
    # There is one of each, and one that misses its lease, as on a busy machine, would end for the good of the others.
    alone = {"leader-elect": "false"}
    arguments = {
        "kube-apiserver": {
            "token-auth-file": str(token_file),
            "kubelet-client-certificate": str(pki / "admin.crt"),
            "kubelet-client-key": str(pki / "admin.key"),
        },
        "kube-controller-manager": alone,
        "kube-scheduler": alone,
    }
    cluster = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            # One option binds all five components; without it they listen on every interface.
            "bindAddress": "127.0.0.1",
            "enableCRDs": ["PortForward"],
            "etcdBinary": str(binaries["etcd"]),
            "kubeApiserverBinary": str(binaries["kube-apiserver"]),
            "kubeControllerManagerBinary": str(binaries["kube-controller-manager"]),
            "kubeSchedulerBinary": str(binaries["kube-scheduler"]),
            "kwokControllerBinary": str(binaries["kwok"]),
        },
        "componentsPatches": [
            {"name": name, "extraArgs": [{"key": key, "value": value} for key, value in extra.items()]}
            for name, extra in arguments.items()
        ],
    }
    return yaml.safe_dump_all([cluster, *stages(without_ray=without_ray)], sort_keys=False)
