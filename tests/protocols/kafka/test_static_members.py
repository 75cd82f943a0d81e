"""Static members, commits of members, and groups whose members have left, as Kafka 4.3.1 answers
the same frames.
"""

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.classic_group import EMPTY_KEPT_S
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import groups_of
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupResponse
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.protocols.kafka.wire.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO
from tests.protocols.kafka.test_classic_groups import GROUP, join, joined, synced

INSTANCE = b"i"


async def static_join(client: RawKafka) -> JoinGroupResponse:
    request = join()
    request.group_instance_id = INSTANCE
    return await client.call_with_table(request, 5)


async def static_sync(client: RawKafka, reply: JoinGroupResponse, *assignments: bytes) -> bytes:
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=reply.generation_id,
        member_id=reply.member_id,
        group_instance_id=INSTANCE,
        assignments=[
            SyncGroupRequestAssignment(member_id=reply.member_id, assignment=assignment)
            for assignment in assignments
        ],
    )
    answer = await client.call_with_table(request, 3)
    assert answer.error_code == Code.NONE
    return answer.assignment


async def committed(
    client: RawKafka,
    generation: int = -1,
    member_id: bytes = b"",
    instance: bytes | None = None,
    *,
    metadata: bytes | None = None,
    leader_epoch: int = -1,
) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=3,
        committed_metadata=metadata,
        committed_leader_epoch=leader_epoch,
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=FOO, partitions=[partition])],
    )
    answer = await client.call_whole(request, 7)
    return answer.topics[0].partitions[0].error_code


async def test_a_static_member_that_comes_back_keeps_its_assignment(client: RawKafka) -> None:
    first = await static_join(client)
    assert await static_sync(client, first, b"mine") == b"mine"
    again = await static_join(client)
    assert again.member_id != first.member_id
    assert (again.generation_id, again.leader, again.members) == (1, first.member_id, [])
    assert await static_sync(client, again) == b"mine"

    async def beat(member_id: bytes, instance: bytes | None) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=1, member_id=member_id, group_instance_id=instance
        )
        return (await client.call_with_table(request, 3)).error_code

    assert await beat(again.member_id, INSTANCE) == Code.NONE
    assert await beat(again.member_id, None) == Code.NONE
    assert await beat(first.member_id, INSTANCE) == Code.FENCED_INSTANCE_ID
    assert await beat(again.member_id, b"other") == Code.UNKNOWN_MEMBER_ID
    assert await beat(b"x", b"other") == Code.UNKNOWN_MEMBER_ID


async def test_commits_of_static_members_are_checked(client: RawKafka) -> None:
    first = await static_join(client)
    await static_sync(client, first, b"mine")
    again = await static_join(client)
    assert await committed(client, 1, again.member_id, INSTANCE) == Code.NONE
    assert await committed(client, 1, first.member_id, INSTANCE) == Code.FENCED_INSTANCE_ID
    assert await committed(client, 1, again.member_id, b"other") == Code.UNKNOWN_MEMBER_ID
    assert await committed(client, 2, again.member_id, INSTANCE) == Code.ILLEGAL_GENERATION
    assert await committed(client, -1, again.member_id, INSTANCE) == Code.ILLEGAL_GENERATION
    assert await committed(client, -1, b"", b"other") == Code.UNKNOWN_MEMBER_ID
    assert await committed(client) == Code.NONE


async def test_a_consumer_that_joins_no_group_may_have_an_instance(client: RawKafka) -> None:
    assert await committed(client, -1, b"", INSTANCE) == Code.NONE


@pytest.mark.parametrize(
    ("version", "metadata", "leader_epoch"),
    [(1, None, -1), (2, b"", -1), (4, b"", -1), (5, b"", 5)],
)
async def test_a_fetch_shows_metadata_and_leader_epoch_as_its_version_does(
    client: RawKafka, version: int, metadata: bytes | None, leader_epoch: int
) -> None:
    assert await committed(client, metadata=None, leader_epoch=5) == Code.NONE
    topics = [OffsetFetchRequestTopic(name=FOO, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=GROUP, topics=topics)
    (partition,) = (await client.call_whole(request, version)).topics[0].partitions
    assert (partition.metadata, partition.committed_leader_epoch) == (metadata, leader_epoch)


async def one_left(client: RawKafka) -> None:
    """Let a member join the group, and leave."""
    reply = await joined(client)
    await synced(client, reply)
    await client.call_with_table(LeaveGroupRequest(group_id=GROUP, member_id=reply.member_id), 0)


async def listed(client: RawKafka) -> list[tuple[bytes | None, bytes | None]]:
    groups = (await client.call_with_table(ListGroupsRequest(), 2)).groups
    return [(group.group_id, group.protocol_type) for group in groups]


async def deleted(client: RawKafka) -> int:
    answer = await client.call_with_table(DeleteGroupsRequest(groups_names=[GROUP]), 1)
    return answer.results[0].error_code


@pytest.mark.parametrize("commits", [False, True])
async def test_a_group_whose_members_left_is_shown_and_deleted(
    client: RawKafka, commits: bool
) -> None:
    await one_left(client)
    if commits:
        assert await committed(client) == Code.NONE
    assert await listed(client) == [(GROUP, b"consumer")]
    (group,) = (await client.call_with_table(DescribeGroupsRequest(groups=[GROUP]), 4)).groups
    assert (group.group_state, group.protocol_type) == (b"Empty", b"consumer")
    assert await deleted(client) == Code.NONE
    assert await listed(client) == []
    assert await deleted(client) == Code.GROUP_ID_NOT_FOUND


async def test_a_group_without_members_and_commits_ends(broker: Broker, client: RawKafka) -> None:
    await one_left(client)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    now = trio.current_time()
    assert group.exists(now)
    assert not group.exists(now + EMPTY_KEPT_S)
    group.emptied_at -= EMPTY_KEPT_S
    assert await listed(client) == []
    assert await deleted(client) == Code.GROUP_ID_NOT_FOUND
