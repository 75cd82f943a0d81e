"""Message TTL and backlog quotas in force: removed backlog, and refused producers."""

import pytest

from braidlog.broker.positions.backlog import limits_of
from braidlog.protocols.pulsar.machine import Type
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.log.age_clock import AgeClock
from tests.protocols.pulsar.talk import EARLIEST, NAME, TOPIC, entry

NOW_MS = 1_700_000_000_000
PRODUCE = {"topic": TOPIC, "producer_id": 5}


@pytest.fixture
async def topic(broker, client):
    """Return a topic with a subscription without acknowledgements, and a stopped clock."""
    broker.backlogs._ages = AgeClock(lambda: NOW_MS * 1000, lambda: 0)
    await client.subscribe(**EARLIEST)
    await client.produce()
    return broker.topics.get(NAME)


async def put(client, *ages_s, size=100):
    """Send messages of these ages."""
    bodies = [entry(b"x" * size, publish_time=NOW_MS - age * 1000) for age in ages_s]
    return await client.put(*bodies)


async def look(broker, topic):
    await broker.backlogs.apply(topic, limits_of(topic))


async def test_messages_older_than_the_ttl_count_as_acknowledged(broker, client, topic):
    await put(client, 100, 50, 10, 60)
    await broker.topics.alter_settings(NAME, {"message_ttl_s": 40})
    await look(broker, topic)
    subscription = broker.subscriptions.find(topic, b"s")
    # Up to the first unexpired message: 60 s come behind 10 s.
    assert subscription.position(0) == 2
    await client.flow(10)
    assert [entry_id for entry_id, _, _ in await client.take(2)] == [2, 3]
    expired = broker.metrics.number("braidlog_expired_records", NAME.full, "s")
    assert expired.value == 2


async def test_without_a_ttl_nothing_expires(broker, client, topic):
    await put(client, 10**6)
    await look(broker, topic)
    assert broker.subscriptions.find(topic, b"s").position(0) == 0


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("producer_request_hold", ServerError.ProducerBlockedQuotaExceededError),
        ("producer_exception", ServerError.ProducerBlockedQuotaExceededException),
    ],
)
async def test_a_full_backlog_refuses_producers(broker, client, topic, policy, code):
    settings = {"backlog_bytes": 400, "backlog_bytes_policy": policy}
    await broker.topics.alter_settings(NAME, settings)
    await put(client, 0)
    await look(broker, topic)
    await client.silent()
    await put(client, 0, 0, 0)
    await look(broker, topic)
    assert (await client.next(Type.CLOSE_PRODUCER)).producer_id == 0
    assert (await client.refused(Type.PRODUCER, **PRODUCE))[0] == code
    await client.ask(Type.SEEK, Type.CLOSE_CONSUMER, consumer_id=0, message_publish_time=NOW_MS * 2)
    await client.next(Type.SUCCESS)  # There is no backlog any more.
    await client.produce(TOPIC, 5)


async def test_an_old_backlog_refuses_producers(broker, client, topic):
    await broker.topics.alter_settings(NAME, {"backlog_age_s": 60})
    await put(client, 50)
    await look(broker, topic)
    await client.silent()
    broker.backlogs._ages = AgeClock(lambda: (NOW_MS + 11_000) * 1000, lambda: 0)
    await look(broker, topic)
    await client.next(Type.CLOSE_PRODUCER)
    code, _ = await client.refused(Type.PRODUCER, **PRODUCE)
    assert code == ServerError.ProducerBlockedQuotaExceededError
    broker.subscriptions.find(topic, b"s").commit(0, 1)
    await look(broker, topic)
    await client.produce(TOPIC, 5)


async def test_eviction_moves_the_slowest_subscription_as_little_as_needed(broker, client, topic):
    for _ in range(20):
        await put(client, 0, size=1000)
    partition = topic.partitions[0]
    settings = {"backlog_bytes": 10_000, "backlog_bytes_policy": "consumer_backlog_eviction"}
    await broker.topics.alter_settings(NAME, settings)
    await look(broker, topic)
    position = broker.subscriptions.find(topic, b"s").position(0)
    left = partition.bytes_between(position, partition.next_offset)
    assert left <= 9_000 < partition.bytes_between(position - 1, partition.next_offset)
    await client.silent()  # The producer stays.
    age = {"backlog_age_s": 60, "backlog_age_policy": "consumer_backlog_eviction"}
    await broker.topics.alter_settings(NAME, age)
    broker.backlogs._ages = AgeClock(lambda: (NOW_MS + 61_000) * 1000, lambda: 0)
    await look(broker, topic)
    assert broker.subscriptions.find(topic, b"s").position(0) == partition.next_offset


async def test_without_subscriptions_there_is_no_backlog(broker, client):
    await client.produce()
    await client.put(entry(b"x" * 10_000))
    await broker.topics.alter_settings(NAME, {"backlog_bytes": 1})
    await client.produce(TOPIC, 5)
