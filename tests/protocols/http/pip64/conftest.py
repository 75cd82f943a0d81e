import pytest

from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call

ORDERS = TopicName("public", "default", "orders")
BASE = "/topics/public/default/orders"
SUBSCRIPTION = f"{BASE}/subscription/billing"
EARLIEST = {"initial_position": "Earliest"}
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
    return next((consumer for consumer in app.consumers if consumer.id == identity), None)


@pytest.fixture
def create(orders, ask):
    """Return `create`: `await create(name, ...)` returns the path of the consumer's messages."""

    async def create(name="w1", **fields):
        answer = await ask("POST", SUBSCRIPTION, {"name": name, **EARLIEST, **fields})
        assert answer.status == 201, answer.body
        return f"{SUBSCRIPTION}/consumer/{answer.json['id']}/messages"

    return create
