"""A config is whole or refused with everything that is wrong with it."""

from typing import Any

import pytest

from components.config import StackConfig, parse_config
from jobs.errors import ConfigError
from jobs.problems import Problem
from tests.program import changed, stack_settings

SETTINGS = stack_settings("dev")


def problems_of(settings: dict[str, Any], stack: str = "dev") -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        parse_config(stack, settings)
    return {problem.key: problem for problem in caught.value.problems}


@pytest.mark.parametrize("stack", ["dev", "local"])
def test_the_shipped_stacks_have_no_error(stack: str) -> None:
    assert isinstance(parse_config(stack, stack_settings(stack)), StackConfig)


def test_the_codelab_s_values_are_warned_about_once_for_saving_more_often_than_validating() -> None:
    assert [warning.key for warning in parse_config("dev", SETTINGS).warnings()] == ["job.grpo.save_period"]


def test_all_errors_of_all_sections_come_at_once_from_shapes_and_from_rules() -> None:
    settings = changed(
        SETTINGS,
        project__zone="us-west1-b",
        network__subnet_cidr="10.4.0.0/16",
        private_service_access__prefix_length=28,
        lustre__capacity_gib=36001,
        cluster__authorized_networks=[{"name": "all", "cidr": "0.0.0.0/0"}],
        gpu_pool__capacity={"kind": "spot", "reservation": "mine"},
        ray__ray_version="2.54.0",
        job__grpo__train_global_batch_size="many",
    )
    assert set(problems_of(settings)) == {
        "project.zone",
        "network.subnet_cidr",
        "private_service_access.prefix_length",
        "lustre.capacity_gib",
        "cluster.authorized_networks.0.cidr",
        "gpu_pool.capacity.reservation",
        "ray.ray_version",
        "job.grpo.train_global_batch_size",
    }


def test_a_rule_over_a_broken_section_is_left_out_and_those_over_sound_ones_run() -> None:
    problems = problems_of(changed(SETTINGS, gpu_pool__node_count="eight", lustre__filesystem="far-too-long"))
    assert set(problems) == {"gpu_pool.node_count", "lustre.filesystem"}


def test_every_problem_has_a_key_a_value_a_reason_and_a_remedy() -> None:
    settings = changed(SETTINGS, project__zoen="x", lustre__capacity_gib=None, ray__head={"cpu": 0, "memory_gib": 4})
    problems = problems_of(settings)
    assert set(problems) == {"project.zoen", "lustre.capacity_gib", "ray.head.cpu"}
    assert all(problem.value and problem.reason and problem.remedy for problem in problems.values())


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("project__zoen", "Did you mean zone?"),
        ("cluster__system_pool", "Did you mean machine_type?"),
        ("job__grpo__max_num_step", "Did you mean max_num_steps?"),
        ("job__grpo__parallelism", "Did you mean tensor?"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_right_one_at_any_depth(path: str, suggestion: str) -> None:
    values = {"cluster__system_pool": {"machine_typ": "x"}, "job__grpo__parallelism": {"tensr": 4}}
    problems = problems_of(changed(SETTINGS, **{path: values.get(path, "us-east1-b")}))
    assert any(suggestion in problem.remedy for problem in problems.values())


def test_a_misspelt_section_is_missing_and_unknown() -> None:
    settings = {("lustr" if key == "lustre" else key): value for key, value in SETTINGS.items()}
    problems = problems_of(settings)
    assert set(problems) == {"lustr", "lustre"}
    assert "Did you mean lustre?" in problems["lustr"].remedy


def test_a_unit_in_a_value_is_answered_with_the_unit_of_the_key() -> None:
    problem = problems_of(changed(SETTINGS, lustre__capacity_gib="36 TiB"))["lustre.capacity_gib"]
    assert problem.value == "36 TiB"
    assert "unit that the key's name ends with" in problem.remedy


@pytest.mark.parametrize(
    ("path", "value"),
    [("ray__hf_token", "hf_canary"), ("job__grpo__wandb_api_key", "hf_canary"), ("gpu_pool__secret", ["hf_canary"])],
)
def test_a_misplaced_secret_is_refused_and_not_repeated(path: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("dev", changed(SETTINGS, **{path: value}))
    assert "hf_canary" not in str(caught.value)


def test_secrets_beside_the_sections_are_passed_over() -> None:
    parse_config("dev", {**SETTINGS, "hf_token": {"secure": "v1:…"}, "wandb_api_key": {"secure": "v1:…"}})


def test_the_union_s_tag_is_named_when_it_is_missing() -> None:
    problems = problems_of(changed(SETTINGS, network__source=None, gpu_pool__capacity={"kind": "on_demand"}))
    assert "source" in problems["network"].remedy
    assert "kind" in problems["gpu_pool.capacity"].remedy


def test_an_override_of_a_wrong_type_is_one_problem() -> None:
    problems = problems_of(changed(SETTINGS, job__grpo__overrides={"policy.precision": [1]}))
    assert set(problems) == {"job.grpo.overrides.policy.precision"}


def test_run_checkpoints_and_logs_share_one_directory_on_lustre() -> None:
    config = parse_config("dev", SETTINGS)
    assert config.run_dir == "/lustre/dev/nemo-rl-grpo-test1"
    assert config.checkpoint_dir.startswith(f"{config.run_dir}/")
    assert config.log_dir.startswith(f"{config.run_dir}/")


def test_the_ray_version_follows_from_the_image() -> None:
    assert parse_config("dev", SETTINGS).release.ray_version == "2.46.0"
    newer = changed(SETTINGS, ray__image="nvcr.io/nvidia/nemo-rl:v0.6.0")
    assert parse_config("dev", newer).release.ray_version == "2.54.0"
