"""Plans read out of engine events of the shape that the Automation API gives."""

from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from twin.plan import Change, Operation, Plan, PropertyChange, markdown, read_plan

POOL = "gcp:container/nodePool:NodePool"
JOB = "pulumi-python:dynamic/rlstack:RayJob"


def step(
    op: str, type_: str, name: str, *, old: dict[str, Any] | None = None, new: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    sides = {side: {"custom": True, "inputs": inputs} for side, inputs in (("old", old), ("new", new)) if inputs}
    urn = f"urn:pulumi:dev::rlstack::rlstack:gpus:Gpus${type_}::{name}"
    metadata = {"old": None, "new": None, **(sides or {"new": {"custom": True, "inputs": {}}}), "op": op, **more}
    return {"resource_pre_event": {"metadata": {"type": type_, "urn": urn, **metadata}}, "diagnostic_event": None}


def diagnostic(severity: str, message: str) -> dict[str, Any]:
    return {"resource_pre_event": None, "diagnostic_event": {"severity": severity, "message": message}}


def only_change(*events: dict[str, Any]) -> Change:
    (change,) = read_plan(events).changes
    return change


def test_a_change_in_place_names_its_properties_with_both_values() -> None:
    change = only_change(
        step(
            "update",
            POOL,
            "gpus-pool",
            old={"autoscaling": {"maxNodeCount": 8.0}, "labels": {"a/b": "x"}},
            new={"autoscaling": {"maxNodeCount": 4.0}, "labels": {"a/b": "y"}},
            detailed_diff={
                "autoscaling.maxNodeCount": {"diff_kind": "update", "input_diff": False},
                'labels["a/b"]': {"diff_kind": "update", "input_diff": False},
            },
        )
    )
    assert change == Change(
        operation=Operation.UPDATE,
        type="gcp:container:NodePool",
        name="gpus-pool",
        properties=(
            PropertyChange(path="autoscaling.maxNodeCount", old="8", new="4", replaces=False),
            PropertyChange(path='labels["a/b"]', old="x", new="y", replaces=False),
        ),
    )


def test_a_replacement_is_one_change_and_names_what_causes_it() -> None:
    sides = {"old": {"zone": "a", "size": 1}, "new": {"zone": "b", "size": 2}}
    kinds = {"zone": {"diff_kind": "update-replace"}, "size": {"diff_kind": "update"}}
    events = [step(op, POOL, "p", **sides, detailed_diff=kinds) for op in ("replace", "create-replacement")]
    change = only_change(step("delete-replaced", POOL, "p", old=sides["old"]), *events)
    assert change.operation is Operation.REPLACE
    assert {each.path: each.replaces for each in change.properties} == {"zone": True, "size": False}


def test_of_a_long_text_only_the_words_that_changed_are_told() -> None:
    common = "python -m jobs.payload.supervisor --gpus 64 -- uv run train.py"
    old, new = ({"entrypoint": f"{common} save_period={steps} nodes=8"} for steps in (2, 4))
    change = only_change(step("replace", JOB, "grpo", old=old, new=new, keys=["entrypoint"]))
    assert change.type == "rlstack:RayJob"
    assert change.properties == (
        PropertyChange(path="entrypoint", old="save_period=2", new="save_period=4", replaces=True),
    )


def test_a_dynamic_resource_without_details_shows_the_inputs_that_differ() -> None:
    old, new = ({"metadata": {"wandb": name}, "uid": uid} for name, uid in (("a", "1"), ("b", UNKNOWN)))
    paths = only_change(step("update", JOB, "grpo", old=old, new=new)).properties
    assert [(each.path, each.old, each.new) for each in paths] == [("metadata", "", ""), ("uid", "1", "known after up")]


def test_components_default_providers_and_what_stays_are_no_changes() -> None:
    component = step("update", "rlstack:gpu_node_pool:GpuNodePool", "gpus")
    component["resource_pre_event"]["metadata"]["new"]["custom"] = False
    provider = step("update", "pulumi:providers:pulumi-python", "default")
    assert read_plan([component, provider, step("same", POOL, "p"), step("read", POOL, "q")]) == Plan(
        changes=(), unchanged=2, warnings=(), errors=()
    )


def test_warnings_and_errors_are_told_once_without_the_engines_chatter() -> None:
    plan = read_plan(
        [
            diagnostic("warning", "using pulumi-resource-gcp from $PATH at /x/bin/pulumi-resource-gcp\n"),
            diagnostic("debug", "registering resource"),
            diagnostic("warning", "warning: job.x=1: too small."),
            diagnostic("error", "The config cannot be used:\n  error: a"),
            diagnostic("error", "an unhandled error occurred: The config cannot be used:\n  error: a"),
        ]
    )
    assert plan.warnings == ("job.x=1: too small.",)
    assert plan.errors == ("The config cannot be used:\n  error: a",)


def test_markdown_puts_what_hurts_first_and_keeps_cells_whole() -> None:
    created = Change(operation=Operation.CREATE, type="gcp:compute:Network", name="vpc")
    value = PropertyChange(path="spec", old="", new="a|b`c", replaces=True)
    replaced = Change(operation=Operation.REPLACE, type="rlstack:RayJob", name="grpo", properties=(value,))
    plan = Plan(changes=(created, replaced), unchanged=3, warnings=("mind this",), errors=())
    text = markdown(plan, heading="Stack `dev`", notes=["A note."])
    assert "**1 replaced, 1 created, 3 unchanged**" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| replaced | `rlstack:RayJob` grpo | `spec`: (none) → `a\\|b'c` (replaces) |",
        "| created | `gcp:compute:Network` vpc |  |",
    ]
    assert text.index("A note.") < text.index("- mind this")


def test_markdown_of_a_refused_program_is_its_errors_and_nothing_else() -> None:
    text = markdown(Plan(changes=(), unchanged=0, warnings=("w",), errors=("no ``` fence",)), heading="Head")
    assert text == "### Head\n\nThe engine refused it:\n\n```text\nno ''' fence\n```\n"
