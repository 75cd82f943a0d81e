"""Every Iggy command with an effect, sent to another broker than the owner, while the owner's
answer is lost: the client's answer is true, and a repeat does no harm.
"""

import struct
from contextlib import asynccontextmanager

import pytest

from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.commands import COMMANDS
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fetch_requests import FetchMessages
from braidlog.protocols.iggy.metadata_pages import GetMetadataChanges
from braidlog.protocols.iggy.vsr import OPERATION_DELETE_SEGMENTS
from braidlog.storage.metadata.names import TopicName
from conformance.clients.raw import iggy as raw
from conformance.cluster.unanswered_kinds import ChangeOutcome
from tests.broker.cluster.cut_links import States, check_told, lossy
from tests.broker.cluster.nodes import topic_of
from tests.listeners import open_listeners
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.protocols.iggy.description_permissions import block
from tests.protocols.iggy.talk import NEVER, Talk, to_partition
from tests.protocols.iggy.test_access import CODES
from tests.protocols.iggy.test_permissions import NOTHING
from tests.protocols.iggy.vtalk import VClient
from tests.waiting import until

STREAM = {"stream": named("st")}
BOB = {"user": named("bob")}
MESSAGES = [{"id": bytes(16), "headers": [], "payload": b"x"}]
SETTINGS = {"compression": 1, "expiry": 1_000_000, "max_size": 0, "replication": 0}


def changes(topic, new_topic):
    """Return a sample of each command with an effect; `new_topic` does not exist yet."""
    of_topic = {**STREAM, "topic": named(topic)}
    reader = {**of_topic, "consumer": {"kind": 1, "id": named(1)}, "partition": 1}
    new_fields = {**STREAM, "topic_id": 0, "partitions": 1, "name": new_topic, **SETTINGS}
    return {
        m.PollMessages: {
            **reader,
            "strategy": {"kind": 5, "value": 0},
            "count": 1,
            "auto_commit": True,
        },
        m.SendMessages: {**of_topic, "partitioning": to_partition(1), "messages": MESSAGES},
        m.StoreConsumerOffset: {**reader, "offset": 1},
        m.DeleteConsumerOffset: reader,
        m.CreateStream: {"stream_id": 0, "name": "new"},
        m.DeleteStream: {"stream": named("empty")},
        m.PurgeStream: STREAM,
        m.CreateTopic: new_fields,
        m.UpdateTopic: {**of_topic, "name": topic, **SETTINGS},
        m.DeleteTopic: of_topic,
        m.PurgeTopic: of_topic,
        m.CreatePartitions: {**of_topic, "count": 1},
        m.DeletePartitions: {**of_topic, "count": 1},
        m.CreateGroup: {**of_topic, "group_id": 0, "name": "new"},
        m.DeleteGroup: {**of_topic, "group": named("idle")},
        m.JoinGroup: {**of_topic, "group": named("idle")},
        m.LeaveGroup: {**of_topic, "group": named("grp")},
        u.CreateUser: {"username": "eve", "password": "secret", "status": 1, "permissions": None},
        u.UpdateUser: {**BOB, "username": None, "status": 2},
        u.DeleteUser: BOB,
        u.UpdatePermissions: {**BOB, "permissions": block([1, *NOTHING[1:]], {})},
        u.ChangePassword: {**BOB, "old": "secret1", "new": "secret2"},
        u.CreateToken: {"name": "new", "expiry": NEVER},
        u.DeleteToken: {"name": "old"},
    }


SAMPLED = [*changes("", "")]
# Renames are refused in a cluster, see UpdateStream in protocols/iggy/streams.py. The other
# commands are about the connection, or about the disk of a single broker.
CHANGE_NOTHING = {
    *(m.Ping, m.GetMe, m.GetClient, m.GetClients, m.GetStats, m.GetConsumerOffset, m.GetStream),
    *(m.GetStreams, m.GetTopic, m.GetTopics, m.GetGroup, m.GetGroups, m.GetClusterMetadata),
    *(m.DescribeOptions, m.UpdateStream, m.FlushUnsavedBuffer, u.LoginUser, u.LogoutUser),
    *(u.BindSession, GetMetadataChanges),
    *(u.LoginWithToken, u.GetUser, u.GetUsers, u.GetTokens, m.GetPartitionRoute),
}
# Separate tests, below.
IN_LATER_DIALECTS = {
    *(m.SyncGroup, m.DeleteSegments, m.PollDeferred, m.WaitForMessages, FetchMessages),
}
TOLD = {
    None: ChangeOutcome.UNKNOWN,
    ErrorCode.CONNECTION_CLOSED: ChangeOutcome.UNKNOWN,
    0: ChangeOutcome.DONE,
}
STEPS = {m.CreatePartitions, m.DeletePartitions}  # A repeat is another step.


def test_every_command_with_an_effect_has_a_sample():
    assert {*SAMPLED} | CHANGE_NOTHING | IN_LATER_DIALECTS == {*COMMANDS}


class NearIggy:
    """A client of the broker that owns neither the catalogue nor the topic."""

    def __init__(self, connect, changes, topic):
        self._connect = connect
        self._changes = changes
        self.topic = topic

    async def open(self):
        self.talk = Talk(await self._connect("iggy"))
        assert await self.talk.login() == 0
        return self

    async def later(self):
        """Return a connection of dialect V."""
        client = VClient(await self._connect("iggy"))
        await client.login()
        return client

    async def ask(self, kind):
        """Send a sample; return the meaning of the client's answer."""
        answer = await self.talk.exchange(description.request(CODES[kind], **self._changes[kind]))
        status = None if answer is None else int.from_bytes(answer[:4], "little")
        if answer is None:
            await self.open()
        return TOLD.get(status, ChangeOutcome.NOT_DONE)


@asynccontextmanager
async def prepared(path, kind):
    """Yield a client, the owner, and the cutter of the link to the owner."""
    async with (
        lossy(path) as (asker, owner, cutter, _),
        open_listeners(owner.broker) as far,
        open_listeners(asker.broker) as connect,
    ):
        await far("iggy")  # Commands are forwarded to this listener.
        topic, new = (topic_of(owner.held, prefix, "st").topic for prefix in ("tp", "new"))
        samples = changes(topic, new)
        near = await NearIggy(connect, samples, topic).open()
        talk, of_topic = near.talk, {**STREAM, "topic": named(topic)}
        assert (await talk.create_topic(topic, 4))["status"] == 0
        assert await talk.status(202, stream_id=0, name="empty") == 0
        assert await talk.send(b"a", b"b", topic=topic) == 0
        for group in ("grp", "idle"):
            assert await talk.status(602, **of_topic, group_id=0, name=group) == 0
        if kind is m.LeaveGroup:
            assert await talk.status(604, **of_topic, group=named("grp")) == 0
        reader = {**of_topic, "consumer": {"kind": 1, "id": named(1)}, "partition": 1}
        assert await talk.status(121, **reader, offset=0) == 0
        bob = {"username": "bob", "password": "secret1", "status": 1, "permissions": None}
        assert await talk.status(33, **bob) == 0
        assert await talk.status(42, name="old", expiry=NEVER) == 0
        users = asker.broker.users
        await until(lambda: users.find("bob") and any(user.tokens for user in users.all()))
        yield near, owner, cutter


async def expected(path, kind):
    """Return the state before and after the change, if every answer arrives."""
    async with prepared(path, kind) as (near, owner, _):
        states = States(owner.broker)
        before = states.now()
        assert await near.ask(kind) is ChangeOutcome.DONE
        return before, states.now()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLED, ids=lambda kind: kind.__name__)
async def test_the_answer_after_a_lost_answer_is_true(tmp_path, kind):
    before, after = await expected(tmp_path / "whole", kind)
    async with prepared(tmp_path / "cut", kind) as (near, owner, cutter):
        states = States(owner.broker)
        assert states.now() == before
        cutter.answers_to_lose = 1
        outcome = await near.ask(kind)
        assert cutter.lost == 1
        check_told(outcome, before, states.now(), after)
        if outcome is ChangeOutcome.DONE or kind in STEPS:
            assert outcome is ChangeOutcome.DONE, (
                "a step must not be left unknown if the owner can be asked"
            )
            return
        await near.ask(kind)
        if kind is m.SendMessages:  # Without sequence numbers, a record may be stored twice.
            assert [*states.now()] == [*after]
        else:
            assert states.now() == after


SEGMENT_BYTES = 64 * 1024  # The minimum of a topic: a record here fills half.
RECORD_BYTES = 40 * 1024
OPERATION_JOIN_GROUP = 148
GRP = b"\x02\x03grp"


@pytest.mark.slow
async def test_an_unanswered_segment_deletion_is_made_and_reported_as_unknown(tmp_path):
    async with prepared(tmp_path, m.DeleteSegments) as (near, owner, cutter):
        topics = owner.broker.topics
        name = TopicName("public", "st", near.topic)
        await topics.alter_settings(name, {"segment_bytes": SEGMENT_BYTES})
        for payload in (bytes(RECORD_BYTES), bytes(RECORD_BYTES), bytes(RECORD_BYTES)):
            assert await near.talk.send(payload, topic=near.topic) == 0
        client = await near.later()
        body = raw.identifier("st") + raw.identifier(near.topic) + struct.pack("<II", 0, 1)
        log = topics.partition(name, 0)
        assert log.log_start_offset == 0
        cutter.answers_to_lose = 1
        with pytest.raises(EOFError):  # Unknown.
            await client.perform(OPERATION_DELETE_SEGMENTS, body)
        deleted = log.log_start_offset
        assert cutter.lost == 1 and 0 < deleted < log.next_offset
        # A repeat names the next segment: a further step, as in Iggy itself.
        assert await (await near.later()).perform(OPERATION_DELETE_SEGMENTS, body) == (0, b"")
        assert log.log_start_offset > deleted


@pytest.mark.slow
async def test_a_member_with_a_lost_answer_rejoins_with_its_partitions(tmp_path):
    async with prepared(tmp_path, m.SyncGroup) as (near, owner, cutter):
        body = raw.identifier("st") + raw.identifier(near.topic) + GRP
        topic = owner.broker.topics.get(TopicName("public", "st", near.topic))
        assigned = struct.pack("<I4I", 4, 0, 1, 2, 3)

        async def joined():
            client = await near.later()
            assert (await client.perform(OPERATION_JOIN_GROUP, body))[0] == 0
            return client

        client = await joined()
        cutter.answers_to_lose = 1
        with pytest.raises(EOFError):
            await client.query(m.CommandCode.SYNC_GROUP, body)
        assert cutter.lost == 1
        await until(lambda: not owner.broker.members.of(topic, b"grp"))
        status, answer = await (await joined()).query(m.CommandCode.SYNC_GROUP, body)
        assert (status, answer[8:]) == (0, assigned)
        assert len(owner.broker.members.of(topic, b"grp")) == 1
