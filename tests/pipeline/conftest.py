"""What the tests of the pipeline share: the cloud's stack, up once on a twin without Ray."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.pipeline.twin_session import TwinSession, twin_session


@pytest.fixture(scope="session")
def dev_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinSession]:
    """A twin for stack dev, with a token. A test brings it up if need be, and leaves it whole or takes it down."""
    with twin_session(tmp_path_factory.mktemp("dev"), speed="0", stack="dev") as session:
        subprocess.run(
            [sys.executable, "-m", "twin", "secret", "hf_token", "--stack", "dev"],
            cwd=session.settings, env=session.environment(), input="first", text=True, check=True, capture_output=True,
        )  # fmt: skip
        yield session
