"""One resource of each of the three providers: what a preview costs before any of the stack's own resources."""

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes

from components.lustre_guard import LustreGuard

google = gcp.Provider("google", project="floor-project", region="us-east1")
cluster = kubernetes.Provider("kubernetes", kubeconfig=pulumi.Output.from_input("").apply(lambda text: text or "{}"))
network = gcp.compute.Network("network", auto_create_subnetworks=False, opts=pulumi.ResourceOptions(provider=google))
settings = {"note": network.name}
kubernetes.core.v1.ConfigMap("settings", data=settings, opts=pulumi.ResourceOptions(provider=cluster))
record = {
    "project": "floor-project", "location": "us-east1-b", "instance_id": "floor", "network": network.id,
    "filesystem": "lustrefs", "throughput_mbps_per_tib": 500, "legacy_port": False, "capacity_gib": 18000,
}  # fmt: skip
LustreGuard("guard", record)
