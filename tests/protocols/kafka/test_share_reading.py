"""Records of a queue for members of share groups: the times at which they may be delivered."""

from pathlib import Path

import pytest
import trio

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.broker.delivery.delivery_times import HEADER
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.broker.reading.records import read_records
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import DEAD_LETTERS, DELIVERIES
from braidlog.protocols.kafka.share_reading import PASSED_BYTES_MAX
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from braidlog.protocols.kafka.wire.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.record import Header, Record
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import AllBut
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.protocols.kafka.forms import MetadataRequest
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME, foreign_append, second_client
from tests.protocols.kafka.test_classic_groups import GROUP
from tests.protocols.kafka.test_share_fetch import ack, acquired, fetch, set_config

HOUR_US = 3_600_000_000
TOPIC = 2  # Kafka's type of a resource.
DELIVER_AT = "braidlog.deliver_at.header.enable"


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


# The header `braidlog.deliver_at`.


async def set_of_topic(client: RawKafka, name: str, value: str) -> int:
    resource = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=FOO,
        configs=[AlterableConfig(name=name.encode(), value=value.encode())],
    )
    reply = await client.call_whole(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return reply.responses[0].error_code


def append_headed(broker: Broker, *due_ms: int | bytes) -> None:
    """Append a batch as Kafka's producers do, with a header for each record; 0: no header."""
    partition = broker.topics.all()[0].partitions[0]
    values = [b"%d" % due if isinstance(due, int) else due for due in due_ms]
    records = [
        Record(at, 0, 1000, value=b"x", headers=[Header(HEADER, value)] if value != b"0" else ())
        for at, value in enumerate(values)
    ]
    encoded = KAFKA_BATCHES.encode(records, partition.next_offset)
    info = KAFKA_BATCHES.inspect(encoded)
    partition.append([encoded], info, body_format=KAFKA_BATCHES.format, append_us=broker.now_us())


async def test_the_header_delays_single_records_of_a_batch(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    assert await set_of_topic(client, DELIVER_AT, "true") == 0
    later_ms = broker.now_us() // 1000 + 3_600_000
    append_headed(broker, 0, later_ms, 1, later_ms + 1, b"-1", b"1" * 16, b"soon")
    await broker.durability.all_durable()
    reply = await client.call_whole(fetch(topic_id, 0), 2)
    assert acquired(reply) == [(0, 0, 1), (2, 2, 1), (4, 6, 1)]
    assert queue_of(broker).delayed == 2
    assert await set_of_topic(client, DELIVER_AT, "false") == 0
    reply = await client.call_whole(fetch(topic_id, 1, wait=60_000), 2)
    assert acquired(reply) == [(0, 0, 2), (1, 1, 1), (2, 2, 2), (3, 3, 1), (4, 6, 2)]


async def test_without_the_setting_no_record_waits_for_its_header(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    append_headed(broker, broker.now_us() // 1000 + 3_600_000)
    await broker.durability.all_durable()
    assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == [(0, 0, 1)]


async def test_a_record_with_the_header_comes_in_time(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    assert await set_of_topic(client, DELIVER_AT, "true") == 0
    assert acquired(await client.call_whole(fetch(topic_id, 0), 2)) == []
    due_ms = broker.now_us() // 1000 + 300
    append_headed(broker, due_ms)
    reply = await client.call_whole(fetch(topic_id, 1, wait=60_000), 2)
    assert acquired(reply) == [(0, 0, 1)] and broker.now_us() // 1000 >= due_ms


async def test_delays_of_headers_hold_after_a_restart(tmp_path: Path) -> None:
    for count in (1, 2):
        async with opened_broker(tmp_path, {}) as broker, open_listeners(broker) as connect:
            client = await second_client(connect)
            await client.call(MetadataRequest([FOO]))
            if count == 1:
                assert await set_config(client, b"share.auto.offset.reset", b"earliest") == 0
                assert await set_of_topic(client, DELIVER_AT, "true") == 0
                append_headed(broker, broker.now_us() // 1000 + 3_600_000, 0)
                await broker.durability.all_durable()
            topic_id = id_of(broker.topics.all()[0])
            reply = await client.call_whole(fetch(topic_id, 0), 2)
            assert acquired(reply) == [(1, 1, count)]
            assert queue_of(broker).delayed == 1


# The dead letter topic and the limit of deliveries of a topic.


async def letters_in(broker: Broker, name: str, count: int) -> list[Record]:
    """Wait for so many records of a dead letter topic."""
    partition = broker.topics.get(TopicName("public", "default", name)).partitions[0]
    while partition.high_watermark < count:
        await broker.durability.all_durable()
        await trio.lowlevel.checkpoint()
    read = await read_records(partition, 0, bytes_max=1 << 20, records_max=100)
    return [placed.record for placed in read.records]


async def test_a_topic_names_the_dead_letters_and_the_limit_of_its_queues(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    await client.call(MetadataRequest([b"dead", b"other"]))
    assert await set_of_topic(client, DEAD_LETTERS, "dead") == 0
    assert await set_of_topic(client, DELIVERIES, "2") == 0
    await append(broker, (4, 0))
    assert acquired(await client.call_whole(fetch(topic_id, 0, records=2), 2)) == [(0, 1, 1)]
    assert await ack(client, topic_id, 1, (0, 0, [3]), (1, 1, [2])) == 0  # Reject, release.
    assert acquired(await client.call_whole(fetch(topic_id, 2, records=1), 2)) == [(1, 1, 2)]
    assert await ack(client, topic_id, 3, (1, 1, [2])) == 0
    letters = await letters_in(broker, "dead", 2)
    origins = [
        {header.name: header.value for header in letter.headers}[b"ORIGIN_MESSAGE_ID"]
        for letter in letters
    ]
    number = broker.topics.get(FOO_NAME).partitions[0].partition_id
    assert origins == [b"%d:%d:-1" % (number, offset) for offset in range(2)]
    # The settings count from the next fetch on, and those of the group go first.
    assert await set_of_topic(client, DEAD_LETTERS, "other") == 0
    assert acquired(await client.call_whole(fetch(topic_id, 4, records=1), 2)) == [(2, 2, 1)]
    assert await ack(client, topic_id, 5, (2, 2, [3])) == 0
    assert len(await letters_in(broker, "other", 1)) == 1
    assert await set_config(client, DEAD_LETTERS.encode(), b"dead") == 0
    assert await set_config(client, DELIVERIES.encode(), b"3") == 0
    assert await set_of_topic(client, DELIVERIES, "4") == 0
    await client.call_whole(fetch(topic_id, 6, records=1), 2)
    limits = queue_of(broker).share_limits
    assert (str(limits.dead_letters), limits.deliveries_max) == ("public/default/dead", 3)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("errors.deadletterqueue.topic.name", "missing", Code.INVALID_CONFIG),
        ("errors.deadletterqueue.topic.name", "foo", Code.INVALID_CONFIG),
        ("errors.deadletterqueue.topic.name", "a/b", Code.INVALID_CONFIG),
        ("share.delivery.count.limit", "1", Code.INVALID_CONFIG),
        ("share.delivery.count.limit", "11", Code.INVALID_CONFIG),
        ("share.delivery.count.limit", "many", Code.INVALID_CONFIG),
        ("braidlog.deliver_at.header.enable", "maybe", Code.INVALID_CONFIG),
        ("errors.deadletterqueue.topic.name", "", Code.NONE),
        ("share.delivery.count.limit", "10", Code.NONE),
    ],
)
async def test_values_of_the_settings_are_checked(
    client: RawKafka, topic_id: bytes, name: str, value: str, code: Code
) -> None:
    assert await set_of_topic(client, name, value) == code


async def test_dead_letters_of_a_topic_need_the_right_to_produce_there(
    broker: Broker, client: RawKafka, topic_id: bytes
) -> None:
    await client.call(MetadataRequest([b"dead"]))
    broker.access = Access(AllBut(Action.PRODUCE))
    for name in ("dead", "missing"):  # The refusal does not tell whether the topic exists.
        assert await set_of_topic(client, DEAD_LETTERS, name) == Code.TOPIC_AUTHORIZATION_FAILED
        wanted = CreatableTopic(
            name=b"new",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=DEAD_LETTERS.encode(), value=name.encode())],
        )
        reply = await client.call_whole(CreateTopicsRequest(topics=[wanted]), 5)
        assert reply.topics[0].error_code == Code.TOPIC_AUTHORIZATION_FAILED
