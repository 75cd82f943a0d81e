"""Groups of the consumer protocol over the wire, as Kafka 4.3.1 answers the same frames."""

import importlib.util
from typing import Any

import pytest
import trio

from braidlog.broker.access.access import Access
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.consumer_group import HEARTBEAT_S, SESSION_S
from braidlog.protocols.kafka.consumer_member import MemberWishes
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import GroupCoordinator
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.access.rules import Nothing
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO
from tests.protocols.kafka.test_classic_groups import GROUP, joined, synced

REGEX_IS_SERVED = importlib.util.find_spec("re2") is not None
A, B = b"A" * 22, b"B" * 22


def first(member_id: bytes = A, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """Return the first heartbeat of a member."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[FOO],
        topic_partitions=[],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


async def beat(
    client: RawKafka, member_id: bytes, epoch: int, version: int = 1, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
    )
    return await client.call_with_table(request, version)


def partitions_of(reply: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if reply.assignment is None:
        return None
    return [index for topic in reply.assignment.topic_partitions for index in topic.partitions]


async def commit(client: RawKafka, member_id: bytes, epoch: int, version: int = 9) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=FOO, partitions=[partition])],
    )
    return (await client.call_whole(request, version)).topics[0].partitions[0].error_code


async def test_a_member_gets_its_partitions_and_commits(broker: Broker, client: RawKafka) -> None:
    reply = await client.call_with_table(first(), 1)
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (Code.NONE, A, 1)
    assert partitions_of(reply) == [0]
    (topic,) = broker.topics.all()
    assert reply.assignment.topic_partitions[0].topic_id == id_of(topic)
    assert partitions_of(await beat(client, A, 1)) is None
    assert await commit(client, A, 1) == Code.NONE
    assert broker.subscriptions.get(topic, GROUP).position(0) == 3
    assert await commit(client, A, 2) == Code.STALE_MEMBER_EPOCH
    assert await commit(client, A, 1, version=8) == Code.UNSUPPORTED_VERSION
    assert await commit(client, B, 1) == Code.UNKNOWN_MEMBER_ID
    (seen,) = broker.members.of(topic, GROUP)
    assert (seen.name, list(seen.partitions)) == (A.decode(), [0])


async def test_members_that_join_together_send_heartbeats_at_different_times(
    client: RawKafka,
) -> None:
    replies = [await client.call_with_table(first(b"%022d" % number), 1) for number in range(8)]
    assert len({reply.heartbeat_interval_ms for reply in replies}) == 8
    last = replies[-1]
    again = await beat(client, last.member_id, last.member_epoch)
    assert again.heartbeat_interval_ms == HEARTBEAT_S * 1000


async def test_a_partition_moves_to_a_new_member_once_it_is_given_up(
    client: RawKafka,
) -> None:
    topic_id = (await client.call_with_table(first(), 1)).assignment.topic_partitions[0].topic_id
    other = await client.call_with_table(first(B), 1)
    assert partitions_of(other) == []
    assert (await beat(client, A, 1)).member_epoch == 2  # A keeps the only partition.
    left = await beat(client, A, -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (Code.NONE, A, -1)
    moved = await beat(client, B, 2)
    assert (partitions_of(moved), moved.member_epoch) == ([0], 3)
    assert moved.assignment is not None
    owned = [TopicPartitions(topic_id=topic_id, partitions=[0])]
    again = await beat(client, B, 2, topic_partitions=owned)  # The answer was lost.
    assert again.error_code == Code.NONE
    assert (await beat(client, B, 1)).error_code == Code.FENCED_MEMBER_EPOCH
    assert (await beat(client, A, 2)).error_code == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "is_listed"),
    [
        ({}, True),
        ({"types_filter": [b"Consumer"]}, True),
        ({"types_filter": [b"classic"]}, False),
        ({"states_filter": [b"Stable"]}, True),
        ({"states_filter": [b"Empty"]}, False),
    ],
)
async def test_a_group_is_listed_with_its_type_and_state(
    client: RawKafka, fields: dict[str, list[bytes]], is_listed: bool
) -> None:
    await client.call_with_table(first(A), 1)
    groups = (await client.call_whole(ListGroupsRequest(**fields), 5)).groups
    listed = [(group.group_id, group.group_type, group.group_state) for group in groups]
    assert listed == [(GROUP, b"consumer", b"Stable")] * is_listed


async def _groups(client: RawKafka, *names: bytes) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(names or (GROUP,)))
    for group in (await client.call_with_table(request, 1)).groups:
        yield group


INVALID = [
    (first(member_id=b""), 1, "MemberId can't be empty."),
    (first(group_id=b""), 1, "GroupId can't be empty."),
    (first(instance_id=b""), 1, "InstanceId can't be empty."),
    (first(rack_id=b""), 1, "RackId can't be empty."),
    (first(rebalance_timeout_ms=-1), 1, "RebalanceTimeoutMs must be provided in first request."),
    (first(topic_partitions=None), 1, "TopicPartitions must be empty when (re-)joining."),
    (
        first(subscribed_topic_names=None),
        1,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (first(member_epoch=-2), 1, "InstanceId can't be null."),
    (first(member_epoch=-3), 1, "MemberEpoch is invalid."),
]


@pytest.mark.parametrize(
    ("request_", "version", "text"), INVALID, ids=lambda value: str(value)[:40]
)
async def test_an_invalid_heartbeat_is_refused(
    client: RawKafka, request_: ConsumerGroupHeartbeatRequest, version: int, text: str
) -> None:
    reply = await client.call_with_table(request_, version)
    assert (reply.error_code, reply.error_message) == (Code.INVALID_REQUEST, text.encode())


async def test_a_member_of_a_group_that_a_restart_has_forgotten_joins_again(
    client: RawKafka,
) -> None:
    """Clients end for good after GROUP_ID_NOT_FOUND."""
    assert (await beat(client, A, 1)).error_code == Code.UNKNOWN_MEMBER_ID
    assert (await beat(client, A, -1)).error_code == Code.GROUP_ID_NOT_FOUND
    assert (await client.call_with_table(first(), 1)).member_epoch == 1


async def test_other_refusals(client: RawKafka) -> None:
    refused = await client.call_with_table(first(server_assignor=b"x"), 1)
    assert refused.error_code == Code.UNSUPPORTED_ASSIGNOR
    assert (await client.call_with_table(first(b""), 0)).error_code == Code.NONE
    request = first(group_id=b"others", subscribed_topic_names=[b"nowhere", b"bad name"])
    assert partitions_of(await client.call_with_table(request, 1)) == []


async def test_a_static_member_comes_back_with_another_id(client: RawKafka) -> None:
    await client.call_with_table(first(instance_id=b"i"), 1)
    busy = await client.call_with_table(first(B, instance_id=b"i"), 1)
    assert busy.error_code == Code.UNRELEASED_INSTANCE_ID
    away = await beat(client, A, -2, instance_id=b"i")
    assert (away.error_code, away.member_epoch) == (Code.NONE, -2)
    back = await client.call_with_table(first(B, instance_id=b"i"), 1)
    assert (back.member_epoch, partitions_of(back)) == (1, [0])
    fenced = await beat(client, A, 1, instance_id=b"i")
    assert fenced.error_code == Code.FENCED_INSTANCE_ID
    unknown = await beat(client, B, 1, instance_id=b"j")
    assert unknown.error_code == Code.UNKNOWN_MEMBER_ID


@pytest.mark.skipif(not REGEX_IS_SERVED, reason="google-re2 is not installed")
async def test_a_pattern_subscribes_to_topics(client: RawKafka) -> None:
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": b"f.o"}
    reply = await client.call_with_table(first(**fields), 1)
    assert partitions_of(reply) == [0]
    for pattern, code in ((b"(", 128), (b"a{900}{900}", 128), (b"x" * 2000, 128)):
        request = first(B, subscribed_topic_names=None, subscribed_topic_regex=pattern)
        assert (await client.call_with_table(request, 1)).error_code == code


async def test_tools_see_the_group(client: RawKafka) -> None:
    await client.call_with_table(first(), 1)
    described, missing, invalid = [group async for group in _groups(client, GROUP, b"none", b"")]
    assert (described.group_state, described.assignor_name, described.group_epoch) == (
        b"Stable",
        b"uniform",
        1,
    )
    (member,) = described.members
    assert (member.member_id, member.client_id, member.member_type) == (A, b"t", 1)
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == (FOO, [0])
    assert (missing.error_code, invalid.error_code) == (69, Code.INVALID_GROUP_ID)
    groups = (await client.call_with_table(ListGroupsRequest(), 2)).groups
    assert [(group.group_id, group.protocol_type) for group in groups] == [(GROUP, b"consumer")]

    async def delete() -> int:
        answer = await client.call_with_table(DeleteGroupsRequest(groups_names=[GROUP]), 1)
        return answer.results[0].error_code

    assert await delete() == Code.NON_EMPTY_GROUP
    await beat(client, A, -1)
    assert await delete() == Code.NONE
    assert await delete() == Code.GROUP_ID_NOT_FOUND


async def test_a_group_keeps_its_type_when_its_members_leave(client: RawKafka) -> None:
    await client.call_with_table(first(), 1)
    await commit(client, A, 1)
    await beat(client, A, -1)
    (group,) = (await client.call_with_table(ListGroupsRequest(), 5)).groups
    assert (group.group_state, group.group_type) == (b"Empty", b"consumer")
    classic = ListGroupsRequest(types_filter=[b"classic"])
    assert (await client.call_with_table(classic, 5)).groups == []


async def test_a_name_without_members_takes_the_type_of_the_next(client: RawKafka) -> None:
    await client.call_with_table(first(), 1)
    await beat(client, A, -1)
    await synced(client, await joined(client))
    reply = await client.call_with_table(first(), 1)  # The metadata is not that of consumers.
    assert reply.error_code == Code.GROUP_ID_NOT_FOUND


async def test_a_group_with_members_is_no_classic_group_to_old_tools(client: RawKafka) -> None:
    await client.call_with_table(first(), 1)
    await commit(client, A, 1)
    request = DescribeGroupsRequest(groups=[GROUP])
    (group,) = (await client.call_with_table(request, 5)).groups
    assert (group.error_code, group.group_state) == (Code.NONE, b"Dead")
    (group,) = (await client.call_with_table(request, 6)).groups
    assert (group.error_code, group.group_state) == (Code.GROUP_ID_NOT_FOUND, b"Dead")
    assert group.error_message == b"Group g is not a classic group."
    await beat(client, A, -1)
    (group,) = (await client.call_with_table(request, 6)).groups
    assert (group.error_code, group.group_state) == (Code.NONE, b"Empty")


async def test_topics_that_are_not_allowed_are_refused(broker: Broker, client: RawKafka) -> None:
    broker.access = Access(Nothing())
    reply = await client.call_with_table(first(), 1)
    assert reply.error_code == Code.GROUP_AUTHORIZATION_FAILED


async def test_dead_members_of_the_consumer_protocol_are_removed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = GroupCoordinator()
    group = table.get_modern(GROUP)
    group.join(A, None, (b"c", b"/h"), MemberWishes(frozenset((FOO,))), trio.current_time())
    table.weigh(group)
    await trio.sleep(SESSION_S)
    assert table.find_modern(GROUP) is group
    assert not group.members
