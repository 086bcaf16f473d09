"""What the tests of the program share: the shipped stacks, run once each against recorded providers."""

import sys

import pytest
from google.rpc import status_pb2

# Pulumi's provider and Google's libraries bring one message under two file names, and protobuf takes but one into a
# process. No command loads both; the tests do.
sys.modules["pulumi.runtime.proto.status_pb2"] = status_pb2

from tests.program import Run, run_program, stack_settings  # noqa: E402


@pytest.fixture(scope="session")
def dev_run() -> Run:
    """The cloud stack, with both secrets set."""
    return run_program("dev", stack_settings("dev"), {"hf_token": "hf_canary", "wandb_api_key": "wandb_canary"})


@pytest.fixture(scope="session")
def local_run() -> Run:
    """The stack of one machine, without secrets."""
    return run_program("local", stack_settings("local"))


@pytest.fixture(scope="session", params=["dev", "local"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each shipped stack in turn."""
    shipped: Run = request.getfixturevalue(f"{request.param}_run")
    return shipped


def pytest_configure(config: pytest.Config) -> None:
    """Let pass what importing the generated SDK warns about: deprecated classes that this project does not use."""
    config.addinivalue_line("filterwarnings", r"ignore:gcp\..* has been deprecated:DeprecationWarning:pulumi_gcp\..*")
