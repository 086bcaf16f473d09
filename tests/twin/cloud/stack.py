"""A small stack on the simulated cloud, driven by the genuine engine in a process of its own.

`python -m tests.twin.cloud.stack OPERATION DELETION_POLICY DESCRIPTION` prints one JSON object: what the engine
counted and the output `address`, or its error.
"""

import json
import os
import sys

import pulumi
import pulumi_gcp as gcp
from pulumi import automation


def program(deletion_policy: str, description: str) -> None:
    provider = gcp.Provider("google", project="p", region="us-east1", zone="us-east1-b", access_token="x")
    options = pulumi.ResourceOptions(provider=provider)
    apis = [
        gcp.projects.Service(api, service=f"{api}.googleapis.com", disable_on_destroy=False, opts=options)
        for api in ("compute", "lustre", "servicenetworking")
    ]
    network = gcp.compute.Network(
        "net",
        auto_create_subnetworks=False,
        description=description,
        opts=pulumi.ResourceOptions(provider=provider, depends_on=apis),
    )
    gcp.compute.Subnetwork(
        "nodes",
        network=network.id,
        ip_cidr_range="192.168.0.0/18",
        secondary_ip_ranges=[{"range_name": "pods", "ip_cidr_range": "10.4.0.0/14"}],
        opts=options,
    )
    lent = gcp.compute.GlobalAddress(
        "lent", purpose="VPC_PEERING", address_type="INTERNAL", prefix_length=22, network=network.id, opts=options
    )
    connection = gcp.servicenetworking.Connection(
        "services",
        network=network.id,
        service="servicenetworking.googleapis.com",
        reserved_peering_ranges=[lent.name],
        deletion_policy=deletion_policy,
        opts=options,
    )
    instance = gcp.lustre.Instance(
        "lustre",
        instance_id="fs",
        location="us-east1-b",
        filesystem="lustrefs",
        capacity_gib="36000",
        per_unit_storage_throughput="500",
        network=network.id,
        labels={"stack": "dev"},
        opts=pulumi.ResourceOptions(provider=provider, depends_on=[connection]),
    )
    # Fails where a preview hands out None for what only a create tells.
    pulumi.export("address", instance.mount_point.apply(lambda mount_point: mount_point.split("@")[0]))


def main(operation: str, deletion_policy: str, description: str) -> None:
    stack = automation.create_or_select_stack(
        stack_name="dev",
        project_name="cloud",
        program=lambda: program(deletion_policy, description),
        opts=automation.LocalWorkspaceOptions(work_dir=os.environ["PULUMI_HOME"]),
    )
    try:
        told = getattr(stack, operation)()
        counts = told.change_summary if operation == "preview" else told.summary.resource_changes
        address = stack.outputs().get("address")
        print(json.dumps({"counts": counts, "address": address and address.value}))
    except automation.CommandError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
