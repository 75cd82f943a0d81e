"""Consumer groups through the wire: two connections, and what tools see."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.positions.members import Member
from braidlog.protocols.kafka import group_messages as g
from braidlog.protocols.kafka import messages as m
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_table import GroupTable, groups_of
from braidlog.protocols.kafka.membership import State
from tests.protocols.kafka.frames import Client
from tests.protocols.kafka.talk import FOO, OpenClient, another
from tests.waiting import until

GROUP = b"g"


def join(member_id: bytes = b"", *, session_ms: int = 10_000) -> g.JoinGroupRequest:
    protocols = [g.GroupProtocol(b"range", b"topics")]
    return g.JoinGroupRequest(GROUP, session_ms, member_id, b"consumer", protocols, 60_000)


async def joined(client: Client, **fields: int) -> g.JoinGroupReply:
    promised = await client.call_with_table(join(), 5)
    assert promised.error == Code.MEMBER_ID_REQUIRED
    return await client.call_with_table(join(promised.member_id, **fields), 5)


async def synced(client: Client, reply: g.JoinGroupReply, *others: bytes) -> g.SyncGroupReply:
    given = [g.Assigned(one.member_id, b"of " + one.member_id) for one in reply.members]
    sync = g.SyncGroupRequest(GROUP, reply.generation, reply.member_id, given)
    return await client.call_with_table(sync, 3)


async def beat(client: Client, reply: g.JoinGroupReply) -> int:
    request = g.HeartbeatRequest(GROUP, reply.generation, reply.member_id)
    return (await client.call_with_table(request, 3)).error


async def two_members(
    client: Client, open_client: OpenClient
) -> tuple[Client, g.JoinGroupReply, g.JoinGroupReply]:
    """Both have joined the same generation; the first leads."""
    other = await another(open_client)
    first = await joined(client)
    await synced(client, first)
    replies: dict[str, g.JoinGroupReply] = {}

    async def second() -> None:
        replies["second"] = await joined(other)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second)
        while await beat(client, first) != Code.REBALANCE_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        replies["first"] = await client.call_with_table(join(first.member_id), 5)
    return other, replies["first"], replies["second"]


async def test_two_members_share_out(client: Client, open_client: OpenClient) -> None:
    other, first, second = await two_members(client, open_client)
    assert first.generation == second.generation == 2
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


async def test_a_member_that_leaves_lets_the_other_join_again(
    client: Client, open_client: OpenClient
) -> None:
    other, first, second = await two_members(client, open_client)
    await synced(client, first)
    leave = g.LeaveGroupRequest(GROUP, None, [g.Leaving(second.member_id)])
    left = await other.call_with_table(leave, 3)
    assert [one.error for one in left.members] == [Code.NONE]
    assert await beat(client, first) == Code.REBALANCE_IN_PROGRESS
    again = await client.call_with_table(join(first.member_id), 5)
    assert len(again.members) == 1
    assert await beat(other, second) == Code.UNKNOWN_MEMBER_ID


@asynccontextmanager
async def another_waits(
    broker: Broker, client: Client, open_client: OpenClient
) -> AsyncIterator[tuple[g.JoinGroupReply, Client, trio.Nursery]]:
    """A group of one that another client waits to join: the member, that client, and where it
    waits.
    """
    first = await joined(client)
    await synced(client, first)
    other = await another(open_client)
    promised = await other.call_with_table(join(), 5)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(other.call_with_table, join(promised.member_id), 5))
        await until(lambda: group.state is State.PREPARING)
        yield first, other, nursery


async def test_a_client_that_goes_while_it_waits_to_join_is_not_waited_for_for_ever(
    broker: Broker, client: Client, open_client: OpenClient
) -> None:
    async with another_waits(broker, client, open_client) as (first, other, nursery):
        nursery.cancel_scope.cancel()
    await other.stream.aclose()
    again = await client.call_with_table(join(first.member_id), 5)
    assert again.generation == 2


@pytest.mark.parametrize(
    ("instance", "code"),
    [(None, Code.UNKNOWN_MEMBER_ID), (b"static", Code.FENCED_INSTANCE_ID)],
)
async def test_who_waits_to_join_over_two_connections_has_joined_by_the_later_one(
    broker: Broker, client: Client, open_client: OpenClient, instance: bytes | None, code: Code
) -> None:
    """The same member after its connection broke, or another with its static name."""
    first = await joined(client)
    await synced(client, first)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None
    clients = [await another(open_client), await another(open_client)]
    member_id = b""
    if instance is None:
        member_id = (await clients[0].call_with_table(join(), 5)).member_id
    request = dataclasses.replace(join(member_id), instance_id=instance)
    replies: dict[int, g.JoinGroupReply] = {}

    async def wait(number: int) -> None:
        replies[number] = await clients[number].call_with_table(request, 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 0)
        await until(lambda: len(group.members) == 2)
        nursery.start_soon(wait, 1)
        await until(lambda: replies)
        assert replies[0].error == code
        assert [one.parked for one in group.members.values()] == [False, True]
        again = await client.call_with_table(join(first.member_id), 5)
    assert (replies[1].error, replies[1].generation) == (Code.NONE, again.generation)
    assert [one.member_id for one in again.members] == [first.member_id, replies[1].member_id]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (g.JoinGroupRequest(b"", 10_000, b"", b"consumer", []), Code.INVALID_GROUP_ID),
        (g.JoinGroupRequest(GROUP, 1, b"", b"consumer", []), Code.INVALID_SESSION_TIMEOUT),
        (g.JoinGroupRequest(GROUP, 2**31 - 1, b"", b"c", []), Code.INVALID_SESSION_TIMEOUT),
        (g.JoinGroupRequest(GROUP, 9999, b"x", b"c", []), Code.INCONSISTENT_GROUP_PROTOCOL),
        (join(b"x"), Code.UNKNOWN_MEMBER_ID),
        (g.SyncGroupRequest(GROUP, 1, b"x", []), Code.UNKNOWN_MEMBER_ID),
        (g.HeartbeatRequest(GROUP, 1, b"x"), Code.UNKNOWN_MEMBER_ID),
        (g.HeartbeatRequest(None, 1, b"x"), Code.INVALID_GROUP_ID),
        (g.LeaveGroupRequest(GROUP, b"x"), Code.UNKNOWN_MEMBER_ID),
    ],
)
async def test_what_is_refused(client: Client, request_: object, code: Code) -> None:
    reply = await client.call_with_table(request_, 1)
    assert reply.error == code


async def test_commits_of_members_are_checked_and_those_of_no_member_are_taken(
    client: Client,
) -> None:
    first = await joined(client)
    await synced(client, first)

    async def commit(generation: int, member_id: bytes) -> int:
        targets = {FOO: {0: m.CommitTarget(3, b"")}}
        request = m.OffsetCommitRequest(5, GROUP, generation, member_id, targets)
        return (await client.call_with_table(request, 5)).topics[FOO][0]

    assert await commit(first.generation, first.member_id) == Code.NONE
    assert await commit(first.generation + 1, first.member_id) == Code.ILLEGAL_GENERATION
    assert await commit(first.generation, b"x") == Code.UNKNOWN_MEMBER_ID
    assert await commit(-1, b"") == Code.NONE


async def test_what_tools_see(client: Client) -> None:
    first = await joined(client)
    await synced(client, first)
    targets = {FOO: {0: m.CommitTarget(3, b"")}}
    for name in (GROUP, b"positions"):
        commit = m.OffsetCommitRequest(5, name, -1, b"", targets)
        await client.call_with_table(commit, 5)
    listed = (await client.call_with_table(g.ListGroupsRequest(), 2)).groups
    assert [(one.group, one.protocol_type) for one in listed] == [
        (GROUP, b"consumer"),
        (b"positions", b""),
    ]
    asked = g.DescribeGroupsRequest([GROUP, b"positions", b"none"])
    found = (await client.call_with_table(asked, 4)).groups
    assert [(one.error, one.state) for one in found] == [
        (0, b"Stable"),
        (0, b"Empty"),
        (0, b"Dead"),
    ]
    (member,) = found[0].members
    assert (member.client_id, member.client_host) == (b"t", b"/127.0.0.1")
    assert (member.metadata, member.assignment) == (b"topics", b"of " + first.member_id)
    deleted = await client.call_with_table(g.DeleteGroupsRequest([GROUP, b"positions", b"none"]), 1)
    assert [one.error for one in deleted.groups] == [
        Code.NON_EMPTY_GROUP,
        Code.NONE,
        Code.GROUP_ID_NOT_FOUND,
    ]
    listed = (await client.call_with_table(g.ListGroupsRequest(), 2)).groups
    assert [one.group for one in listed] == [GROUP]


async def test_a_group_that_other_protocols_read_is_not_deleted(
    broker: Broker, client: Client
) -> None:
    commit = m.OffsetCommitRequest(5, GROUP, -1, b"", {FOO: {0: m.CommitTarget(3, b"")}})
    await client.call_with_table(commit, 5)
    readers = [Member("pulsar", "p", "", (0,))]
    broker.members.add_source(lambda topic, name: readers if name == GROUP else ())

    async def delete() -> int:
        reply = await client.call_with_table(g.DeleteGroupsRequest([GROUP]), 1)
        return int(reply.groups[0].error)

    (topic,) = broker.topics.all()
    assert await delete() == Code.NON_EMPTY_GROUP
    assert broker.subscriptions.get(topic, GROUP).position(0) == 3
    readers.clear()
    assert await delete() == Code.NONE
    assert broker.subscriptions.find(topic, GROUP) is None


async def test_every_group_with_members_is_watched(
    broker: Broker, client: Client, open_client: OpenClient
) -> None:
    other, _, second = await two_members(client, open_client)
    group = groups_of(broker, "public/default").find(GROUP)
    assert group is not None and group.watched
    await client.stream.aclose()  # With it goes the task that watched.
    await until(lambda: not group.watched)
    assert group.members
    await beat(other, second)
    assert group.watched


async def test_a_dead_member_is_found_when_its_time_is_up(autojump_clock: trio.abc.Clock) -> None:
    table = GroupTable()
    group = table.get(GROUP)
    group.admit(join(session_ms=6000), (b"c", b"/h"), trio.current_time())
    begun = trio.current_time()
    group.watched = True
    await table.watch(group)
    assert trio.current_time() == pytest.approx(begun + 6)
    assert not group.members
    assert not group.watched
