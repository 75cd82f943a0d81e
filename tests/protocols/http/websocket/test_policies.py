"""The settings of a topic hold for WebSocket clients as for clients of the binary protocol."""

import json

import pytest
import trio
import trio.testing

from braidlog.storage.metadata.catalogue_records import SchemaMeta
from conformance.clients.raw.websocket import UpgradeRefused
from tests.protocols.http.conftest import listener
from tests.protocols.http.websocket.test_socket import (
    CONSUMER,
    HELLO,
    ORDERS,
    PRODUCER,
    READER,
    counted,
    dial,
    exchange,
)

__all__ = ["counted", "dial", "listener"]
SHARED = CONSUMER + "?subscriptionType=Shared"
OTHER = CONSUMER + "2?subscriptionType=Shared"
TOPIC = "persistent://public/default/orders"


@pytest.fixture
def limit(broker):
    async def limit(**settings):
        if broker.topics.find(ORDERS) is None:
            await broker.topics.create(ORDERS, 1)
        await broker.topics.alter_settings(ORDERS, settings)
        return broker.topics.get(ORDERS)

    return limit


@pytest.fixture
def refused(dial):
    async def refused(path):
        with pytest.raises(UpgradeRefused) as caught:
            await dial(path)
        return caught.value.status, json.loads(caught.value.body)["reason"]

    return refused


async def test_producers_of_a_topic_are_limited(dial, refused, limit):
    await limit(producers_max=1)
    await dial(PRODUCER)
    status, text = await refused(PRODUCER)
    assert status == 409 and f"Topic '{TOPIC}' reached max producers limit" in text


@pytest.mark.parametrize(
    ("setting", "paths", "reason"),
    [
        ("consumers_max", (SHARED, OTHER), "Topic reached max consumers limit"),
        ("consumers_max", (SHARED, READER), "Topic reached max consumers limit"),
        ("subscription_consumers_max", (SHARED,) * 2, "Subscription reached max consumers limit"),
    ],
)
async def test_consumers_are_limited(dial, refused, limit, setting, paths, reason):
    await limit(**{setting: 1})
    await dial(paths[0])
    status, text = await refused(paths[1])
    assert status == 409 and reason in text


async def test_subscriptions_of_a_topic_are_limited(dial, refused, limit):
    await limit(subscriptions_max=1)
    await dial(SHARED)
    status, text = await refused(OTHER)
    assert status == 412 and "Exceed the maximum number of subscriptions" in text


async def test_only_the_enabled_kinds_of_subscription_are_served(dial, refused, limit):
    await limit(subscription_types="Shared")
    for path in (CONSUMER, READER):
        status, text = await refused(path)
        assert status == 412 and "doesn't support Exclusive sub type" in text
    await dial(SHARED)


async def test_consumer_creates_no_subscription_where_that_is_off(dial, broker, refused, limit):
    topic = await limit(auto_subscription_creation=False)
    status, text = await refused(CONSUMER)
    assert status == 404 and "Subscription does not exist" in text
    assert broker.subscriptions.find(topic, b"s") is None
    await dial(READER)
    broker.subscriptions.open(topic, b"s").start(0, 0)
    await dial(CONSUMER)


async def test_named_consumer_subscribes_as_often_as_the_rate_allows(dial, refused, limit):
    await limit(subscribe_rate=1, subscribe_rate_period_s=3600)
    await dial(SHARED + "&consumerName=c")
    status, text = await refused(SHARED + "&consumerName=c")
    assert status == 412 and "Subscribe limited by subscribe rate limit per consumer." in text


async def test_producer_waits_for_the_publish_rate(dial, limit):
    topic = await limit(publish_rate_bytes=1)
    producer = await dial(PRODUCER)
    await exchange(producer, json.dumps({"payload": "eHh4" * 10}))
    producer.send(HELLO)
    producer.send(HELLO)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert topic.partitions[0].high_watermark == 1


async def test_larger_message_is_refused_and_the_next_stored(dial, limit):
    await limit(message_bytes_max=10)
    producer = await dial(PRODUCER)
    large = {"payload": "eHh4", "properties": {"name": "value"}, "context": "1"}
    answer = await exchange(producer, json.dumps(large))
    assert (answer["result"], answer["context"]) == ("send-error:8", "1")
    assert answer["errorMsg"] == "Exceed maximum message size"
    assert (await exchange(producer, HELLO))["result"] == "ok"


async def test_message_with_a_long_delay_is_refused(dial, limit):
    await limit(delayed_delivery_max_ms=60_000)
    producer = await dial(PRODUCER)
    late = json.dumps({"payload": "eHh4", "deliverAfterMs": 3_600_000})
    answer = await exchange(producer, late)
    assert answer["result"] == "send-error:8"
    assert "max allowed delivery delay" in answer["errorMsg"]


async def test_producer_is_refused_where_encryption_is_required(refused, limit):
    await limit(encryption_required=True)
    status, text = await refused(PRODUCER)
    assert status == 412 and f"Encryption is required in {TOPIC}" in text


async def test_producer_is_refused_where_schemas_are_needed(dial, broker, refused, limit):
    topic = await limit(schema_required=True)
    await dial(PRODUCER)
    broker.schemas.add(topic, SchemaMeta(1, "s", b"", {}))
    status, text = await refused(PRODUCER)
    assert status == 409 and "without a schema to topics with a schema" in text


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
async def test_full_backlog_refuses_producers(dial, broker, refused, limit, policy):
    topic = await limit()
    broker.subscriptions.open(topic, b"s").start(0, 0)
    await exchange(await dial(PRODUCER), HELLO)
    await limit(backlog_bytes=1, backlog_bytes_policy=policy)
    status, text = await refused(PRODUCER)
    assert status == 503 and "Cannot create producer on topic with backlog quota exceeded" in text


async def test_priority_reaches_delivery(dial, broker):
    await dial(SHARED + "&priorityLevel=3")
    (partition,) = broker.topics.get(ORDERS).partitions
    assert [item.priority for item in broker.dispatchers.find(partition, b"s").consumers] == [3]


async def test_refused_consumer_leaves_no_dispatcher(dial, broker, refused, limit):
    topic = await limit(consumers_max=1)
    await dial(SHARED)
    await refused(OTHER)
    assert broker.dispatchers.find(topic.partitions[0], b"s2") is None
