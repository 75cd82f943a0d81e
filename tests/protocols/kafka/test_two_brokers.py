"""Groups with positions on topics of two brokers: each broker serves both."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.alone import Alone
from braidlog.broker.cluster.peers import Asker, Committed, Place, Standing
from braidlog.broker.cluster.placement import Tries
from braidlog.broker.errors import BrokerError, NotOwner, Unanswered
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.kafka import commits
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire import alter_share_group_offsets as alter
from braidlog.protocols.kafka.wire import delete_share_group_offsets as delete
from braidlog.protocols.kafka.wire import describe_share_group_offsets as describe
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.nodes import SteppedBroker, topic_of, two_brokers
from tests.listeners import open_listeners
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.storage.shared.shared_dirs import SharedStore

GROUP = b"g"


class CutOff(Alone):
    """Peers that no call reaches."""

    async def positions(
        self, asker: Asker, group: bytes, namespace: tuple[str, str]
    ) -> Sequence[Place]:
        raise NotOwner("broker 2 is not reached")

    async def end_group(self, asker: Asker, group: bytes, namespace: tuple[str, str]) -> bool:
        raise NotOwner("broker 2 is not reached")


class TwoBrokers:
    """A client of the first of two brokers, and the topics of both."""

    def __init__(
        self, nodes: Sequence[SteppedBroker], names: Sequence[TopicName], client: RawKafka
    ) -> None:
        self.first, self.second = nodes
        self.mine, self.theirs = (name.topic.encode() for name in names)
        self.client = client

    async def commit(self, *offsets: tuple[bytes, int, int]) -> list[int]:
        """Commit (topic, partition, offset) entries at once; return the codes."""
        topics: dict[bytes | None, dict[int, m.CommitTarget]] = {}
        for topic, index, offset in offsets:
            target = m.CommitTarget(offset, b"at %d" % offset)
            topics.setdefault(topic, {})[index] = target
        request = m.OffsetCommitRequest(2, GROUP, -1, b"", topics)
        reply = await self.client.call_with_table(request, 2)
        return [reply.topics[topic][index] for topic, index, _ in offsets]

    async def fetch(self, version: int, *wanted: tuple[bytes, int]) -> m.OffsetFetchReply:
        """Return the answer to an OffsetFetch."""
        topics: dict[bytes | None, dict[int, None]] = {}
        for topic, index in wanted:
            topics.setdefault(topic, {})[index] = None
        request = m.OffsetFetchRequest(version, GROUP, topics)
        reply = await self.client.call_with_table(request, version)
        assert isinstance(reply, m.OffsetFetchReply)
        return reply

    async def committed(self, *wanted: tuple[bytes, int]) -> list[tuple[int, bytes, int]]:
        """Return offset, metadata and code of each place."""
        reply = await self.fetch(1, *wanted)
        positions = [reply.topics[topic][index] for topic, index in wanted]
        return [(position.offset, position.metadata, position.error) for position in positions]

    async def everything(self) -> m.OffsetFetchReply:
        """Return all positions of the group."""
        reply = await self.client.call_with_table(m.OffsetFetchRequest(2, GROUP, None), 2)
        assert isinstance(reply, m.OffsetFetchReply)
        return reply

    async def state(self) -> tuple[int, bytes]:
        """Return the group's state, as tools see it."""
        (group,) = (
            await self.client.call_with_table(DescribeGroupsRequest(groups=[GROUP]), 1)
        ).groups
        return group.error_code, group.group_state

    async def delete(self) -> int:
        (group,) = (
            await self.client.call_with_table(DeleteGroupsRequest(groups_names=[GROUP]), 1)
        ).results
        return int(group.error_code)

    def cut_off(self) -> None:
        """Make the second broker unreachable."""
        self.first.broker.peers = CutOff()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    async with two_brokers(SharedStore(tmp_path)) as (nodes, names):
        # Either broker may coordinate the group.
        nodes[0].broker.placement.owner_of_name = lambda name: None
        async with open_listeners(nodes[0].broker) as connect:
            yield TwoBrokers(nodes, names, RawKafka(await connect("kafka")))


async def test_positions_are_kept_by_the_owner_of_each_topic(cluster: TwoBrokers) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    assert await cluster.commit((mine, 0, 3), (theirs, 1, 5), (theirs, 0, 7)) == [0, 0, 0]
    owner = cluster.second.broker
    topic = owner.topics.get(TopicName("public", "default", theirs.decode()))
    subscription = owner.subscriptions.get(topic, GROUP)
    assert (subscription.position(0), subscription.position(1)) == (7, 5)
    assert await cluster.committed((theirs, 1), (mine, 0), (mine, 1), (theirs, 0)) == [
        (5, b"at 5", 0),
        (3, b"at 3", 0),
        (-1, b"", 0),
        (7, b"at 7", 0),
    ]


async def test_all_positions_are_those_of_both_brokers(cluster: TwoBrokers) -> None:
    await cluster.commit((cluster.mine, 0, 3), (cluster.theirs, 1, 5))
    topics = (await cluster.everything()).topics
    offsets = {
        name: {n: position.offset for n, position in partitions.items()}
        for name, partitions in topics.items()
    }
    assert offsets == {cluster.mine: {0: 3}, cluster.theirs: {1: 5}}


async def test_a_group_with_positions_only_at_another_broker_exists(cluster: TwoBrokers) -> None:
    assert await cluster.state() == (Code.NONE, b"Dead")
    await cluster.commit((cluster.theirs, 0, 5))
    assert await cluster.state() == (Code.NONE, b"Empty")
    assert await cluster.delete() == Code.NONE
    assert await cluster.committed((cluster.theirs, 0)) == [(-1, b"", 0)]
    assert await cluster.delete() == Code.GROUP_ID_NOT_FOUND


async def test_a_group_with_readers_at_another_broker_is_kept(
    cluster: TwoBrokers,
) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 7))
    readers = [SubscriptionMember("pulsar", "p", "", (0,))]
    cluster.second.broker.members.add_source(lambda topic, name: readers)
    assert await cluster.delete() == Code.NON_EMPTY_GROUP
    positions = await cluster.committed((mine, 0), (theirs, 0))
    assert [offset for offset, _, _ in positions] == [3, 7]
    readers.clear()
    assert await cluster.delete() == Code.NONE


async def test_clients_retry_if_the_other_broker_is_unreachable(cluster: TwoBrokers) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 5))
    cluster.cut_off()
    again = Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await cluster.commit((mine, 0, 4), (theirs, 0, 6)) == [Code.NONE, again]
    assert await cluster.committed((mine, 0), (theirs, 0)) == [(4, b"at 4", 0), (-1, b"", again)]
    assert (await cluster.everything()).error == again
    assert await cluster.delete() == Code.CONSUMER_COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", [1, 2, 5])
async def test_positions_wait_for_the_new_owner_of_a_topic(
    cluster: TwoBrokers, version: int
) -> None:
    """Clients stop reading a partition whose position was an error."""
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 5))
    peers, calls = cluster.first.broker.peers, 0

    class OwnerlessPeers(Alone):
        """Other brokers where the topic has no owner at first."""

        def tries(self, seconds: float) -> Tries:
            return peers.tries(seconds)

        async def committed(
            self, asker: Asker, group: bytes, wanted: Sequence[tuple[int, Place]], deadline: float
        ) -> Mapping[Place, Committed | BrokerError]:
            nonlocal calls
            calls += 1
            if calls < 3:
                return {place: NotOwner("it moves") for _, place in wanted}
            return await peers.committed(asker, group, wanted, deadline)

    cluster.first.broker.peers = OwnerlessPeers()
    reply = await cluster.fetch(version, (mine, 0), (theirs, 0))
    assert (reply.error, calls) == (0, 3)
    assert (reply.topics[mine][0].offset, reply.topics[theirs][0].offset) == (3, 5)


async def test_without_an_owner_the_whole_answer_fails_in_later_versions(
    cluster: TwoBrokers,
) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 5))
    cluster.cut_off()
    again = Code.COORDINATOR_LOAD_IN_PROGRESS
    reply = await cluster.fetch(1, (mine, 0), (theirs, 0))
    assert (reply.topics[mine][0].error, reply.topics[theirs][0].error) == (0, again)
    for version in (2, 5):
        reply = await cluster.fetch(version, (mine, 0), (theirs, 0))
        assert (reply.error, reply.topics) == (again, {})


async def test_a_hanging_broker_is_awaited_no_longer_than_a_new_owner(cluster: TwoBrokers) -> None:
    peers = cluster.first.broker.peers

    class HangingPeers(Alone):
        """Other brokers that answer nothing until the deadline."""

        def tries(self, seconds: float) -> Tries:
            assert seconds == commits.FIND_S
            return peers.tries(0.01)

        async def ask(self, *_: object) -> NoReturn:
            await trio.sleep_forever()

    cluster.first.broker.peers = HangingPeers()
    with trio.fail_after(10):
        reply = await cluster.fetch(2, (cluster.theirs, 0))
    assert reply.error == Code.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", [1, 2])
async def test_a_topic_deleted_at_its_owner_fails_no_other_topic(
    cluster: TwoBrokers, version: int
) -> None:
    """The asked broker has not followed the deletion yet."""
    theirs = TopicName("public", "default", cluster.theirs.decode())
    owned = topic_of(cluster.second.held, "other")
    await cluster.first.broker.topics.create(owned, 1)
    other = owned.topic.encode()
    await cluster.commit((cluster.theirs, 0, 5), (other, 0, 7))
    topics = cluster.second.parts.topics
    topics.forget(topics.get(theirs), 0)
    reply = await cluster.fetch(version, (cluster.theirs, 0), (other, 0))
    assert (reply.error, reply.topics[other][0].offset) == (0, 7)
    gone = reply.topics[cluster.theirs][0]
    expected = Code.UNKNOWN_TOPIC_OR_PARTITION if version < 2 else Code.NONE
    assert (gone.offset, gone.error) == (-1, expected)


async def test_a_refusal_of_the_owner_is_returned(cluster: TwoBrokers) -> None:
    class Rules:
        """Rules that forbid consuming."""

        def allows(self, principal: object, action: Action, resource: Resource) -> bool:
            return action is not Action.CONSUME

    cluster.second.broker.access.rules = Rules()
    (code,) = await cluster.commit((cluster.theirs, 0, 5))
    assert code == Code.TOPIC_AUTHORIZATION_FAILED


async def test_a_share_groups_positions_are_shown_moved_and_ended_at_their_owners(
    cluster: TwoBrokers,
) -> None:
    mine, theirs, call = cluster.mine, cluster.theirs, cluster.client.call_whole
    move = alter.AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            alter.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
                ],
            )
            for name in (mine, theirs)
        ],
    )
    moved = (await call(move, 0)).responses
    assert [topic.partitions[0].error_code for topic in moved] == [Code.NONE] * 2

    async def positions(names: Sequence[bytes] | None) -> dict[bytes, list[tuple[int, int, int]]]:
        topics = None
        if names is not None:
            topics = [
                describe.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
                for name in names
            ]
        wanted = describe.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)
        (group,) = (
            await call(describe.DescribeShareGroupOffsetsRequest(groups=[wanted]), 1)
        ).groups
        assert group.error_code == Code.NONE
        return {
            topic.topic_name: [
                (part.start_offset, part.lag, part.error_code) for part in topic.partitions
            ]
            for topic in group.topics
        }

    assert await positions([mine, theirs]) == {mine: [(0, 0, 0)], theirs: [(0, 0, 0)]}
    # As in Kafka, the other partition of each topic is shown without a position.
    places = [(0, 0, 0), (-1, -1, 0)]
    assert await positions(None) == {mine: places, theirs: places}
    end = delete.DeleteShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (mine, theirs)
        ],
    )
    ended = (await call(end, 0)).responses
    assert [topic.error_code for topic in ended] == [Code.NONE] * 2
    assert await positions(None) == {}
    assert await positions([theirs]) == {theirs: [(-1, -1, 0)]}
    again = await call(end, 0)  # The group was moved, and so exists until it is deleted.
    assert {part.error_code for part in again.responses} == {Code.UNKNOWN_TOPIC_OR_PARTITION}


async def test_an_owner_answers_when_a_crash_takes_back_no_position(cluster: TwoBrokers) -> None:
    owner = cluster.second.broker
    name = TopicName("public", "default", cluster.theirs.decode())
    owner.subscriptions.open(owner.topics.get(name), GROUP).commit(0, 5)
    assert await cluster.committed((cluster.theirs, 0)) == [(5, b"", 0)]
    assert owner.subscriptions.flush_lazy() <= owner.durability.durable_ticket


class SilentOwners(Alone):
    """Peers that answer nothing about positions; each call would wait for its time limit."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def standing(self, node: int, asker: Asker, group: bytes, place: Place) -> Standing:
        self.calls.append("standing")
        raise NotOwner("broker 2 is not reached")

    async def seek(self, node: int, asker: Asker, group: bytes, place: Place, offset: int) -> None:
        self.calls.append("seek")
        raise Unanswered("broker 2 has not answered")


async def test_a_silent_owner_of_a_share_groups_topic_is_asked_once(cluster: TwoBrokers) -> None:
    cluster.first.broker.peers = peers = SilentOwners()
    move = alter.AlterShareGroupOffsetsRequestTopic(
        topic_name=cluster.theirs,
        partitions=[
            alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
            for index in (0, 1)
        ],
    )
    moving = alter.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[move])
    look = describe.DescribeShareGroupOffsetsRequestTopic(
        topic_name=cluster.theirs, partitions=[0, 1]
    )
    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[look])
    looking = describe.DescribeShareGroupOffsetsRequest(groups=[group])
    (moved,) = (await cluster.client.call_whole(moving, 0)).responses
    (shown,) = (await cluster.client.call_whole(looking, 1)).groups
    for topic in (moved, *shown.topics):
        codes = [partition.error_code for partition in topic.partitions]
        assert codes == [Code.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert peers.calls == ["seek", "standing"]


async def test_a_missing_partition_of_another_broker_leaves_no_share_group(
    cluster: TwoBrokers,
) -> None:
    place = alter.AlterShareGroupOffsetsRequestPartition(partition_index=99, start_offset=0)
    topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name=cluster.theirs, partitions=[place])
    request = alter.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
    (moved,) = (await cluster.client.call_whole(request, 0)).responses
    assert moved.partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    owner = cluster.second.broker
    name = TopicName("public", "default", cluster.theirs.decode())
    assert owner.subscriptions.names(owner.topics.get(name)) == []
