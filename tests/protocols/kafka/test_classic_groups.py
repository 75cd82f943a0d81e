"""Consumer groups over the wire: two connections, and the view of tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.kafka.classic_group import GroupState
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import GroupCoordinator, groups_of
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
)
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, OpenClient, join_request, second_client
from tests.waiting import until

GROUP = b"g"


def join(member_id: bytes = b"", *, session_ms: int = 10_000) -> JoinGroupRequest:
    return join_request(member_id=member_id, session_timeout_ms=session_ms)


async def joined(client: RawKafka, **fields: int) -> JoinGroupResponse:
    promised = await client.call_with_table(join(), 5)
    assert promised.error_code == Code.MEMBER_ID_REQUIRED
    return await client.call_with_table(join(promised.member_id, **fields), 5)


async def synced(client: RawKafka, reply: JoinGroupResponse, *others: bytes) -> SyncGroupResponse:
    assignments = [
        SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"of " + member.member_id)
        for member in reply.members
    ]
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=reply.generation_id,
        member_id=reply.member_id,
        assignments=assignments,
    )
    return await client.call_with_table(sync, 3)


async def beat(client: RawKafka, reply: JoinGroupResponse) -> int:
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=reply.generation_id, member_id=reply.member_id
    )
    return (await client.call_with_table(request, 3)).error_code


async def two_members(
    client: RawKafka, open_client: OpenClient
) -> tuple[RawKafka, JoinGroupResponse, JoinGroupResponse]:
    """Return both members of the same generation; the first leads."""
    other = await second_client(open_client)
    first = await joined(client)
    await synced(client, first)
    replies: dict[str, JoinGroupResponse] = {}

    async def second() -> None:
        replies["second"] = await joined(other)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second)
        while await beat(client, first) != Code.REBALANCE_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        replies["first"] = await client.call_with_table(join(first.member_id), 5)
    return other, replies["first"], replies["second"]


async def test_two_members_share_the_partitions(client: RawKafka, open_client: OpenClient) -> None:
    other, first, second = await two_members(client, open_client)
    assert first.generation_id == second.generation_id == 2
    assert (len(first.members), len(second.members)) == (2, 0)
    assert first.leader == second.leader == first.member_id
    answers: list[bytes] = []

    async def follow() -> None:
        answers.append((await synced(other, second)).assignment)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        assert (await synced(client, first)).assignment == b"of " + first.member_id
    assert answers == [b"of " + second.member_id]
    assert await beat(client, first) == await beat(other, second) == Code.NONE


async def test_a_leave_makes_the_other_member_rejoin(
    client: RawKafka, open_client: OpenClient
) -> None:
    other, first, second = await two_members(client, open_client)
    await synced(client, first)
    leave = LeaveGroupRequest(
        group_id=GROUP, member_id=None, members=[MemberIdentity(member_id=second.member_id)]
    )
    left = await other.call_with_table(leave, 3)
    assert [member.error_code for member in left.members] == [Code.NONE]
    assert await beat(client, first) == Code.REBALANCE_IN_PROGRESS
    again = await client.call_with_table(join(first.member_id), 5)
    assert len(again.members) == 1
    assert await beat(other, second) == Code.UNKNOWN_MEMBER_ID


@asynccontextmanager
async def another_waits(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> AsyncIterator[tuple[JoinGroupResponse, RawKafka, trio.Nursery]]:
    """Yield a group's only member, another client that waits to join, and the
    nursery of the wait.
    """
    first = await joined(client)
    await synced(client, first)
    other = await second_client(open_client)
    promised = await other.call_with_table(join(), 5)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(other.call_with_table, join(promised.member_id), 5))
        await until(lambda: group.state is GroupState.PREPARING)
        yield first, other, nursery


async def test_a_disconnect_during_a_join_does_not_block_the_group(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    async with another_waits(broker, client, open_client) as (first, other, nursery):
        nursery.cancel_scope.cancel()
    await other.stream.aclose()
    again = await client.call_with_table(join(first.member_id), 5)
    assert again.generation_id == 2


@pytest.mark.parametrize(
    ("instance", "code"),
    [(None, Code.UNKNOWN_MEMBER_ID), (b"static", Code.FENCED_INSTANCE_ID)],
)
async def test_a_join_over_two_connections_counts_for_the_later(
    broker: Broker,
    client: RawKafka,
    open_client: OpenClient,
    instance: bytes | None,
    code: Code,
) -> None:
    """The member may be the same after a broken connection, or another member with
    its static name.
    """
    first = await joined(client)
    await synced(client, first)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    clients = [await second_client(open_client), await second_client(open_client)]
    member_id = b""
    if instance is None:
        member_id = (await clients[0].call_with_table(join(), 5)).member_id
    request = join(member_id)
    request.group_instance_id = instance
    replies: dict[int, JoinGroupResponse] = {}

    async def wait(number: int) -> None:
        replies[number] = await clients[number].call_with_table(request, 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 0)
        await until(lambda: len(group.members) == 2)
        nursery.start_soon(wait, 1)
        await until(lambda: replies)
        assert replies[0].error_code == code
        assert [member.parked for member in group.members.values()] == [False, True]
        again = await client.call_with_table(join(first.member_id), 5)
    assert (replies[1].error_code, replies[1].generation_id) == (Code.NONE, again.generation_id)
    assert [member.member_id for member in again.members] == [first.member_id, replies[1].member_id]


async def test_a_sync_ends_when_its_member_joins_again_over_another_connection(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    other, _, second = await two_members(client, open_client)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    member = group.members[second.member_id]
    replies: list[SyncGroupResponse] = []

    async def follow() -> None:
        replies.append(await synced(other, second))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await until(lambda: bool(member.wakers))
        newer = await second_client(open_client)
        again = await newer.call_with_table(join(second.member_id), 5)
        assert (again.generation_id, group.state) == (2, GroupState.COMPLETING)
        with trio.move_on_after(5):  # Less than a minute, should it hang.
            await until(lambda: bool(replies))
        nursery.cancel_scope.cancel()
    assert [reply.error_code for reply in replies] == [Code.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join_request(group_id=b""), Code.INVALID_GROUP_ID),
        (join_request(session_timeout_ms=1), Code.INVALID_SESSION_TIMEOUT),
        (join_request(session_timeout_ms=2**31 - 1), Code.INVALID_SESSION_TIMEOUT),
        (join_request({}, member_id=b"x"), Code.INCONSISTENT_GROUP_PROTOCOL),
        (join(b"x"), Code.UNKNOWN_MEMBER_ID),
        (
            SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=b"x", assignments=[]),
            Code.UNKNOWN_MEMBER_ID,
        ),
        (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=b"x"), Code.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest(group_id=None, generation_id=1, member_id=b"x"), Code.INVALID_GROUP_ID),
        (LeaveGroupRequest(group_id=GROUP, member_id=b"x"), Code.UNKNOWN_MEMBER_ID),
    ],
)
async def test_invalid_group_requests_are_refused(
    client: RawKafka, request_: object, code: Code
) -> None:
    reply = await client.call_with_table(request_, 1)
    assert reply.error_code == code


async def test_commits_of_members_are_checked_and_others_accepted(
    client: RawKafka,
) -> None:
    first = await joined(client)
    await synced(client, first)

    async def commit(generation: int, member_id: bytes) -> int:
        targets = {FOO: {0: m.CommitTarget(3, b"")}}
        request = m.OffsetCommitRequest(5, GROUP, generation, member_id, targets)
        return (await client.call_with_table(request, 5)).topics[FOO][0]

    assert await commit(first.generation_id, first.member_id) == Code.NONE
    assert await commit(first.generation_id + 1, first.member_id) == Code.ILLEGAL_GENERATION
    assert await commit(first.generation_id, b"x") == Code.UNKNOWN_MEMBER_ID
    assert await commit(-1, b"") == Code.NONE


async def test_the_view_of_tools(client: RawKafka) -> None:
    first = await joined(client)
    await synced(client, first)
    targets = {FOO: {0: m.CommitTarget(3, b"")}}
    for name in (GROUP, b"positions"):
        commit = m.OffsetCommitRequest(5, name, -1, b"", targets)
        await client.call_with_table(commit, 5)
    listed = (await client.call_with_table(ListGroupsRequest(), 2)).groups
    assert [(group.group_id, group.protocol_type) for group in listed] == [
        (GROUP, b"consumer"),
        (b"positions", b""),
    ]
    wanted = DescribeGroupsRequest(groups=[GROUP, b"positions", b"none"])
    described = (await client.call_with_table(wanted, 4)).groups
    assert [(group.error_code, group.group_state) for group in described] == [
        (0, b"Stable"),
        (0, b"Empty"),
        (0, b"Dead"),
    ]
    (member,) = described[0].members
    assert (member.client_id, member.client_host) == (b"t", b"/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (
        b"topics",
        b"of " + first.member_id,
    )
    deleted = await client.call_with_table(
        DeleteGroupsRequest(groups_names=[GROUP, b"positions", b"none"]), 1
    )
    assert [result.error_code for result in deleted.results] == [
        Code.NON_EMPTY_GROUP,
        Code.NONE,
        Code.GROUP_ID_NOT_FOUND,
    ]
    listed = (await client.call_with_table(ListGroupsRequest(), 2)).groups
    assert [group.group_id for group in listed] == [GROUP]


async def test_a_group_with_readers_of_other_protocols_is_not_deleted(
    broker: Broker, client: RawKafka
) -> None:
    commit = m.OffsetCommitRequest(5, GROUP, -1, b"", {FOO: {0: m.CommitTarget(3, b"")}})
    await client.call_with_table(commit, 5)
    readers = [SubscriptionMember("pulsar", "p", "", (0,))]
    broker.members.add_source(lambda topic, name: readers if name == GROUP else ())

    async def delete() -> int:
        reply = await client.call_with_table(DeleteGroupsRequest(groups_names=[GROUP]), 1)
        return int(reply.results[0].error_code)

    (topic,) = broker.topics.all()
    assert await delete() == Code.NON_EMPTY_GROUP
    assert broker.subscriptions.get(topic, GROUP).position(0) == 3
    readers.clear()
    assert await delete() == Code.NONE
    assert broker.subscriptions.find(topic, GROUP) is None


async def test_every_group_with_members_is_watched(
    broker: Broker, client: RawKafka, open_client: OpenClient
) -> None:
    other, first, second = await two_members(client, open_client)
    third = await second_client(open_client)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None and group.watched
    member = group.members[first.member_id]
    await client.stream.aclose()  # This also ends the watching task.
    await until(lambda: member.speaks_over is None)
    assert group.watched  # The other member's connection has taken over.
    await other.stream.aclose()
    await until(lambda: not group.watched)
    assert group.members
    await beat(third, second)
    assert group.watched


async def test_a_dead_member_is_found_after_its_timeout(autojump_clock: trio.abc.Clock) -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    group.admit(join(session_ms=6000), (b"c", b"/h"), trio.current_time())
    begun = trio.current_time()
    group.watch_begins()
    await table.watch(group)
    assert trio.current_time() == pytest.approx(begun + 6)
    assert not group.members
    assert not group.watched
