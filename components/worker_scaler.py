"""The right of a run to its workers: a service account that may change the replicas of one RayCluster, nothing else.

The supervisor runs on the head and takes the GPU nodes when training can use them, and gives them back at the end.
RBAC gives its account get and patch on the one RayCluster. That alone would be too much: whoever may patch a RayCluster
may have KubeRay make pods of any kind. An admission policy of the API server therefore compares the object before and
after, and refuses whatever is not a number of replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

SCALER_DIR = PurePosixPath("/run/secrets/rlstack-scaler")
TOKEN_LIFETIME_S = 3600
"""Life of the head's token; the kubelet writes a new one into the file well before its end."""

_API_GROUP = "ray.io"
_RBAC_GROUP = "rbac.authorization.k8s.io"
# What the API server itself writes at every change.
_BOOKKEEPING = ("generation", "managedFields", "resourceVersion")


@dataclass(frozen=True, kw_only=True)
class WorkerScalerArgs:
    """Inputs of `WorkerScaler`.

    Attributes:
        ray_cluster: name of the RayCluster; the account and all that binds it are called after it.
        namespace: its namespace.
    """

    ray_cluster: str
    namespace: str

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {**vars(self)}


class WorkerScaler(pulumi.ComponentResource):
    """An account for the head, its role, and the fence round what the role allows."""

    def __init__(self, name: str, args: WorkerScalerArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:worker_scaler:WorkerScaler", name, args.as_inputs(), opts)
        child = ResourceOptions(parent=self)
        called = scaler_name(args.ray_cluster)
        metadata = {"name": called, "namespace": args.namespace}
        # Policies have no namespace: two stacks on one cluster differ by their own names.
        policy = kubernetes.admissionregistration.v1.ValidatingAdmissionPolicy(
            f"{name}-policy", metadata={"name": called}, spec=policy_spec(args), opts=child
        )
        in_force = kubernetes.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
            f"{name}-enforcement",
            metadata={"name": called},
            spec={"policyName": policy.metadata["name"], "validationActions": ["Deny"]},
            opts=child,
        )
        account = kubernetes.core.v1.ServiceAccount(
            # Pods ask for the token where they need it; no other gets one.
            f"{name}-account",
            metadata=metadata,
            automount_service_account_token=False,
            opts=child,
        )
        role = kubernetes.rbac.v1.Role(
            f"{name}-role", metadata=metadata, rules=role_rules(args.ray_cluster), opts=child
        )
        kubernetes.rbac.v1.RoleBinding(
            f"{name}-grant",
            metadata=metadata,
            role_ref={"apiGroup": _RBAC_GROUP, "kind": "Role", "name": role.metadata["name"]},
            subjects=[{"kind": "ServiceAccount", "name": account.metadata["name"], "namespace": args.namespace}],
            # Never a right without the fence round it, neither on the way up nor on the way down.
            opts=ResourceOptions(parent=self, depends_on=[in_force]),
        )
        self.register_outputs({"account": account.metadata["name"]})


def scaler_name(ray_cluster: str) -> str:
    """Name the account of a RayCluster, its role and its policy."""
    return f"{ray_cluster}-scaler"


def role_rules(ray_cluster: str) -> list[dict[str, Any]]:
    """Build the rules of the role."""
    return [
        {
            "apiGroups": [_API_GROUP],
            "resources": ["rayclusters"],
            "resourceNames": [ray_cluster],
            "verbs": ["get", "patch"],
        }
    ]


def policy_spec(args: WorkerScalerArgs) -> dict[str, Any]:
    """Build the policy: of an update by the account, every field but replicas is as it was."""
    account = f"system:serviceaccount:{args.namespace}:{scaler_name(args.ray_cluster)}"
    groups, old_groups = "object.spec.workerGroupSpecs", "oldObject.spec.workerGroupSpecs"
    same_group = unchanged("group", "old", but=("replicas",))
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [_API_GROUP],
                    "apiVersions": ["*"],
                    "operations": ["UPDATE"],
                    "resources": ["rayclusters", "rayclusters/*"],
                }
            ]
        },
        "matchConditions": [{"name": "by-the-scaler", "expression": f"request.userInfo.username == '{account}'"}],
        "validations": [
            {"expression": expression, "message": f"{account} may change the replicas of worker groups; {refused}"}
            for expression, refused in (
                (unchanged("object", "oldObject", but=("metadata", "spec", "status")), "not the object's kind"),
                (unchanged("object.metadata", "oldObject.metadata", but=_BOOKKEEPING), "not the metadata"),
                (
                    unchanged("object.spec", "oldObject.spec", but=("workerGroupSpecs",)),
                    "not the head or the cluster's settings",
                ),
                (f"{groups}.size() == {old_groups}.size()", "not their number"),
                (
                    f"{groups}.all(group, {old_groups}.exists(old, {same_group}))",
                    "not what their pods are",
                ),
            )
        ],
    }


def unchanged(new: str, old: str, *, but: Sequence[str]) -> str:
    """Write the CEL expression for: two maps are equal in every key but these."""
    keys = f"[{', '.join(repr(key) for key in but)}]"
    return (
        f"{new}.all(key, key in {keys} || (key in {old} && {new}[key] == {old}[key])) && "
        f"{old}.all(key, key in {keys} || key in {new})"
    )


def token_volume() -> dict[str, Any]:
    """Build the volume with the account's token and the API server's certificate authority, for the head alone."""
    return {
        "name": "scaler",
        "projected": {
            "defaultMode": 0o400,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_LIFETIME_S}},
                # The controller manager keeps this ConfigMap in every namespace.
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ],
        },
    }
