"""A broker for the tests of a file, a client of the broker, and a fresh topic name."""

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.server import RunningBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture(scope="module")
def url(broker: RunningBroker) -> str:
    return f"pulsar://{broker.addresses['pulsar']}"


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    from tests.clients.pulsar.kit import new_client  # Not without the library.

    connected = new_client(url)
    yield connected
    connected.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    module = request.module.__name__.rsplit(".", 1)[1]
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{module}-{name}"[:200]
