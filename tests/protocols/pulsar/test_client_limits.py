"""Limits of a topic's settings in force: the next client gets Apache's error."""

import pytest
import trio

from braidlog.broker.topics.topic_setting import NO_LIMIT
from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from tests.protocols.pulsar.talk import EARLIEST, NAME, TOPIC, entry

SHARED = {"subType": 1}


@pytest.fixture
def limit(broker, client):
    async def limit(**settings):
        if broker.topics.find(NAME) is None:
            await broker.topics.create(NAME, 1)
        await broker.topics.alter_settings(NAME, settings)

    return limit


async def test_producers_of_a_topic_are_limited(client, other, limit):
    await limit(producers_max=1)
    await client.produce()
    refused = await other.refused(Type.PRODUCER, topic=TOPIC, producer_id=5)
    text = f"Topic '{TOPIC}' reached max producers limit"
    assert refused == (ServerError.ProducerBusy, text)
    await limit(producers_max=None)
    await other.produce()


async def test_consumers_of_a_subscription_are_limited(client, other, limit):
    await limit(subscription_consumers_max=1)
    await client.subscribe(**SHARED)
    subscribe = {"topic": TOPIC, "subscription": "s", "consumer_id": 1, **SHARED}
    refused = await other.refused(Type.SUBSCRIBE, **subscribe)
    assert refused == (ServerError.ConsumerBusy, "Subscription reached max consumers limit")
    await other.subscribe(subscription="another", **SHARED)


async def test_consumers_of_a_topic_are_limited_over_all_subscriptions(client, other, limit):
    await limit(consumers_max=1)
    await client.subscribe(**SHARED)
    subscribe = {"topic": TOPIC, "subscription": "another", "consumer_id": 1, "subType": 1}
    refused = await other.refused(Type.SUBSCRIBE, **subscribe)
    assert refused == (ServerError.ConsumerBusy, "Topic reached max consumers limit")


async def test_subscriptions_of_a_topic_are_limited(client, other, limit):
    await limit(subscriptions_max=1)
    await client.subscribe(**SHARED)
    await other.subscribe(**SHARED)
    subscribe = {"topic": TOPIC, "subscription": "another", "consumer_id": 1, "subType": 1}
    code, text = await other.refused(Type.SUBSCRIBE, **subscribe)
    assert code == ServerError.NotAllowedError
    assert text == f"Exceed the maximum number of subscriptions of the topic: {TOPIC}"


async def test_a_consumer_subscribes_as_often_as_the_rate_allows(client, limit):
    await limit(subscribe_rate=2, subscribe_rate_period_s=3600)
    for _ in range(2):
        await client.subscribe(**SHARED)
        await client.ask(Type.CLOSE_CONSUMER, Type.SUCCESS, consumer_id=0)
    subscribe = {"topic": TOPIC, "subscription": "s", "consumer_id": 0, **SHARED}
    code, text = await client.refused(Type.SUBSCRIBE, **subscribe)
    assert code == ServerError.NotAllowedError
    assert text == "Subscribe limited by subscribe rate limit per consumer."


async def test_a_larger_message_is_refused_and_the_next_stored(client, limit):
    await limit(message_bytes_max=200)
    await client.produce()
    large, small = entry(b"x" * 300), entry(b"x" * 50)
    await client.send(Type.SEND, large, producer_id=0, sequence_id=0)
    assert (await client.next(Type.SEND_ERROR)).message == "Exceed maximum message size"
    assert await client.put(small, small, sequence_id=1) == [0, 1]
    await limit(message_bytes_max=NO_LIMIT)
    assert await client.put(large, sequence_id=3) == [2]


async def test_unacknowledged_messages_of_a_consumer_are_limited(client, limit):
    await limit(unacked_consumer_max=3)
    await client.produce()
    await client.put(*[entry(b"x")] * 10)
    await client.subscribe(permits=100, **EARLIEST, **SHARED)
    assert len(await client.take(3)) == 3
    await client.silent()
    await limit(unacked_consumer_max=6)
    assert len(await client.take(3)) == 3
    await client.silent()


async def test_a_publish_rate_makes_the_client_wait(client, limit):
    await limit(publish_rate_messages=200)
    await client.produce()
    began = trio.current_time()
    await client.put(*[entry(b"x")] * 130)  # Half a second's messages, and 30 more.
    await client.silent()  # Answered when the broker reads the client again.
    assert trio.current_time() - began >= 30 / 200 - 0.01


async def test_only_the_enabled_kinds_of_subscription_are_served(client, limit):
    await limit(subscription_types="Failover,Exclusive")
    subscribe = {"topic": TOPIC, "subscription": "s", "consumer_id": 1, **SHARED}
    code, text = await client.refused(Type.SUBSCRIBE, **subscribe)
    assert code == ServerError.NotAllowedError and "doesn't support Shared sub type" in text
    await client.subscribe()


async def test_a_consumer_creates_no_subscription_where_that_is_off(client, broker, limit):
    await limit(auto_subscription_creation=False)
    subscribe = {"topic": TOPIC, "subscription": "s", "consumer_id": 1, **SHARED}
    code, _ = await client.refused(Type.SUBSCRIBE, **subscribe)
    assert code == ServerError.SubscriptionNotFound
    broker.subscriptions.open(broker.topics.get(NAME), b"s").start(0, 0)
    await client.subscribe(**SHARED)


async def test_a_producer_without_schema_is_refused_where_schemas_are_needed(client, limit):
    await limit(schema_required=True)
    schema = {"name": "s", "schema_data": b"", "type": 1}
    await client.produce()
    await client.produce(producer_id=1, schema=schema)
    code, _ = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=2)
    assert code == ServerError.IncompatibleSchema


async def test_a_producer_adds_no_schema_where_that_is_off(client, limit):
    await limit(schema_auto_update=False)
    schema = {"name": "s", "schema_data": b"", "type": 1}
    refused = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=2, schema=schema)
    text = "Schema not found and schema auto updating is disabled."
    assert refused == (ServerError.IncompatibleSchema, text)


async def test_only_encrypted_messages_are_stored_where_encryption_is_needed(client, limit):
    await limit(encryption_required=True)
    refused = await client.refused(Type.PRODUCER, topic=TOPIC, producer_id=2)
    assert refused == (ServerError.MetadataError, f"Encryption is required in {TOPIC}")
    await client.produce(encrypted=True)
    await client.send(Type.SEND, entry(b"x"), producer_id=0, sequence_id=0)
    assert (await client.next(Type.SEND_ERROR)).message == "Messages must be encrypted"


async def test_a_message_with_a_long_delay_is_refused(client, broker, limit):
    await limit(delayed_delivery_max_ms=60_000)
    await client.produce()
    now_ms = broker.now_us() // 1000
    late = entry(b"x", deliver_at_time=now_ms + 3_600_000)
    await client.send(Type.SEND, late, producer_id=0, sequence_id=0)
    assert "max allowed delivery delay" in (await client.next(Type.SEND_ERROR)).message
    assert await client.put(entry(b"x", deliver_at_time=now_ms), sequence_id=1) == [0]


async def test_messages_are_not_delayed_where_that_is_off(client, broker, limit):
    await limit(delayed_delivery=False)
    await client.produce()
    due_ms = broker.now_us() // 1000 + 3_600_000
    await client.put(entry(b"x", deliver_at_time=due_ms))
    await client.subscribe(permits=5, **EARLIEST, **SHARED)
    assert len(await client.take(1)) == 1
