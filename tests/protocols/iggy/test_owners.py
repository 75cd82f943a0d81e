"""Owners of partitions in groups of dialect W: a request names the generation of the owner, and a
partition moves to the next owner after a commit by any protocol's client.
"""

import struct
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from braidlog.broker.topics.topic import TopicEvent
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.iggy.adapter import ADAPTER, state_of
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.layouts_w import W
from braidlog.protocols.iggy.membership import REVOKE_S
from braidlog.protocols.iggy.readers import NotOwnPartition, ReadTarget
from braidlog.protocols.pulsar.machine import Type
from tests.protocols.http.asgi import call
from tests.protocols.iggy.foreign import topic_of
from tests.protocols.iggy.test_fetching import FETCH, sections_of
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC, VClient
from tests.protocols.iggy.wtalk import SEND, STORE, client_w, sent
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.pulsar.talk import EARLIEST, ID_EARLIEST, talking

POLL, POLL_DEFERRED, SYNC, ROUTE = 100, 106, 606, 105
CREATE_GROUP, DELETE_GROUP, JOIN, LEAVE, DELETE_OFFSET = 139, 140, 148, 149, 162
NEXT = b"\x05" + bytes(8)
GROUP, CONSUMER = b"\x02\x02\x03grp", b"\x01\x02\x03grp"
OF_GROUP = STREAM + TOPIC + GROUP[1:]
RESYNC = 0xFFFF_FFFF  # In V's answer to a poll of another member's partition.
NOT_OWNED = ErrorCode.GROUP_PARTITION_NOT_OWNED
SECOND_US = 1_000_000
MESSAGES = 3  # In each partition.


class GroupTalk:
    """A client of W, a member of the group after `join`."""

    def __init__(self, client: VClient, incarnations: list[int]) -> None:
        self.client = client
        self.incarnations = incarnations

    async def join(self) -> None:
        assert await self.client.perform(JOIN, OF_GROUP) == (0, bytes(4))

    async def leave(self) -> None:
        assert await self.client.perform(LEAVE, OF_GROUP) == (0, bytes(4))

    async def assigned(self) -> list[int]:
        """Return the partitions that the member may poll."""
        _, body = await self.client.query(SYNC, OF_GROUP)
        _, count = struct.unpack_from("<QI", body)
        return list(struct.unpack_from(f"<{count}I", body, 12))

    async def poll(
        self,
        partition: int,
        generation: int = 0,
        consumer: bytes = GROUP,
        *,
        deferred: bool = False,
    ) -> int | tuple[int, ...]:
        """Return partition, count and generation of a poll, or its error."""
        body = consumer + STREAM + TOPIC + b"\x01" + struct.pack("<I", partition) + NEXT
        body += struct.pack("<IB", 10, 0)
        if deferred:
            body += struct.pack("<QIIQ", SECOND_US, 1, 1 << 20, 10 * SECOND_US)
        code = POLL_DEFERRED if deferred else POLL
        numbers = {"incarnation": self.incarnations[partition], "generation": generation}
        status, answer = await self.client.query(code, body, **numbers)
        if status:
            return status
        index, _, count, _, owner, _ = struct.unpack_from("<IQIQQQ", answer)
        return index, count, owner

    async def owner(self, partition: int) -> int:
        """Return the generation that a poll of an own partition names."""
        polled = await self.poll(partition)
        assert isinstance(polled, tuple), polled
        return polled[2]

    async def fetch(self, partition: int, generation: int) -> int:
        """Return the status of a partition's section in the answer to a fetch."""
        limits = (0, 10 * SECOND_US, 1, 10, 1 << 20, 0, 1)
        place = struct.pack("<I", partition) + NEXT + struct.pack("<I", 1 << 20)
        place += struct.pack("<QQ", self.incarnations[partition], generation)
        body = GROUP + STREAM + TOPIC + struct.pack("<QQIIIBI", *limits) + place
        status, answer = await self.client.query(FETCH, body)
        assert status == 0
        ((section, _),) = sections_of(answer)
        return section[1]

    async def change(
        self, operation: int, partition: int, *rest: bytes, generation: int = 0, consumer=GROUP
    ) -> int:
        """Return the error of STORE or DELETE_OFFSET; 0: done."""
        body = consumer + STREAM + TOPIC + b"\x01" + struct.pack("<I", partition)
        numbers = {"incarnation": self.incarnations[partition], "generation": generation}
        status, answer = await self.client.perform(operation, body + b"".join(rest), **numbers)
        assert status == 0
        return 0 if answer == bytes(4) else struct.unpack("<III", answer)[2]

    async def store(self, partition: int, offset: int, generation: int = 0, consumer=GROUP) -> int:
        rest = struct.pack("<QB", offset, 1)
        numbers = {"generation": generation, "consumer": consumer}
        return await self.change(STORE, partition, rest, **numbers)


@pytest.fixture
async def new_member(open_client):
    """Return a function that connects a client, which has not joined; the topic has two partitions
    of three messages.
    """
    first = await client_w(open_client)
    assert await first.status(CREATE_STREAM, STREAM[1:]) == 0
    assert await first.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:]) == 0
    assert (await first.perform(CREATE_GROUP, STREAM + TOPIC + b"\x03grp"))[0] == 0
    incarnations = []
    for partition in range(2):
        _, body = await first.query(ROUTE, STREAM + TOPIC + struct.pack("<I", partition))
        (incarnation,) = struct.unpack_from("<Q", body)
        incarnations.append(incarnation)
        batch = sent(*[b"x"] * MESSAGES, partition=partition)
        assert (await first.perform(SEND, batch, incarnation=incarnation))[0] == 0

    async def connect() -> GroupTalk:
        return GroupTalk(await client_w(open_client), incarnations)

    return connect


@pytest.fixture
async def member(new_member):
    """Return the only member of the group."""
    member = await new_member()
    await member.join()
    return member


async def refusals(member: GroupTalk, partition: int, generation: int) -> set[int]:
    """Return the errors of all requests that name an owner."""
    return {
        await member.poll(partition, generation),
        await member.poll(partition, generation, deferred=True),
        await member.fetch(partition, generation),
        await member.store(partition, 0, generation),
        await member.change(DELETE_OFFSET, partition, b"\1", generation=generation),
    }


async def test_a_request_may_name_the_present_owner_or_none(member):
    assert await member.poll(0) == (0, MESSAGES, await member.owner(0))
    owner = await member.owner(0)
    assert owner
    assert await member.poll(0, owner) == (0, MESSAGES, owner)
    assert await member.fetch(0, owner) == 0
    assert await member.store(0, 1, owner) == 0
    assert await member.change(DELETE_OFFSET, 0, b"\1", generation=owner) == 0


async def test_a_request_of_an_earlier_owner_is_refused(member):
    former = await member.owner(0)
    await member.leave()
    await member.join()
    assert await member.owner(0) > former
    assert await refusals(member, 0, former) == {NOT_OWNED}


async def test_partitions_that_stay_with_their_member_keep_the_generation(member, new_member):
    owners = [await member.owner(partition) for partition in range(2)]
    for partition in range(2):
        assert await member.store(partition, MESSAGES - 1) == 0
    other = await new_member()
    await other.join()
    (retained,), (moved,) = await member.assigned(), await other.assigned()
    assert await member.owner(retained) == owners[retained]
    assert await member.store(retained, 1, owners[retained]) == 0
    assert await other.owner(moved) > owners[moved]
    assert await refusals(member, moved, owners[moved]) == {NOT_OWNED}
    assert await refusals(member, moved, 0) == {NOT_OWNED}
    assert await refusals(other, moved, owners[moved]) == {NOT_OWNED}


async def test_a_poll_commits_nothing_if_the_partition_moves_during_its_read(broker, member):
    """The next owner may have committed more: the commit would set the group back."""
    former, topic = await member.owner(0), topic_of(broker)
    context = SimpleNamespace(
        broker=broker, shared=state_of(ADAPTER.states, broker), dialect=W, client=None
    )
    reader = ReadTarget(topic, topic.partition(0), b"grp", former)
    assert reader.commit(context, 1)
    await member.leave()
    await member.join()
    assert await member.owner(0) > former
    with pytest.raises(NotOwnPartition):
        reader.commit(context, 2)
    assert reader.position(context) == 1


async def test_a_group_that_was_created_anew_has_other_generations(member):
    former = await member.owner(0)
    await member.client.perform(DELETE_GROUP, OF_GROUP)
    assert (await member.client.perform(CREATE_GROUP, STREAM + TOPIC + b"\x03grp"))[0] == 0
    await member.join()
    assert await refusals(member, 0, former) == {NOT_OWNED}


async def test_owners_before_the_topic_was_at_another_broker_are_refused(broker, member):
    former = await member.owner(0)
    state_of(ADAPTER.states, broker).topic_changed(topic_of(broker), TopicEvent.MOVED)
    assert await member.assigned() == [0, 1]
    assert await refusals(member, 0, former) == {NOT_OWNED}


async def test_a_request_without_a_group_names_no_owner(member):
    assert await member.poll(0, consumer=CONSUMER) == (0, MESSAGES, 0)
    assert await member.poll(0, 1, consumer=CONSUMER) == NOT_OWNED
    assert await member.store(0, 1, 1, CONSUMER) == NOT_OWNED
    external = b"\x03" + CONSUMER[1:]
    assert await member.store(0, 1, 1, external) == NOT_OWNED
    assert await member.store(0, 1, 0, external) == 0


@pytest.fixture
async def moving(member, new_member):
    """Return both members of a group while partition 1 moves to the second: the first member has
    polled all messages, and committed the first message.
    """
    for partition in range(2):
        assert await member.poll(partition) == (partition, MESSAGES, await member.owner(partition))
        assert await member.store(partition, 0) == 0
    second = await new_member()
    await second.join()
    assert await second.assigned() == []
    assert await member.assigned() == [0]
    assert await member.poll(1) == NOT_OWNED  # No more polls, only commits.
    return member, second


async def kafka(open_client, offset: int) -> None:
    client = RawKafka(await open_client("kafka", namespace="public/st"))
    commit = {b"tp": {1: m.CommitTarget(offset, b"", None)}}
    reply = await client.call(m.OffsetCommitRequest(0, b"grp", -1, b"", commit))
    assert reply.topics == {b"tp": {1: 0}}


async def kafka_commit(open_client, _broker) -> None:
    await kafka(open_client, MESSAGES)


async def kafka_reset(open_client, _broker) -> None:
    await kafka(open_client, 0)


async def pulsar_ack(open_client, _broker) -> None:
    async with subscribed(open_client, permits=10) as client:
        for _ in range(MESSAGES - 1):
            message, _ = await client.next(Type.MESSAGE)
        place = {"ledgerId": message.message_id.ledgerId, "entryId": message.message_id.entryId}
        fields = {"consumer_id": 0, "ack_type": 1, "message_id": [place]}
        await client.ask(Type.ACK, Type.ACK_RESPONSE, **fields)


async def pulsar_seek(open_client, _broker) -> None:
    async with subscribed(open_client) as client:
        await client.ask(Type.SEEK, Type.CLOSE_CONSUMER, consumer_id=0, message_id=ID_EARLIEST)
        await client.next(Type.SUCCESS)


@asynccontextmanager
async def subscribed(open_client, permits=0):
    """Yield a Pulsar consumer of partition 1 under the group's name."""
    async with talking(open_client) as client:
        topic = "persistent://public/st/tp-partition-1"
        await client.subscribe(permits=permits, topic=topic, subscription="grp", **EARLIEST)
        yield client


async def http_seek(open_client, broker) -> None:
    app = make_app(broker, RestOptions(), broker.stopping)
    path = "/topics/public/st/tp/subscription/grp/cursor"
    answer = await call(app, "POST", path, {"type": "Seek", "position": "latest"})
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("end", [kafka_commit, kafka_reset, pulsar_ack, pulsar_seek, http_seek])
async def test_a_move_ends_with_a_commit_or_reset_by_any_client(open_client, broker, moving, end):
    first, second = moving
    former = await first.owner(0)
    await end(open_client, broker)
    assert await second.assigned() == [1]
    assert await first.assigned() == [0]
    assert await first.store(1, 2) == NOT_OWNED
    assert await first.owner(0) == former


async def test_a_move_does_not_end_with_the_commit_of_a_part(open_client, moving):
    _, second = moving
    await kafka(open_client, MESSAGES - 1)
    assert await second.assigned() == []


async def test_a_move_ends_with_the_deletion_of_the_positions(broker, moving):
    _, second = moving
    broker.subscriptions.find(topic_of(broker), b"grp").delete()
    assert await second.assigned() == [1]


async def test_a_move_ends_after_some_time(moving, mock_clock):
    _, second = moving
    mock_clock.jump(REVOKE_S)
    assert await second.assigned() == [1]


async def test_polls_that_others_have_committed_keep_no_partition(open_client, member, new_member):
    for partition in range(2):
        await member.poll(partition)
    await kafka(open_client, MESSAGES)
    second = await new_member()
    await second.join()
    assert await second.assigned() == [1]


async def test_memberships_end_with_the_topic_whoever_deletes_it(broker, member):
    assert await member.assigned() == [0, 1]
    topic = topic_of(broker)
    groups = state_of(ADAPTER.states, broker).groups
    assert groups.generation(topic.meta.topic_id, "grp")
    await broker.topics.delete(topic.name)
    assert groups.generation(topic.meta.topic_id, "grp") == 0  # Nothing is retained.
