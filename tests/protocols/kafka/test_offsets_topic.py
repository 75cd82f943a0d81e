"""The topic `__consumer_offsets`: the newest position of each group and partition, as records."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.offsets_topic import LOOK_S, NAME, RECORDS_MAX, TOPIC_ID
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
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES, PREFIX
from braidlog.storage.metadata.cursors import KafkaCommit
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.shared.layout import shard_of
from tests.broker.access.rules import AllBut
from tests.broker.cluster.nodes import LEASE_MS, SteppedBroker, balanced, settle, stepping, topic_of
from tests.listeners import open_listeners
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient
from tests.storage.shared.shared_dirs import SHARDS, SharedStore

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


def last_offset(part: Any) -> int:
    """Return the offset of the last record of a partition."""
    body, last = b"".join(bytes(piece) for piece in [part.records]), -1
    while body:
        base, size = PREFIX.unpack_from(body)
        whole, body = body[: PREFIX.size + size], body[PREFIX.size + size :]
        last = KAFKA_BATCHES.decode(whole, base, 0).records[-1].offset
    return last


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
    assert part.high_watermark == end > first > 0
    assert shown(await fetched(client, end - 1)) == [(b"pulsar", FOO, 1, (9, -1, b""))]


async def test_old_clients_get_messages_of_their_format(broker: Broker, client: RawKafka) -> None:
    commit(broker, b"g", 0, 5)
    part = await fetched(client, 0, 0)
    (record,) = KAFKA.decode(bytes(part.records), 0, 0).records
    assert _shown(record)[0] == b"g"


async def test_a_fetch_at_the_end_waits_in_vain(
    client: RawKafka, autojump_clock: MockClock
) -> None:
    first, end = await bounds(client)
    assert first == end
    begun = trio.current_time()
    assert shown(await fetched(client, end, wait_ms=5000)) == []
    assert trio.current_time() - begun == pytest.approx(5, abs=0.5)


async def test_a_fetch_at_the_end_waits_for_the_next_move(broker: Broker, client: RawKafka) -> None:
    """In real time: the answer waits for the disk, which no clock of a test knows."""
    _, end = await bounds(client)
    answers: list[Any] = []

    async def follow() -> None:
        answers.append(await fetched(client, end, wait_ms=30_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked(0.1)
        assert not answers
        commit(broker, b"g", 0, 5)
    assert shown(answers[0]) == [(b"g", FOO, 0, (5, 3, b""))]


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
    changes = broker.subscriptions.changes.at(0)
    assert changes is not None and end == part.high_watermark < changes.end


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


async def test_a_reader_may_go_on_in_the_only_epoch(broker: Broker, client: RawKafka) -> None:
    """librdkafka asks after a broker has come back, and reads nothing without an answer."""
    commit(broker, b"g", 0, 5)
    _, end = await bounds(client)
    wanted = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in (0, 1)]
    topics = [OffsetForLeaderTopic(topic=NAME, partitions=wanted)]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    (topic,) = (await client.call_whole(request, 4)).topics
    first, second = topic.partitions
    assert (first.error_code, first.leader_epoch) == (Code.NONE, 0)
    assert first.end_offset >= end
    assert second.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


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
        offset = last_offset(part) + 1
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


@pytest.fixture
def real_clock() -> MockClock:
    """A clock that runs as real time does, and can jump: answers wait for the disk."""
    return MockClock(rate=1.0)


async def test_a_look_passes_over_unseen_changes_once(
    broker: Broker, client: RawKafka, real_clock: MockClock
) -> None:
    """Later looks of the connection begin where the last look ended, for ten seconds."""
    commit(broker, b"g", 0, 5)
    await broker.namespaces.create("public", "other")
    other = await broker.topics.create(TopicName("public", "other", "t"), 1)
    for number in range(50):
        broker.subscriptions.open(other, b"%d" % number).commit(0, 1)
    changes = broker.subscriptions.changes.at(0)
    assert changes is not None
    walked: list[int] = []
    since, before = changes.since, changes.before

    def counted(walk: Any) -> Any:
        def count(place: int) -> Any:
            for change in walk(place):
                walked.append(change.place)
                yield change

        return count

    changes.since, changes.before = counted(since), counted(before)  # type: ignore[method-assign]
    offset = last_offset(await fetched(client, 0)) + 1
    assert len(walked) >= 50
    walked.clear()
    for _ in range(3):
        assert shown(await fetched(client, offset)) == []
    assert len(walked) <= 3  # The newest change, which `before` yields first.
    commit(broker, b"g", 0, 6)
    assert shown(await fetched(client, offset)) == [(b"g", FOO, 0, (6, 3, b""))]
    walked.clear()
    real_clock.jump(LOOK_S + 1)
    await fetched(client, last_offset(await fetched(client, offset)) + 1)
    assert len(walked) >= 1


@asynccontextmanager
async def positions_of(node: SteppedBroker) -> AsyncIterator[RawKafka]:
    """Yield a client of a broker that serves the topic."""
    async with open_listeners(node.broker) as connect:
        client = RawKafka(await connect("kafka", offsets_topic=True))
        addresses = node.internal.addresses([node.broker.listeners["kafka"]])
        await trio.to_thread.run_sync(node.shared.session.tell_addresses, addresses)
        yield client


async def leaders(client: RawKafka) -> dict[int, int]:
    reply = await client.call_whole(MetadataRequest(topics=[MetadataRequestTopic(name=NAME)]), 12)
    return {part.partition_index: part.leader_id for part in reply.topics[0].partitions}


def move(node: SteppedBroker, name: TopicName, group: bytes, position: int) -> None:
    broker = node.broker
    kafka = KafkaCommit(position, b"", 1_700_000_000_000_000, 3)
    broker.subscriptions.open(broker.topics.get(name), group).commit(0, position, kafka=kafka)


async def test_a_reader_goes_on_at_the_next_owner_of_a_shard(tmp_path: Path) -> None:
    store = SharedStore(tmp_path)
    first = SteppedBroker(store, 1)
    async with first.running(), positions_of(first) as client:
        async with SteppedBroker(store, 3).running() as second, positions_of(second) as other:
            await balanced(store, first, second)
            name = topic_of(second.held)
            shard = shard_of(name.full, SHARDS)
            async with trio.open_nursery() as going_on:
                going_on.start_soon(stepping, first, second)
                await second.broker.topics.create(name, 2)
                going_on.cancel_scope.cancel()
            owners = {index: 3 if index in second.held else 1 for index in range(SHARDS + 1)}
            assert await leaders(client) == await leaders(other) == owners
            refused = await fetched(client, 0, partition=shard)
            assert refused.error_code == Code.NOT_LEADER_FOR_PARTITION
            for group in (b"a", b"b", b"c"):
                move(second, name, group, 1)
            second.broker.subscriptions.get(second.broker.topics.get(name), b"a").ack(
                0, [(3, 4)], lazy=True
            )
            part = await fetched(other, 0, partition=shard)
            assert [record[0] for record in shown(part)] == [b"b", b"c", b"a"]
            offset = last_offset(part) + 1
            move(second, name, b"b", 2)
            second.broker.subscriptions.get(second.broker.topics.get(name), b"c").delete()
            await second.broker.durability.all_durable()
            # The second broker is killed.
        store.now_ms += 2 * LEASE_MS
        first.shared.session._answered_since_s = -1e9
        first.shared.session._beat()
        first.membership._free_since = dict.fromkeys(range(SHARDS + 1), -1e9)
        await settle(first)
        assert await leaders(client) == dict.fromkeys(range(SHARDS + 1), 1)
        topic = name.topic.encode()
        part = await fetched(client, offset, partition=shard)
        later = [(b"b", topic, 0, (2, 3, b"")), (b"c", topic, 0, None)]
        assert shown(part) == later
        whole = await fetched(client, 0, partition=shard)
        assert shown(whole)[0][0] == b"a" and shown(whole)[1:] == later
        offset = last_offset(part) + 1
        assert offset == part.high_watermark == last_offset(whole) + 1
        move(first, name, b"a", 9)
        assert shown(await fetched(client, offset, partition=shard)) == [
            (b"a", topic, 0, (9, 3, b""))
        ]
