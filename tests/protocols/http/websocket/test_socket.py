"""Openings, logins, limits and endings, over a socket."""

import json

import pytest
import trio

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.options import RestOptions
from braidlog.storage.metadata.names import TopicName
from conformance.clients.raw.websocket import Closed, UpgradeRefused, WebSocketClient
from tests.broker.access.rules import Nothing
from tests.protocols.http.asgi import call
from tests.protocols.http.conftest import listener

__all__ = ["listener"]
PRODUCER = "/ws/v2/producer/persistent/public/default/orders"
CONSUMER = "/ws/v2/consumer/persistent/public/default/orders/s"
READER = "/ws/v2/reader/persistent/public/default/orders?messageId=earliest"
ORDERS = TopicName("public", "default", "orders")
HELLO = json.dumps({"payload": "aGk="})


@pytest.fixture
def counted(broker):
    return broker


@pytest.fixture
def dial(listener):
    (host, port), *_ = listener
    clients = []

    async def dial(target, headers=None):
        work = WebSocketClient, f"http://{host}:{port}", target, headers
        clients.append(await trio.to_thread.run_sync(*work))
        return clients[-1]

    yield dial
    for client in clients:
        client.close()


async def exchange(client, text):
    client.send(text)
    return json.loads(await trio.to_thread.run_sync(client.receive))


async def received(client):
    return await trio.to_thread.run_sync(client.receive)


@pytest.mark.parametrize("path", [PRODUCER, CONSUMER, READER])
async def test_plain_request_is_refused(app, path):
    answer = await call(app, "GET", path)
    assert (answer.status, answer.json["code"]) == (400, "bad_request")


async def test_message_goes_from_producer_to_consumer_and_reader(dial):
    consumer, producer = await dial(CONSUMER), await dial(PRODUCER)
    stored = await exchange(producer, HELLO)
    message = json.loads(await received(consumer))
    assert (message["messageId"], message["payload"]) == (stored["messageId"], "aGk=")
    reader = await dial(READER)
    assert json.loads(await received(reader)) == message


@pytest.mark.slow
async def test_consumer_that_left_gives_way_to_the_next(dial):
    for number in range(3):
        client = await dial(CONSUMER)
        if number % 2:
            client.close()
        client.sock.close()  # Without a close frame.
    first = await dial(CONSUMER)
    first.send('{"type":"isEndOfTopic"}')  # The client reads nothing, but is there.
    with pytest.raises(UpgradeRefused) as caught:
        await dial(CONSUMER)
    assert caught.value.status == 409


@pytest.mark.slow
async def test_messages_are_stored_once_for_all_protocols(dial, broker):
    consumer, producer = await dial(CONSUMER), await dial(PRODUCER + "?producerName=p")
    await exchange(producer, HELLO)
    message = json.loads(await received(consumer))
    topic = broker.topics.find(ORDERS)
    subscription = broker.subscriptions.get(topic, b"s")
    assert subscription.backlog(0) == 1
    await exchange(consumer, '{"type":"isEndOfTopic"}')
    consumer.send(json.dumps({"messageId": message["messageId"]}))
    await exchange(consumer, '{"type":"isEndOfTopic"}')
    assert subscription.backlog(0) == 0
    (publisher,) = broker.shown_producers.of(topic.partitions[0].partition_id)
    assert publisher.name == "p"


async def test_stopping_listener_says_goodbye(dial, listener):
    client = await dial(CONSUMER)
    listener[1].set()
    with pytest.raises(Closed) as caught:
        await received(client)
    assert caught.value.code == 1001


async def test_lost_permission_closes_the_connection(dial, broker):
    client = await dial(PRODUCER)
    broker.access = Access(Nothing())
    with pytest.raises(Closed) as caught:
        await exchange(client, HELLO)
    assert caught.value.code == 1008


@pytest.mark.parametrize("path", [PRODUCER, CONSUMER, READER])
async def test_refused_client_creates_no_topic(dial, broker, path):
    broker.access = Access(Nothing(Action.PRODUCE, Action.CONSUME))
    with pytest.raises(UpgradeRefused) as caught:
        await dial(path)
    assert caught.value.status == 403
    assert broker.topics.find(ORDERS) is None


async def test_dead_letter_topic_needs_the_permission_of_a_producer(dial, broker):
    await dial(PRODUCER)
    broker.access = Access(Nothing(Action.CONSUME, Action.CREATE))
    with pytest.raises(UpgradeRefused) as caught:
        await dial(CONSUMER + "?subscriptionType=Shared&maxRedeliverCount=1")
    assert caught.value.status == 403
    await dial(CONSUMER)


async def test_number_of_connections_is_limited(broker):
    app = make_app(broker, RestOptions(websockets_max=0), broker.stopping)
    scope = {"extensions": {"braidlog.websocket": ""}}
    answer = await call(Extended(app, scope), "GET", PRODUCER)
    assert (answer.status, answer.json["code"]) == (429, "limit_exceeded")


class Extended:
    """An application whose requests have more in their scope."""

    def __init__(self, app, more):
        self.app = app
        self.more = more

    async def __call__(self, scope, receive, send):
        await self.app({**scope, **self.more}, receive, send)


async def test_deleted_topic_ends_its_connections(dial, broker):
    clients = [await dial(path) for path in (PRODUCER, CONSUMER, READER)]
    await broker.topics.delete(ORDERS)
    for client in clients:
        with pytest.raises(Closed):
            await received(client)
