"""Groups with positions on topics of two brokers: each broker serves both."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.alone import Alone
from braidlog.broker.cluster.peers import Asker, Committed, Place
from braidlog.broker.cluster.placement import Tries
from braidlog.broker.errors import BrokerError, NotOwner
from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.kafka import commits
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.storage.metadata.names import TopicName
from tests.broker.cluster.nodes import Node, topic_of, two_brokers
from tests.listeners import open_listeners
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import Client
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


class Cluster:
    """A client of the first of two brokers, and the topics of both."""

    def __init__(self, nodes: Sequence[Node], names: Sequence[TopicName], client: Client) -> None:
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
        found = [reply.topics[topic][index] for topic, index in wanted]
        return [(one.offset, one.metadata, one.error) for one in found]

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
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with two_brokers(SharedStore(tmp_path)) as (nodes, names):
        # Either broker may coordinate the group.
        nodes[0].broker.placement.owner_of_name = lambda name: None
        async with open_listeners(nodes[0].broker) as connect:
            yield Cluster(nodes, names, Client(await connect("kafka")))


async def test_positions_are_kept_by_the_owner_of_each_topic(cluster: Cluster) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    assert await cluster.commit((mine, 0, 3), (theirs, 1, 5), (theirs, 0, 7)) == [0, 0, 0]
    there = cluster.second.broker
    topic = there.topics.get(TopicName("public", "default", theirs.decode()))
    subscription = there.subscriptions.get(topic, GROUP)
    assert (subscription.position(0), subscription.position(1)) == (7, 5)
    assert await cluster.committed((theirs, 1), (mine, 0), (mine, 1), (theirs, 0)) == [
        (5, b"at 5", 0),
        (3, b"at 3", 0),
        (-1, b"", 0),
        (7, b"at 7", 0),
    ]


async def test_all_positions_are_those_of_both_brokers(cluster: Cluster) -> None:
    await cluster.commit((cluster.mine, 0, 3), (cluster.theirs, 1, 5))
    found = (await cluster.everything()).topics
    offsets = {name: {n: one.offset for n, one in some.items()} for name, some in found.items()}
    assert offsets == {cluster.mine: {0: 3}, cluster.theirs: {1: 5}}


async def test_a_group_with_positions_only_at_another_broker_exists(cluster: Cluster) -> None:
    assert await cluster.state() == (Code.NONE, b"Dead")
    await cluster.commit((cluster.theirs, 0, 5))
    assert await cluster.state() == (Code.NONE, b"Empty")
    assert await cluster.delete() == Code.NONE
    assert await cluster.committed((cluster.theirs, 0)) == [(-1, b"", 0)]
    assert await cluster.delete() == Code.GROUP_ID_NOT_FOUND


async def test_a_group_with_readers_at_another_broker_is_kept(
    cluster: Cluster,
) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 7))
    readers = [SubscriptionMember("pulsar", "p", "", (0,))]
    cluster.second.broker.members.add_source(lambda topic, name: readers)
    assert await cluster.delete() == Code.NON_EMPTY_GROUP
    found = await cluster.committed((mine, 0), (theirs, 0))
    assert [offset for offset, _, _ in found] == [3, 7]
    readers.clear()
    assert await cluster.delete() == Code.NONE


async def test_clients_retry_if_the_other_broker_is_unreachable(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 5))
    cluster.cut_off()
    monkeypatch.setattr(commits, "FIND_S", 0)
    again = Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await cluster.commit((mine, 0, 4), (theirs, 0, 6)) == [Code.NONE, again]
    assert await cluster.committed((mine, 0), (theirs, 0)) == [(4, b"at 4", 0), (-1, b"", again)]
    assert (await cluster.everything()).error == again
    assert await cluster.delete() == Code.CONSUMER_COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", [1, 2, 5])
async def test_positions_wait_for_the_new_owner_of_a_topic(
    cluster: Cluster, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients stop reading a partition whose position was an error."""
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 5))
    there, asked = cluster.first.broker.peers, 0

    class Moving(Alone):
        """Other brokers where the topic has no owner at first."""

        def tries(self, seconds: float) -> Tries:
            return there.tries(seconds)

        async def committed(
            self, asker: Asker, group: bytes, wanted: Sequence[tuple[int, Place]], deadline: float
        ) -> Mapping[Place, Committed | BrokerError]:
            nonlocal asked
            asked += 1
            if asked < 3:
                return {place: NotOwner("it moves") for _, place in wanted}
            return await there.committed(asker, group, wanted, deadline)

    cluster.first.broker.peers = Moving()
    reply = await cluster.fetch(version, (mine, 0), (theirs, 0))
    assert (reply.error, asked) == (0, 3)
    assert (reply.topics[mine][0].offset, reply.topics[theirs][0].offset) == (3, 5)


async def test_without_an_owner_the_whole_answer_fails_in_later_versions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = cluster.mine, cluster.theirs
    await cluster.commit((mine, 0, 3), (theirs, 0, 5))
    cluster.cut_off()
    monkeypatch.setattr(commits, "FIND_S", 0)
    again = Code.COORDINATOR_LOAD_IN_PROGRESS
    reply = await cluster.fetch(1, (mine, 0), (theirs, 0))
    assert (reply.topics[mine][0].error, reply.topics[theirs][0].error) == (0, again)
    for version in (2, 5):
        reply = await cluster.fetch(version, (mine, 0), (theirs, 0))
        assert (reply.error, reply.topics) == (again, {})


async def test_a_hanging_broker_is_awaited_no_longer_than_a_new_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> NoReturn:
        await trio.sleep_forever()

    monkeypatch.setattr(cluster.first.broker.peers, "_ask_node", hang)
    monkeypatch.setattr(commits, "FIND_S", 0.01)
    with trio.fail_after(10):
        reply = await cluster.fetch(2, (cluster.theirs, 0))
    assert reply.error == Code.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", [1, 2])
async def test_a_topic_deleted_at_its_owner_fails_no_other_topic(
    cluster: Cluster, version: int
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


async def test_a_refusal_of_the_owner_is_returned(cluster: Cluster) -> None:
    class Rules:
        """Rules that forbid consuming."""

        def allows(self, principal: object, action: Action, resource: Resource) -> bool:
            return action is not Action.CONSUME

    cluster.second.broker.access.rules = Rules()
    (code,) = await cluster.commit((cluster.theirs, 0, 5))
    assert code == Code.TOPIC_AUTHORIZATION_FAILED
