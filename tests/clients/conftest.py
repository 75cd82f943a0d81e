"""What the tests of client libraries share."""

import pytest

from tests.clients.secured import opened


@pytest.fixture(scope="session")
def secured(tmp_path_factory):
    """A broker that asks who its clients are, for all modules."""
    yield from opened(tmp_path_factory.mktemp("secured"))
