import pytest

from protocols.rest.app import make_app
from protocols.rest.options import RestOptions


@pytest.fixture
def app(request, broker):
    """The application of the HTTP listener over `broker`; options by indirect parameters."""
    return make_app(broker, RestOptions(**getattr(request, "param", {})), broker.stopping)
