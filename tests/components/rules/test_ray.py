"""Rules about ray: what just passes, and what just fails."""

import pytest

from tests.components.rules.verdicts import refused


@pytest.mark.parametrize(("version", "keys"), [("2.46.0", set()), ("2.54.0", {"ray.ray_version"})])
def test_a_stated_ray_version_is_that_of_the_image(version: str, keys: set[str]) -> None:
    assert refused(ray__ray_version=version) == keys


def test_an_unknown_image_needs_a_release_entry() -> None:
    assert refused(ray__image="example.com/own/trainer:7") == {"ray.image"}
    release = {"tag": "7", "ray_version": "2.46.0", "entry_script": "run.py", "config_file": "grpo.yaml"}
    assert refused(ray__image="example.com/own/trainer:7", ray__release=release) == set()
