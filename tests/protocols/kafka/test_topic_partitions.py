"""DescribeTopicPartitions gives topics in pieces. Codes as of Kafka 4.3.1."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka.frames import RawKafka

UNKNOWN_TOPIC, INVALID_TOPIC = 3, 17
Piece = tuple[bytes, int, list[int]]  # name, code, partitions


async def piece(
    client: RawKafka, names: list[bytes], limit: int, cursor: Cursor | None = None
) -> tuple[list[Piece], tuple[bytes, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    reply = await client.call_whole(request, 0)
    following = reply.next_cursor
    return [
        (part.name, part.error_code, [partition.partition_index for partition in part.partitions])
        for part in reply.topics
    ], following and (following.topic_name, following.partition_index)


@pytest.fixture
async def client(broker: Broker, client: RawKafka) -> RawKafka:
    """Yield a connection to a broker with topics of 1, 2 and 3 partitions."""
    for name, count in ((b"two", 2), (b"a3", 3)):
        await broker.topics.create(TopicName("public", "default", name.decode()), count)
    return client


async def test_a_topic_is_described_whole(broker: Broker, client: RawKafka) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=b"two")], response_partition_limit=10, cursor=None
    )
    (topic,) = (await client.call_whole(request, 0)).topics
    described = broker.topics.get(TopicName("public", "default", "two"))
    assert (topic.topic_id, topic.is_internal) == (id_of(described), False)
    assert topic.topic_authorized_operations > 0
    assert [(part.leader_id, part.leader_epoch, part.isr_nodes) for part in topic.partitions] == [
        (1, 0, [1])
    ] * 2


async def test_a_cursor_leads_through_all_topics(client: RawKafka) -> None:
    pieces: list[Piece] = []
    cursor: Cursor | None = None
    for _ in range(10):
        topics, following = await piece(client, [], 2, cursor)
        pieces += topics
        if following is None:
            break
        cursor = Cursor(topic_name=following[0], partition_index=following[1])
    assert pieces == [
        (b"a3", 0, [0, 1]),
        (b"a3", 0, [2]),
        (b"foo", 0, [0]),
        (b"two", 0, [0, 1]),
    ]


async def test_missing_topics_have_errors(client: RawKafka) -> None:
    topics, following = await piece(client, [b"zz", b"two", b"n ne"], 100)
    assert topics == [
        (b"n ne", INVALID_TOPIC, []),
        (b"two", 0, [0, 1]),
        (b"zz", UNKNOWN_TOPIC, []),
    ]
    assert following is None


async def test_a_negative_cursor_is_refused(client: RawKafka) -> None:
    topics, _ = await piece(client, [b"two"], 10, Cursor(topic_name=b"two", partition_index=-1))
    assert topics == [(b"two", 42, [])]
    topics, _ = await piece(client, [b"two"], 10, Cursor(topic_name=b"two", partition_index=9))
    assert topics == [(b"two", 0, [])]
