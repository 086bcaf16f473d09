"""Servers that answer as Google's APIs and the hub do; no test asks Google for what its documents do not know."""

from collections.abc import Iterator

import pytest

from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.hub_server import HubServer
from tests.jobs.preflight.project import make_ready


@pytest.fixture
def google() -> Iterator[GoogleServer]:
    """A project that is ready for the codelab's stack."""
    server = GoogleServer()
    make_ready(server)
    try:
        yield server
    finally:
        server.close()
    assert server.strangers == []


@pytest.fixture
def hub_server() -> Iterator[HubServer]:
    """A hub on which everything is public."""
    server = HubServer()
    try:
        yield server
    finally:
        server.close()
