"""Records of a queue for members of share groups: the times at which they may be delivered."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.protocols.kafka.share_reading import PASSED_BYTES_MAX
from braidlog.protocols.kafka.topic_ids import id_of
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import foreign_append
from tests.protocols.kafka.test_classic_groups import GROUP
from tests.protocols.kafka.test_share_fetch import ack, acquired, fetch, set_config

HOUR_US = 3_600_000_000


@pytest.fixture
async def topic_id(broker: Broker, client: RawKafka) -> bytes:
    assert await set_config(client, b"share.auto.offset.reset", b"earliest") == 0
    return id_of(broker.topics.all()[0])


async def append(broker: Broker, *batches: tuple[int, int]) -> None:
    """Append batches, each a number of records and a delay in microseconds; 0: none."""
    for count, delay_us in batches:
        due_us = broker.now_us() + delay_us if delay_us else None
        foreign_append(broker, "foo", [b"x"] * count, due_us)
    await broker.durability.all_durable()


def queue_of(broker: Broker) -> QueueDispatcher:
    dispatcher = broker.dispatchers.find(broker.topics.all()[0].partitions[0], GROUP)
    assert isinstance(dispatcher, QueueDispatcher)
    return dispatcher


async def test_a_member_gets_the_records_between_delayed_records(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    await append(broker, (2, HOUR_US), (1, 0), (3, HOUR_US), (2, 0))
    reply = await client.call_whole(fetch(topic_id, 0), 2)
    assert acquired(reply) == [(2, 2, 1), (6, 7, 1)]
    assert queue_of(broker).delayed == 5
    assert await ack(client, topic_id, 1, (2, 2, [1]), (6, 7, [1])) == 0
    assert acquired(await client.call_whole(fetch(topic_id, 2), 2)) == []
    subscription = broker.subscriptions.get(broker.topics.all()[0], GROUP)
    assert (subscription.position(0), list(subscription.acked(0))) == (0, [(2, 3), (6, 8)])


async def test_a_fetch_that_waits_gets_a_delayed_record_in_time(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == []
    due_us = broker.now_us() + 300_000
    foreign_append(broker, "foo", [b"late"], due_us)
    reply = await client.call_whole(fetch(topic_id, 1, wait=60_000), 2)
    assert acquired(reply) == [(0, 0, 1)] and broker.now_us() >= due_us


async def test_delays_are_known_again_after_the_members_have_left(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    await append(broker, (2, HOUR_US), (1, 0))
    for count in (1, 2):
        assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == [(2, 2, count)]
        queue = queue_of(broker)
        assert queue.delayed == 2
        await client.call_whole(fetch(topic_id, -1), 2)
        assert queue.consumers == []


async def test_a_fetch_passes_a_limited_number_of_delayed_records(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    value, count = b"x" * (1 << 20), 3 * PASSED_BYTES_MAX // (2 << 20)
    due_us = broker.now_us() + HOUR_US
    for _ in range(count):
        foreign_append(broker, "foo", [value], due_us)
    await append(broker, (1, 0))
    assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == []
    assert queue_of(broker).delayed == PASSED_BYTES_MAX >> 20
    assert acquired(await client.call_whole(fetch(topic_id, 1), 2)) == [(count, count, 1)]
    assert queue_of(broker).delayed == count
