"""A release follows from the image, and no image is guessed at."""

import pytest

from jobs.errors import ConfigError
from jobs.releases import RELEASES, Release, release_for_image

CPU = Release(
    tag="1.0", ray_version="2.60.0", entry_script="examples/run_grpo.py", config_file="examples/configs/grpo_cpu.yaml"
)


@pytest.mark.parametrize(
    ("image", "ray_version", "entry_script"),
    [
        ("nvcr.io/nvidia/nemo-rl:v0.4.0", "2.46.0", "examples/run_grpo_math.py"),
        ("nemo-rl:v0.5.0", "2.49.2", "examples/run_grpo.py"),
        ("us-docker.pkg.dev/p/mirror/nvidia/nemo-rl:v0.6.0@sha256:" + "0" * 64, "2.54.0", "examples/run_grpo.py"),
        ("localhost:5000/nemo-rl:v0.7.0", "2.55.1", "examples/run_grpo.py"),
    ],
)
def test_tag_decides_whatever_the_registry(image: str, ray_version: str, entry_script: str) -> None:
    release = release_for_image(image, None)
    assert (release.ray_version, release.entry_script) == (ray_version, entry_script)


@pytest.mark.parametrize(
    "image",
    [
        "nvcr.io/nvidia/nemo-rl:v0.8.0",
        "nvcr.io/nvidia/nemo-rl",
        "nvcr.io/nvidia/nemo-rl@sha256:" + "0" * 64,
        "nvcr.io/nvidia/nemo-rl-nightly:v0.4.0",
        "localhost:5000/nemo-rl",
        "",
    ],
)
def test_unknown_image_needs_an_entry(image: str) -> None:
    with pytest.raises(ConfigError) as caught:
        release_for_image(image, None)
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("ray.image", image)
    assert "ray.release" in problem.remedy
    assert "v0.7.0" in problem.remedy


def test_entry_describes_an_image_that_the_table_lacks() -> None:
    assert release_for_image("rlstack/grpo-cpu:1.0", CPU) is CPU
    assert release_for_image("rlstack/grpo-cpu@sha256:" + "0" * 64, CPU) is CPU


def test_entry_of_another_tag_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ray\.release\.tag=1\.0: the image .*:1\.1 has the tag 1\.1"):
        release_for_image("rlstack/grpo-cpu:1.1", CPU)


def test_entry_may_not_contradict_a_known_tag() -> None:
    entry = RELEASES["v0.4.0"].model_copy(update={"ray_version": "2.54.0"})
    with pytest.raises(ConfigError, match=r"ray\.release\.ray_version=2\.54\.0: nemo-rl:v0\.4\.0 holds Ray 2\.46\.0"):
        release_for_image("nvcr.io/nvidia/nemo-rl:v0.4.0", entry)


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_dataset_key_is_one_that_the_release_has(release: Release) -> None:
    keys = release.configs[release.config_file].keys()
    assert {"data.dataset_name", "data.train.dataset_name"} & keys == {release.dataset_key}


def test_config_files_differ_where_their_models_do() -> None:
    configs = RELEASES["v0.4.0"].configs
    small, large = (configs[f"examples/configs/grpo_math_{name}.yaml"] for name in ("1B", "70B_megatron"))
    sizes = ("policy.megatron_cfg.tensor_model_parallel_size", "policy.generation.vllm_cfg.tensor_parallel_size")
    assert [small[key] for key in sizes] == [1, 1]
    assert [large[key] for key in sizes] == [4, 8]
    assert "policy.optimizer.name" in small
    assert "policy.optimizer.name" not in large


def test_no_release_saves_asynchronously() -> None:
    assert not any(release.save_is_async for release in RELEASES.values())
