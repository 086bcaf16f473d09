"""The whole program: its graph, what it hands to the providers, and what it exports."""

import json
from typing import Any

import pulumi
import pytest

from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_CLUSTER, EXISTING_NETWORK
from tests.golden import assert_golden
from tests.graph import ancestors, graph_of_run, waits_of_run
from tests.program import REPOSITORY, Registered, Run, changed, run_program, stack_settings

SCHEMA = json.loads((REPOSITORY / "twin" / "cloud" / "gcp_schema.json").read_text())
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
    "list": (list,),
    "map": (dict,),
    "object": (dict,),
}
ADOPTED = changed(
    stack_settings("dev"),
    network=EXISTING_NETWORK,
    private_service_access=EXISTING_ACCESS,
    lustre={"source": "existing", "instance_id": "shared"},
    cluster=EXISTING_CLUSTER,
)


def schema_problems(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Compare one input with what the genuine provider takes."""
    kind = schema["type"]
    fits = isinstance(value, PYTHON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not fits:
        return [f"{path}: {kind} wanted, {value!r} given"]
    if kind == "integer" and value != int(value):
        return [f"{path}: whole number wanted, {value!r} given"]
    if "values" in schema and value not in schema["values"]:
        return [f"{path}: one of {schema['values']} wanted, {value!r} given"]
    if kind == "list":
        items = enumerate(value)
        return [line for index, item in items for line in schema_problems(item, schema["element"], f"{path}[{index}]")]
    if kind == "object":
        return object_problems(value, schema["properties"], path)
    return []


def object_problems(value: dict[str, Any], properties: dict[str, Any], path: str) -> list[str]:
    """Compare an object's keys with those that the genuine provider takes and needs."""
    inputs = {key: prop for key, prop in properties.items() if prop.get("optional") or prop.get("required")}
    problems = [f"{path}.{key}: no such input" for key in value.keys() - inputs.keys()]
    problems += [f"{path}.{key}: required" for key, prop in inputs.items() if prop.get("required") and key not in value]
    for key in value.keys() & inputs.keys():
        problems += schema_problems(value[key], inputs[key], f"{path}.{key}")
    return problems


def made_on_google(run: Run) -> list[Registered]:
    return [resource for resource in run.resources if resource.type.startswith("gcp:") and not resource.read]


@pytest.mark.parametrize(
    "settings",
    [
        stack_settings("dev"),
        stack_settings("local"),
        stack_settings("fast"),
        changed(stack_settings("dev"), gpu_pool__machine_type="a3-ultragpu-8g"),
        changed(stack_settings("dev"), gpu_pool__fast_network=False),
        changed(stack_settings("dev"), gpu_pool__scaling="fixed"),
        changed(stack_settings("dev"), gpu_pool__capacity={"kind": "reservation", "reservation": "mine"}),
        changed(stack_settings("dev"), gpu_pool__capacity={"kind": "flex_start", "max_run_duration_s": 7200}),
        changed(stack_settings("dev"), cluster__authorized_networks=[{"name": "office", "cidr": "203.0.113.0/24"}]),
        ADOPTED,
    ],
    ids=["dev", "local", "fast", "a3", "slow", "fixed", "reservation", "flex_start", "authorized", "adopted"],
)
def test_every_input_is_one_that_the_genuine_provider_takes(settings: dict[str, Any]) -> None:
    resources = made_on_google(run_program("dev", settings))
    assert resources
    problems = [
        line
        for resource in resources
        for line in object_problems(resource.inputs, SCHEMA[resource.type]["properties"], resource.name)
    ]
    assert problems == []


def test_an_input_that_does_not_exist_would_be_found() -> None:
    properties = SCHEMA["gcp:container/nodePool:NodePool"]["properties"]
    pool = {"cluster": "c", "nodeConfig": {"spt": True, "diskSizeGb": "100"}, "autoscaling": {"minNodeCount": 0.5}}
    assert sorted(object_problems(pool, properties, "pool")) == [
        "pool.autoscaling.minNodeCount: whole number wanted, 0.5 given",
        "pool.nodeConfig.diskSizeGb: integer wanted, '100' given",
        "pool.nodeConfig.spt: no such input",
    ]


def test_the_graph_is_as_known(dev_run: Run) -> None:
    graph = {
        resource.name: {
            "type": resource.type,
            "parent": resource.parent,
            "provider": resource.provider,
            "dependencies": sorted(resource.dependencies),
        }
        for resource in dev_run.resources
    }
    assert_golden("graph_dev", graph)


def test_the_graph_of_the_fast_stack_is_as_known() -> None:
    assert_golden("graph_fast", graph_of_run(run_program("fast", stack_settings("fast")), "fast"))


def test_every_resource_has_a_component_as_parent_and_an_explicit_provider(run: Run) -> None:
    for resource in run.resources:
        package = resource.type.partition(":")[0]
        if package in {"gcp", "kubernetes"}:
            assert run[resource.parent].type.startswith("rlstack:"), resource.name
            assert run[resource.provider].type == f"pulumi:providers:{package}", resource.name


def test_default_providers_are_disabled_in_every_shipped_stack() -> None:
    for stack in ("dev", "local", "fast"):
        assert (
            "pulumi:disable-default-providers: [gcp, kubernetes]" in (REPOSITORY / f"Pulumi.{stack}.yaml").read_text()
        )


def test_component_types_are_named_after_their_files(run: Run) -> None:
    for resource in run.resources:
        if resource.type.startswith("rlstack:"):
            _, file, name = resource.type.split(":")
            assert f"class {name}(pulumi.ComponentResource)" in (REPOSITORY / "components" / f"{file}.py").read_text()


def test_two_stacks_in_one_project_share_no_cloud_name() -> None:
    names = {}
    for stack in ("one", "two"):
        resources = made_on_google(run_program(stack, stack_settings("dev")))
        names[stack] = {
            (resource.type, resource.inputs[key])
            for resource in resources
            for key in ("name", "instanceId", "accountId")
            if key in resource.inputs
        }
    assert names["one"]
    assert not names["one"] & names["two"]


def test_the_job_comes_last_and_the_ray_cluster_after_all_that_its_pods_need(run: Run) -> None:
    assert {"ray-cluster", "ray-secrets", "ray-fence"} <= ancestors(waits_of_run(run), "grpo")
    assert {"gpus-pool", "gke-system", "lustre-port", "volume-claim"} <= ancestors(waits_of_run(run), "ray-cluster")
    assert {resource.name for resource in run.resources if "grpo" in resource.dependencies} == {"work"}


def test_a_destroy_asks_the_guard_of_the_work_before_anything_else_goes(run: Run) -> None:
    """A destroy begins with what nothing depends on; components themselves are nothing in the cloud."""
    needed = {name for resource in run.resources for name in resource.dependencies}
    leaves = {each.name for each in run.resources if each.name not in needed and not each.type.startswith("rlstack:")}
    assert leaves - {"google", "kubernetes"} == {"work"}


def test_what_a_run_stands_on_outlives_it(run: Run) -> None:
    found: set[str] = set()
    open_ends = {"grpo"}
    while open_ends:
        found |= open_ends
        # The engine deletes a child before its parent, and a parent before what the parent depends on.
        open_ends = {each for name in open_ends for each in (*run[name].dependencies, run[name].parent)} - found - {""}
    assert {"network-internal", "network-nat", "lustre-port", "gpus-pool", "volume-claim"} <= found


def test_adopted_parts_are_read_and_nothing_beside_them_is_made() -> None:
    run = run_program("dev", changed(ADOPTED, gpu_pool__fast_network=False))
    read = {resource.name for resource in run.resources if resource.read}
    assert read == {"network-vpc", "network-subnet", "lustre-instance", "gke-cluster"}
    made = {resource.type for resource in made_on_google(run)}
    assert made == {
        "gcp:projects/service:Service",
        "gcp:container/nodePool:NodePool",
        "gcp:monitoring/dashboard:Dashboard",
        "gcp:monitoring/alertPolicy:AlertPolicy",
    }


def test_outputs_are_those_that_the_command_line_reads(dev_run: Run) -> None:
    assert {name: sorted(value) for name, value in dev_run.outputs.items() if isinstance(value, dict)} == {
        "ray": ["cluster", "head_service", "image", "namespace", "ray_version"],
        "job": ["checkpoint_dir", "identity", "name", "run_dir", "submission_id"],
        "lustre": ["capacity_gib", "instance_id", "mount_point"],
        "monitoring": ["alerts", "dashboard"],
        "next_steps": ["credentials", "dashboard", "watch"],
    }
    assert json.loads(dev_run.outputs["kubeconfig"])["kind"] == "Config"


def test_a_bad_config_stops_the_program_with_all_problems_before_any_resource() -> None:
    settings = changed(stack_settings("dev"), lustre__capacity_gib=1, project__zone="us-west1-b")
    with pytest.raises(pulumi.RunError) as caught:
        run_program("dev", settings)
    assert "lustre.capacity_gib=1" in str(caught.value)
    assert "project.zone=us-west1-b" in str(caught.value)


def test_the_wiring_stays_readable() -> None:
    assert len((REPOSITORY / "__main__.py").read_text().splitlines()) <= 80
