import pytest

from protocols.rest.adapter import RestOptions
from protocols.rest.app import make_app


@pytest.fixture
def app(broker):
    """The application of the HTTP listener over `broker`."""
    return make_app(broker, RestOptions(), broker.stopping)
