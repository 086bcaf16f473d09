"""Rules about names: what just passes, and what just fails."""

import pytest

from components.config import parse_config
from jobs.errors import ConfigError
from tests.components.rules.verdicts import SETTINGS, problem_keys


@pytest.mark.parametrize("stack", ["d", "dev", "us-east1", "a" * 16])
def test_stack_names_that_fit_every_service(stack: str) -> None:
    assert problem_keys(stack, SETTINGS) == set()


@pytest.mark.parametrize("stack", ["a" * 17, "Dev", "dev_1", "1dev", "dev-", "acme.dev"])
def test_stack_names_that_some_service_would_refuse(stack: str) -> None:
    assert problem_keys(stack, SETTINGS) == {"stack"}


def test_a_long_stack_name_is_told_by_which_names_it_breaks() -> None:
    with pytest.raises(ConfigError, match="node service account would be called rlstack-aaaaaaaaaaaaaaaaa-nodes, 31"):
        parse_config("a" * 17, SETTINGS)
