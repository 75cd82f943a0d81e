"""OffsetFetch of several groups, and both requests of offsets with topics named by their ids."""

from typing import Any

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.offset_fetch import all_positions_once
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
)
from braidlog.protocols.kafka.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.protocols.kafka.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.access.rules import Nothing
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME

OTHER_ID = b"?" * 16


async def commit(client: RawKafka, group: bytes, offset: int, *topic_ids: bytes) -> list[int]:
    """Commit for partition 0; return the codes."""
    target = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [
        OffsetCommitRequestTopic(topic_id=topic_id, partitions=[target]) for topic_id in topic_ids
    ]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    reply = await client.call_whole(request, 10)
    assert [topic.topic_id for topic in reply.topics] == list(topic_ids)
    return [topic.partitions[0].error_code for topic in reply.topics]


async def fetched(client: RawKafka, version: int, *groups: OffsetFetchRequestGroup) -> list[object]:
    """Return of each group its name, and per topic: id, name, offset, code."""
    reply = await client.call_whole(OffsetFetchRequest(groups=groups), version)
    return [
        (
            group.group_id,
            [
                (topic.topic_id, topic.name, partition.committed_offset, partition.error_code)
                for topic in group.topics
                for partition in topic.partitions
            ],
        )
        for group in reply.groups
    ]


async def test_positions_are_committed_and_fetched_by_id(broker: Broker, client: RawKafka) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    assert await commit(client, b"g", 7, topic_id, OTHER_ID) == [0, 100]
    topics = [
        OffsetFetchRequestTopics(topic_id=known_id, partition_indexes=[0])
        for known_id in (topic_id, OTHER_ID)
    ]
    everything = OffsetFetchRequestGroup(group_id=b"g", topics=None)
    named = OffsetFetchRequestGroup(group_id=b"g", topics=topics)
    assert await fetched(client, 10, everything, named) == [
        (b"g", [(topic_id, b"", 7, 0)]),
        (b"g", [(topic_id, b"", 7, 0), (OTHER_ID, b"", -1, 100)]),
    ]


@pytest.mark.parametrize("version", [1, 8])
async def test_the_answer_comes_when_a_crash_takes_back_no_position(
    broker: Broker, client: RawKafka, version: int
) -> None:
    subscription = broker.subscriptions.open(broker.topics.get(FOO_NAME), b"g")
    request = OffsetFetchRequest(
        group_id=b"g",
        topics=[OffsetFetchRequestTopic(name=FOO, partition_indexes=[0])],
        groups=[OffsetFetchRequestGroup(group_id=b"g", topics=None)],
    )
    for offset, lazy in ((5, False), (7, True)):
        subscription.commit(0, offset, lazy=lazy)
        await client.call_whole(request, version)
        assert broker.subscriptions.flush_lazy() <= broker.durability.durable_ticket


@pytest.mark.parametrize("kind", [OffsetFetchRequestGroup, DescribeShareGroupOffsetsRequestGroup])
def test_all_positions_of_a_group_are_described_once(kind: Any) -> None:
    everything, named = kind(group_id=b"g", topics=None), kind(group_id=b"g", topics=[])
    other = kind(group_id=b"other", topics=None)
    groups = [everything, named, everything, other, named, everything]
    assert list(all_positions_once(groups)) == [everything, named, other, named]


async def test_a_group_is_answered_once_with_all_its_positions(
    broker: Broker, client: RawKafka
) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    await commit(client, b"g", 7, topic_id)
    everything = OffsetFetchRequestGroup(group_id=b"g", topics=None)
    whole = (b"g", [(topic_id, b"", 7, 0)])
    assert await fetched(client, 10, *[everything] * 3) == [whole]


async def test_several_groups_are_answered_in_order(broker: Broker, client: RawKafka) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    await commit(client, b"g", 7, topic_id)
    none = bytes(16)
    topics = [OffsetFetchRequestTopics(name=FOO, partition_indexes=[0])]
    groups = [
        OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in (b"h", b"g")
    ]
    expected = [(b"h", [(none, FOO, -1, 0)]), (b"g", [(none, FOO, 7, 0)])]
    for version in (8, 9):
        assert await fetched(client, version, *groups) == expected


async def test_each_group_is_checked(broker: Broker, client: RawKafka) -> None:
    topic_id = id_of(broker.topics.get(FOO_NAME))
    broker.access = Access(Nothing(Action.DESCRIBE))
    assert await commit(client, b"g", 7, topic_id) == [29]
    broker.access = Access(Nothing())
    topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=b"g", topics=topics)
    assert await fetched(client, 10, group) == [(b"g", [(topic_id, b"", -1, 29)])]
