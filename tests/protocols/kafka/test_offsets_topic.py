"""The topic `__consumer_offsets`: the newest position of each group and partition, as records."""

import struct
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import ConfigError
from braidlog.protocols.kafka.adapter import ADAPTER
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.offsets_topic import NAME, RECORDS_MAX, TOPIC_ID
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from braidlog.protocols.kafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.protocols.kafka.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES, PREFIX
from braidlog.storage.metadata.cursors import KafkaCommit
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import AllBut
from tests.broker.cluster.nodes import SteppedBroker, settle
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient
from tests.storage.shared.shared_dirs import SharedStore

EARLIEST, LATEST = -2, -1
BY_NAME, BY_ID = 12, 13  # Versions of Fetch.
Shown = tuple[bytes, bytes, int, tuple[int, int, bytes] | None]
"""Group, topic, partition, and (offset, leader epoch, metadata)."""


@pytest.fixture
async def client(broker: Broker, open_client: OpenClient) -> RawKafka:
    await broker.topics.create(FOO_NAME, 2)
    return RawKafka(await open_client("kafka", offsets_topic=True))


def commit(broker: Broker, group: bytes, index: int, offset: int, **fields: Any) -> None:
    topic = broker.topics.get(FOO_NAME)
    kafka = KafkaCommit(offset, fields.get("metadata", b""), 1_700_000_000_000_000, 3)
    broker.subscriptions.open(topic, group).commit(index, offset, kafka=kafka)


async def fetched(
    client: RawKafka, offset: int, version: int = BY_ID, *, wait_ms: int = 0, **fields: Any
) -> Any:
    """Return the topic's partition in the answer."""
    target = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
    topics = [FetchTopic(topic=NAME, topic_id=TOPIC_ID, partitions=[target])]
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics
    )
    (topic,) = (await client.call_whole(request, version)).responses
    assert topic.topic_id == TOPIC_ID if version >= BY_ID else topic.topic == NAME
    (part,) = topic.partitions
    return part


def shown(part: Any) -> list[Shown]:
    """Return the records of a partition, read by the layouts of OffsetCommitKey and
    OffsetCommitValue.
    """
    assert part.error_code == Code.NONE
    body, records = bytes(part.records or b""), []
    while body:
        _, size = PREFIX.unpack_from(body)
        whole, body = body[: PREFIX.size + size], body[PREFIX.size + size :]
        records += KAFKA_BATCHES.decode(whole, PREFIX.unpack_from(whole)[0], 0).records
    return [_shown(record) for record in records]


def _shown(record: Any) -> Shown:
    key, value = record.key, record.value
    version, size = struct.unpack_from(">hh", key)
    group, rest = key[4 : 4 + size], key[4 + size :]
    (size,) = struct.unpack_from(">h", rest)
    (index,) = struct.unpack(">i", rest[2 + size :])
    assert version == 1
    if value is None:
        return group, rest[2 : 2 + size], index, None
    version, offset, epoch, length = struct.unpack_from(">hqih", value)
    (time_ms,) = struct.unpack(">q", value[16 + length :])
    assert version == 3 and time_ms > 0
    return group, rest[2 : 2 + size], index, (offset, epoch, value[16 : 16 + length])


async def bounds(client: RawKafka) -> tuple[int, int]:
    """Return the earliest and the latest offset."""
    places = []
    for time in (EARLIEST, LATEST):
        wanted = ListOffsetsPartition(timestamp=time)
        topic = ListOffsetsTopic(name=NAME, partitions=[wanted])
        reply = await client.call_whole(ListOffsetsRequest(topics=[topic]), 7)
        (result,) = reply.topics[0].partitions
        assert result.error_code == Code.NONE
        places.append(result.offset)
    return places[0], places[1]


async def test_commits_are_records_with_kafkas_layouts(broker: Broker, client: RawKafka) -> None:
    commit(broker, b"g", 0, 5, metadata=b"at five")
    commit(broker, b"h", 1, 6)
    commit(broker, b"g", 0, 7, metadata=b"at seven")
    topic = broker.topics.get(FOO_NAME)
    broker.subscriptions.get(topic, b"h").delete()
    broker.subscriptions.open(topic, b"pulsar").seek(1, 9)
    for version in (BY_NAME, BY_ID, 18, 4):
        part = await fetched(client, 0, version)
        assert shown(part) == [
            (b"g", FOO, 0, (7, 3, b"at seven")),
            (b"h", FOO, 1, None),
            (b"pulsar", FOO, 1, (9, -1, b"")),
        ]
    first, end = await bounds(client)
    assert (end, part.high_watermark, end - first) == (end, end, 3)
    assert shown(await fetched(client, end - 1)) == [(b"pulsar", FOO, 1, (9, -1, b""))]


async def test_old_clients_get_messages_of_their_format(broker: Broker, client: RawKafka) -> None:
    commit(broker, b"g", 0, 5)
    part = await fetched(client, 0, 0)
    (record,) = KAFKA.decode(bytes(part.records), 0, 0).records
    assert _shown(record)[0] == b"g"


async def test_a_fetch_at_the_end_waits_for_the_next_move(
    broker: Broker, client: RawKafka, autojump_clock: MockClock
) -> None:
    first, end = await bounds(client)
    assert first == end
    begun = trio.current_time()
    assert shown(await fetched(client, end, wait_ms=5000)) == []
    assert trio.current_time() - begun == pytest.approx(5, abs=0.5)
    answers: list[Any] = []

    async def follow() -> None:
        answers.append(await fetched(client, end, wait_ms=100_000))

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.sleep(1)
        assert not answers
        commit(broker, b"g", 0, 5)
    assert shown(answers[0]) == [(b"g", FOO, 0, (5, 3, b""))]
    assert trio.current_time() - begun == pytest.approx(1, abs=0.5)


async def test_positions_of_other_namespaces_are_not_shown(
    broker: Broker, client: RawKafka
) -> None:
    commit(broker, b"g", 0, 5)
    await broker.namespaces.create("public", "other")
    other = await broker.topics.create(TopicName("public", "other", "t"), 1)
    broker.subscriptions.open(other, b"x").commit(0, 1)
    part = await fetched(client, 0)
    assert [record[0] for record in shown(part)] == [b"g"]
    _, end = await bounds(client)
    assert end == part.high_watermark == broker.subscriptions.changes.end - 1


async def test_the_topic_is_shown_as_an_internal_topic(client: RawKafka) -> None:
    by_id = [MetadataRequestTopic(topic_id=TOPIC_ID, name=None)]
    for topics in (None, [MetadataRequestTopic(name=NAME)], by_id):
        reply = await client.call_whole(MetadataRequest(topics=topics), 12)
        topic = {entry.name: entry for entry in reply.topics}[NAME]
        assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, TOPIC_ID, True)
        assert [(part.partition_index, part.leader_id) for part in topic.partitions] == [(0, 1)]
    pages = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=NAME)], cursor=None)
    (described,) = (await client.call_whole(pages, 0)).topics
    assert (described.error_code, len(described.partitions)) == (0, 1)
    resource = DescribeConfigsResource(resource_type=2, resource_name=NAME)
    (result,) = (await client.call_whole(DescribeConfigsRequest(resources=[resource]), 4)).results
    assert [(config.name, config.value) for config in result.configs] == [
        (b"cleanup.policy", b"compact")
    ]


@pytest.mark.parametrize(("index", "offset", "code"), [(0, -1, 1), (0, 1 << 62, 1), (1, 0, 3)])
async def test_wrong_places_are_refused(
    client: RawKafka, index: int, offset: int, code: int
) -> None:
    part = await fetched(client, offset, wait_ms=100_000, partition=index)
    assert part.error_code == code


async def test_many_positions_come_in_several_answers(broker: Broker, client: RawKafka) -> None:
    topic = broker.topics.get(FOO_NAME)
    for number in range(RECORDS_MAX + 5):
        broker.subscriptions.open(topic, b"%d" % number).commit(0, 1)
    offset, groups = 0, []
    while groups != [b"%d" % number for number in range(RECORDS_MAX + 5)]:
        part = await fetched(client, offset)
        records = shown(part)
        assert 0 < len(records) <= RECORDS_MAX
        groups += [record[0] for record in records]
        offset = broker.subscriptions.changes.end - (RECORDS_MAX + 5) + len(groups)
    assert offset == part.high_watermark


async def test_without_the_right_to_the_topic_there_is_none(
    broker: Broker, client: RawKafka
) -> None:
    commit(broker, b"g", 0, 5)
    broker.access = Access(AllBut(Action.CONSUME))
    part = await fetched(client, 0, BY_NAME)
    assert part.error_code == Code.TOPIC_AUTHORIZATION_FAILED
    broker.access = Access(AllBut(Action.DESCRIBE))
    reply = await client.call_whole(MetadataRequest(topics=None), 12)
    assert NAME not in [topic.name for topic in reply.topics]
    assert shown(await fetched(client, 0)) == []  # The client may see no group.


async def test_the_topic_is_off_by_default(broker: Broker, open_client: OpenClient) -> None:
    client = RawKafka(await open_client("kafka"))
    part = await fetched(client, 0, BY_NAME)
    assert part.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    reply = await client.call_whole(MetadataRequest(topics=None), 12)
    assert NAME not in [topic.name for topic in reply.topics]
    assert not broker.subscriptions.changes.is_open


async def test_a_broker_of_a_cluster_refuses_the_setting(tmp_path: Path) -> None:
    async with SteppedBroker(SharedStore(tmp_path), 1).running() as node:
        await settle(node)
        with pytest.raises(ConfigError, match="offsets_topic: a broker of a cluster has no topic"):
            await ADAPTER.start(node.broker, KafkaOptions(offsets_topic=True), loopback=True)
