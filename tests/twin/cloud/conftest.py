"""What the tests of the simulated cloud share."""

from pathlib import Path

import pytest

from tests.twin.cloud.project import Project
from twin.state import TwinState


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project on the fast clock."""
    return Project(TwinState(tmp_path))
