"""The right to scale workers: as narrow as it can be said. That the API server enforces it: tests/pipeline."""

from components.worker_scaler import WorkerScalerArgs, policy_spec, role_rules, unchanged
from tests.golden import assert_golden
from tests.program import Run

ARGS = WorkerScalerArgs(ray_cluster="rlstack-dev", namespace="default")


def test_the_policy_is_as_known() -> None:
    assert_golden("worker_scaler_policy", policy_spec(ARGS))


def test_the_role_is_for_one_object_and_two_verbs() -> None:
    (rule,) = role_rules("rlstack-dev")
    assert rule["resourceNames"] == ["rlstack-dev"]
    assert (rule["resources"], rule["verbs"]) == (["rayclusters"], ["get", "patch"])


def test_two_maps_are_compared_in_both_directions() -> None:
    assert unchanged("new", "old", but=("replicas",)) == (
        "new.all(key, key in ['replicas'] || (key in old && new[key] == old[key])) && "
        "old.all(key, key in ['replicas'] || key in new)"
    )


def test_the_policy_is_about_the_account_that_the_role_is_granted_to(dev_run: Run) -> None:
    (subject,) = dev_run["ray-scaler-grant"].inputs["subjects"]
    (condition,) = dev_run["ray-scaler-policy"].inputs["spec"]["matchConditions"]
    account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    assert subject["name"] == dev_run["ray-scaler-account"].inputs["metadata"]["name"]
    assert (
        dev_run["ray-scaler-grant"].inputs["roleRef"]["name"] == dev_run["ray-scaler-role"].inputs["metadata"]["name"]
    )


def test_the_policy_refuses_and_is_there_before_the_right_and_the_pods(dev_run: Run) -> None:
    enforcement = dev_run["ray-scaler-enforcement"].inputs["spec"]
    assert enforcement["validationActions"] == ["Deny"]
    assert enforcement["policyName"] == dev_run["ray-scaler-policy"].inputs["metadata"]["name"]
    assert dev_run["ray-scaler-policy"].inputs["spec"]["failurePolicy"] == "Fail"
    assert "ray-scaler-enforcement" in dev_run["ray-scaler-grant"].dependencies
    assert {"ray-scaler-grant", "ray-scaler-account", "ray-scaler-enforcement"} <= dev_run["ray-cluster"].dependencies
