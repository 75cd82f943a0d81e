"""A share group that was only moved, as Apache Kafka 4.3.1 answers."""

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire import alter_share_group_offsets as alter
from braidlog.protocols.kafka.wire import delete_share_group_offsets as delete
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.share_group_describe import ShareGroupDescribeRequest
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME

GROUP = b"g"
MISSING = b"There is no offset information to delete."
EMPTY_SHARE = [(GROUP, b"share", b"Empty", b"share")]


async def move(client: RawKafka, *places: tuple[bytes, int]) -> list[int]:
    """Set positions of the group to 0; return the codes."""
    topics = [
        alter.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
            ],
        )
        for topic, index in places
    ]
    request = alter.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=topics)
    reply = await client.call_whole(request, 0)
    assert reply.error_code == Code.NONE
    return [part.error_code for topic in reply.responses for part in topic.partitions]


async def end_positions(client: RawKafka) -> tuple[int, list[tuple[int, bytes | None]]]:
    """Delete the group's positions in foo; return the code, and code and text of the topic."""
    topic = delete.DeleteShareGroupOffsetsRequestTopic(topic_name=FOO)
    request = delete.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
    reply = await client.call_whole(request, 0)
    return reply.error_code, [(each.error_code, each.error_message) for each in reply.responses]


async def listed(client: RawKafka) -> list[tuple[bytes | None, ...]]:
    groups = (await client.call_whole(ListGroupsRequest(), 5)).groups
    return [
        (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups
    ]


async def delete_group(client: RawKafka) -> int:
    (answer,) = (await client.call_whole(DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
    return int(answer.error_code)


async def test_a_moved_group_exists_until_it_is_deleted(client: RawKafka) -> None:
    assert await end_positions(client) == (Code.GROUP_ID_NOT_FOUND, [])
    assert await delete_group(client) == Code.GROUP_ID_NOT_FOUND
    assert await move(client, (FOO, 0)) == [Code.NONE]
    assert await listed(client) == EMPTY_SHARE
    assert await end_positions(client) == (Code.NONE, [(Code.NONE, None)])
    assert await listed(client) == EMPTY_SHARE
    request = ShareGroupDescribeRequest(group_ids=[GROUP])
    (group,) = (await client.call_whole(request, 1)).groups
    assert (group.error_code, group.group_state, group.group_epoch) == (Code.NONE, b"Empty", 1)
    unknown = (Code.UNKNOWN_TOPIC_OR_PARTITION, MISSING)
    assert await end_positions(client) == (Code.NONE, [unknown])
    assert await delete_group(client) == Code.NONE
    assert await listed(client) == []
    assert await end_positions(client) == (Code.GROUP_ID_NOT_FOUND, [])


async def test_a_moved_group_is_no_group_of_another_type(client: RawKafka) -> None:
    await move(client, (FOO, 0))
    (group,) = (await client.call_whole(DescribeGroupsRequest(groups=[GROUP]), 6)).groups
    assert (group.error_code, group.group_state) == (Code.GROUP_ID_NOT_FOUND, b"Dead")
    assert group.error_message == b"Group g is not a classic group."
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP])
    (other,) = (await client.call_whole(request, 1)).groups
    assert (other.error_code, other.error_message) == (
        Code.GROUP_ID_NOT_FOUND,
        b"Group g is not a consumer group.",
    )


async def test_a_move_on_missing_topics_makes_no_group(client: RawKafka) -> None:
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await move(client, (b"missing", 0)) == [unknown]
    assert await move(client) == []
    assert await listed(client) == []
    assert await move(client, (FOO, 7)) == [unknown]
    assert await listed(client) == EMPTY_SHARE


async def test_a_group_that_was_moved_keeps_positions_of_other_protocols(
    broker: Broker, client: RawKafka
) -> None:
    """A name without members takes the type of the next member or move, unlike in Kafka."""
    broker.subscriptions.open(broker.topics.get(FOO_NAME), GROUP).commit(0, 0)
    assert await listed(client) == [(GROUP, b"", b"Empty", b"classic")]
    assert await move(client, (FOO, 0)) == [Code.NONE]
    assert await listed(client) == EMPTY_SHARE
