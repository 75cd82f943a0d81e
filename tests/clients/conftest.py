"""Shared fixtures of the tests of client libraries."""

import pytest

from tests.clients.secured import opened


@pytest.fixture(scope="session")
def secured(tmp_path_factory):
    """A broker with authentication, shared by all modules."""
    yield from opened(tmp_path_factory.mktemp("secured"))
