"""OffsetDelete ends positions, but not of topics that members read. Codes as of Kafka 4.3.1."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME, join_request

GROUP_SUBSCRIBED, NON_EMPTY, UNKNOWN_GROUP, UNKNOWN_TOPIC, INVALID_GROUP = 86, 68, 69, 3, 24
# Version 0, the topic foo, no user data.
SUBSCRIBED_TO_FOO = bytes.fromhex("0000 00000001 0003 666f6f ffffffff".replace(" ", ""))


async def committed(client: RawKafka) -> None:
    commit = m.OffsetCommitRequest(0, b"g", topics={FOO: {0: m.CommitTarget(5, b"", None)}})
    await client.call(commit)


async def deleted(client: RawKafka, *topics: tuple[bytes, int], group: bytes = b"g") -> list[int]:
    """Return the group's code, or the codes of the partitions."""
    wanted = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
        )
        for name, index in topics
    ]
    reply = await client.call_whole(OffsetDeleteRequest(group_id=group, topics=wanted), 0)
    codes = [partition.error_code for topic in reply.topics for partition in topic.partitions]
    return [reply.error_code] if reply.error_code else codes


async def test_a_position_ends(broker: Broker, client: RawKafka) -> None:
    await committed(client)
    subscription = broker.subscriptions.find(broker.topics.get(FOO_NAME), b"g")
    assert subscription is not None and subscription.position(0) == 5
    assert await deleted(client, (FOO, 0), (FOO, 7), (b"none", 0), (b"n/ne", 0)) == [
        0,
        UNKNOWN_TOPIC,
        UNKNOWN_TOPIC,
        UNKNOWN_TOPIC,
    ]
    assert subscription.position(0) is None
    assert await deleted(client, (FOO, 0)) == [UNKNOWN_GROUP]


async def test_a_group_without_positions_is_unknown(client: RawKafka) -> None:
    assert await deleted(client, (FOO, 0), group=b"other") == [UNKNOWN_GROUP]


@pytest.mark.parametrize(
    ("kind", "metadata", "code"),
    [
        (b"consumer", SUBSCRIBED_TO_FOO, GROUP_SUBSCRIBED),
        (b"consumer", SUBSCRIBED_TO_FOO.replace(b"foo", b"bar"), 0),
        (b"consumer", b"\0", NON_EMPTY),
        (b"connect", SUBSCRIBED_TO_FOO, NON_EMPTY),
    ],
)
async def test_a_topic_that_a_member_reads_keeps_its_position(
    broker: Broker, client: RawKafka, kind: bytes, metadata: bytes, code: int
) -> None:
    await committed(client)
    join = join_request({b"range": metadata}, protocol_type=kind)
    assert (await client.call_whole(join, 3)).error_code == 0
    assert await deleted(client, (FOO, 0)) == [code]
    subscription = broker.subscriptions.find(broker.topics.get(FOO_NAME), b"g")
    assert (subscription is None or subscription.position(0) is None) == (not code)
