import pytest

from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call

ORDERS = TopicName("public", "default", "orders")
BASE = "/topics/public/default/orders"
NOW_US = 1_795_228_435_964_123


@pytest.fixture
async def orders(broker):
    """Return a topic of two partitions, with ledgers 1 and 2, and a stopped clock."""
    broker.now_us = lambda: NOW_US
    return await broker.topics.create(ORDERS, 2)


@pytest.fixture
def ask(app):
    """Return `ask`: `await ask(method, path, body)` sends a request."""

    async def ask(method, path, body=None, **options):
        return await call(app, method, path, body, **options)

    return ask


def consumer_of(app, identity):
    """Return the consumer of that id, or None."""
    return next((one for one in app.consumers if one.id == identity), None)
