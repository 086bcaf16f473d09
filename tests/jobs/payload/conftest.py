"""The nodes that most runs have."""

import pytest

from tests.jobs.payload.supervised import Nodes


@pytest.fixture
def nodes() -> Nodes:
    return Nodes("a", "b")
