"""Refused requests about groups: over the wire."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action, Principal, Resource
from braidlog.broker.broker import Broker
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.kafka.classic_group import MEMBER_BYTES_MAX
from braidlog.protocols.kafka.classic_groups import REBALANCE_MS_MAX
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, FOO_NAME, join_request
from tests.protocols.kafka.test_classic_groups import GROUP, joined, synced


async def test_a_rebalance_timeout_has_a_limit(client: RawKafka) -> None:
    for timeout_ms, code in (
        (REBALANCE_MS_MAX, Code.MEMBER_ID_REQUIRED),
        (REBALANCE_MS_MAX + 1, Code.INVALID_REQUEST),
    ):
        request = join_request(rebalance_timeout_ms=timeout_ms)
        assert (await client.call_with_table(request, 5)).error_code == code


async def test_a_too_large_assignment_is_refused_and_a_smaller_accepted(
    client: RawKafka,
) -> None:
    first = await joined(client)
    for size, code in ((MEMBER_BYTES_MAX + 1, Code.INVALID_REQUEST), (10, Code.NONE)):
        assignments = [
            SyncGroupRequestAssignment(member_id=first.member_id, assignment=bytes(size))
        ]
        sync = SyncGroupRequest(
            group_id=GROUP,
            generation_id=first.generation_id,
            member_id=first.member_id,
            assignments=assignments,
        )
        assert (await client.call_with_table(sync, 3)).error_code == code


async def test_a_members_commit_for_an_empty_group_is_refused(client: RawKafka) -> None:
    targets = {FOO: {0: m.CommitTarget(3, b"")}}
    request = m.OffsetCommitRequest(5, b"none", 3, b"x", targets)
    assert (await client.call_with_table(request, 5)).topics[FOO][0] == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_members_commit_needs_the_right_to_the_group(
    broker: Broker, client: RawKafka, is_there: bool
) -> None:
    member_id, generation = b"x", 3
    if is_there:
        member = await joined(client)
        await synced(client, member)
        member_id, generation = member.member_id, member.generation_id
    broker.access = Access(NoGroup(b"group 'g'"))
    targets = {FOO: {0: m.CommitTarget(3, b"")}}
    request = m.OffsetCommitRequest(5, GROUP, generation, member_id, targets)
    code = (await client.call_with_table(request, 5)).topics[FOO][0]
    assert code == Code.GROUP_AUTHORIZATION_FAILED


class NoGroup:
    """Rules that allow everything except requests about a group."""

    def __init__(self, hidden: bytes) -> None:
        self.hidden = hidden

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        return self.hidden.decode() not in str(resource)

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        return True


async def test_hidden_groups_are_not_listed(broker: Broker, client: RawKafka) -> None:
    topic = broker.topics.get(FOO_NAME)
    for name in (b"seen", b"hidden"):
        broker.subscriptions.open(topic, name).commit(0, 0)
    broker.access = Access(NoGroup(b"hidden"))
    reply = await client.call_with_table(ListGroupsRequest(), 1)
    assert [group.group_id for group in reply.groups] == [b"seen"]
    (gone,) = (
        await client.call_with_table(DeleteGroupsRequest(groups_names=[b"hidden"]), 1)
    ).results
    assert gone.error_code in (Code.GROUP_AUTHORIZATION_FAILED, Code.GROUP_ID_NOT_FOUND)
    assert broker.subscriptions.find(topic, b"hidden") is not None


async def test_a_group_with_only_foreign_members_is_stable(
    broker: Broker, client: RawKafka
) -> None:
    topic = broker.topics.get(FOO_NAME)
    broker.subscriptions.open(topic, GROUP).commit(0, 0)
    theirs = SubscriptionMember("pulsar", "p", "127.0.0.1:1", [0], is_delivered_to=True)

    class OtherMembers:
        def others(self, *_: object) -> list[SubscriptionMember]:
            return [theirs]

        def __getattr__(self, name: str) -> object:
            return getattr(before, name)

    before, broker.members = broker.members, OtherMembers()
    (group,) = (await client.call_with_table(DescribeGroupsRequest(groups=[GROUP]), 1)).groups
    assert (group.error_code, group.group_state) == (Code.NONE, b"Stable")
    (member,) = group.members
    assert b"p" in member.client_id or b"p" in member.member_id


@pytest.mark.parametrize("members", [1])
async def test_a_past_generation_is_not_synced(client: RawKafka, members: int) -> None:
    first = await joined(client)
    await synced(client, first)
    old = SyncGroupRequest(
        group_id=GROUP,
        generation_id=first.generation_id - 1,
        member_id=first.member_id,
        assignments=[],
    )
    assert (await client.call_with_table(old, 3)).error_code == Code.ILLEGAL_GENERATION
