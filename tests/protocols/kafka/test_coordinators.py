"""Groups that another broker coordinates: members are sent there, waiting members included."""

import pytest
import trio
import trio.testing

from braidlog.broker.broker import Broker
from braidlog.broker.cluster.placement import NOBODY, Owner, Placement
from braidlog.protocols.kafka.classic_groups import MOVED_LOOK_S
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_coordinator import GroupCoordinator, groups_of
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupResponse
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, OpenClient, second_client
from tests.protocols.kafka.test_access import error_codes
from tests.protocols.kafka.test_classic_groups import GROUP, beat, join, joined, synced

OTHER = Owner(2, {"kafka": ("other", 9092)})


class NamesElsewhere(Placement):
    """A placement where topics are here, but names alone may belong to another broker."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator: Owner | None = None

    def owner_of_name(self, name: bytes) -> Owner | None:
        return self.coordinator

    def others(self) -> list[Owner]:
        return [OTHER]


@pytest.fixture
def placement(broker: Broker) -> NamesElsewhere:
    broker.placement = NamesElsewhere()
    return broker.placement


@pytest.mark.parametrize("owner", [OTHER, NOBODY])
async def test_every_request_about_a_group_of_another_broker_is_refused(
    client: RawKafka, placement: NamesElsewhere, owner: Owner
) -> None:
    placement.coordinator = owner
    for request, version in (
        (join(), 5),
        (SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=b"x", assignments=[]), 3),
        (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=b"x"), 3),
        (LeaveGroupRequest(group_id=GROUP, member_id=b"x"), 2),
    ):
        reply = await client.call_with_table(request, version)
        assert reply.error_code == Code.NOT_COORDINATOR, request
    for request in (
        DescribeGroupsRequest(groups=[GROUP]),
        DeleteGroupsRequest(groups_names=[GROUP]),
    ):
        reply = await client.call_with_table(request, 1)
        assert error_codes(reply) == [Code.NOT_COORDINATOR]
    coordinator = await client.call(m.ConsumerMetadataRequest(GROUP))
    assert isinstance(coordinator, m.ConsumerMetadataReply)
    if owner is OTHER:
        assert (
            coordinator.error,
            coordinator.coordinator.node_id,
            coordinator.coordinator.host,
        ) == (0, 2, b"other")
    else:
        assert coordinator.error == Code.CONSUMER_COORDINATOR_NOT_AVAILABLE


async def test_only_commits_of_members_need_the_coordinator(
    client: RawKafka, placement: NamesElsewhere
) -> None:
    first = await joined(client)
    await synced(client, first)
    placement.coordinator = OTHER

    async def commit(generation: int, member_id: bytes) -> int:
        targets = {FOO: {0: m.CommitTarget(3, b"")}}
        request = m.OffsetCommitRequest(5, GROUP, generation, member_id, targets)
        return (await client.call_with_table(request, 5)).topics[FOO][0]

    assert await commit(first.generation_id, first.member_id) == Code.NOT_COORDINATOR
    assert await commit(-1, b"") == Code.NONE
    assert await beat(client, first) == Code.NOT_COORDINATOR


async def test_a_waiting_join_ends_when_the_group_moves(
    broker: Broker, client: RawKafka, open_client: OpenClient, placement: NamesElsewhere
) -> None:
    first = await joined(client)
    await synced(client, first)
    other = await second_client(open_client)
    promised = await other.call_with_table(join(), 5)
    replies: list[JoinGroupResponse] = []

    async def wait() -> None:
        replies.append(await other.call_with_table(join(promised.member_id), 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        while await beat(client, first) != Code.REBALANCE_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        placement.coordinator = OTHER
        table = groups_of(broker, "public/default")
        group = table.find(GROUP)
        assert group is not None
        group.members[promised.member_id].wake()  # As after MOVED_LOOK_S.
    assert replies[0].error_code == Code.NOT_COORDINATOR


async def test_a_wait_for_a_group_is_interrupted_to_check_for_a_move(
    autojump_clock: trio.testing.MockClock,
) -> None:
    table = GroupCoordinator()
    group = table.get(GROUP)
    member = group.admit(join(session_ms=1_000_000), (b"c", b"/h"), trio.current_time())
    begun = trio.current_time()
    await table.wait(member, MOVED_LOOK_S)
    assert trio.current_time() - begun == pytest.approx(MOVED_LOOK_S)
