"""No command bypasses the access check: each is refused with its error, and has no effect."""

import struct

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import ANONYMOUS, Action, Principal
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.all_dialects import D2
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.fetch_requests import FetchMessages
from braidlog.protocols.iggy.metadata_pages import GetMetadataChanges
from braidlog.protocols.iggy.session import COMMANDS
from braidlog.storage.metadata.names import TopicName
from conformance.clients.raw import iggy as raw
from tests.broker.access.rules import Nothing
from tests.protocols.iggy.description import named
from tests.protocols.iggy.talk import NEVER, to_partition
from tests.protocols.iggy.test_golden_v import VTalk
from tests.protocols.iggy.test_vsr import CLIENT, frame

STREAM = {"stream": named("st")}
TOPIC = {**STREAM, "topic": named("tp")}
GROUP = {**TOPIC, "group": named("grp")}
READER = {**TOPIC, "consumer": {"kind": 1, "id": named(1)}, "partition": 1}
LOGIN = {"username": "iggy", "password": "iggy", "version": "0.6.202", "context": ""}
NEW_TOPIC = {
    **STREAM,
    "topic_id": 0,
    "partitions": 1,
    "compression": 1,
    "expiry": NEVER,
    "max_size": 0,
    "replication": 0,
    "name": "new",
}
SAMPLES = {
    m.Ping: {},
    u.LoginUser: LOGIN,
    u.LogoutUser: {},
    m.GetMe: {},
    m.GetClient: {"client_id": 1},
    m.GetClients: {},
    m.GetStats: {},
    m.PollMessages: {
        **READER,
        "strategy": {"kind": 5, "value": 0},
        "count": 1,
        "auto_commit": True,
    },
    m.SendMessages: {
        **TOPIC,
        "partitioning": to_partition(1),
        "messages": [{"id": bytes(16), "headers": [], "payload": b"x"}],
    },
    m.GetConsumerOffset: READER,
    m.StoreConsumerOffset: {**READER, "offset": 0},
    m.DeleteConsumerOffset: READER,
    m.GetStream: STREAM,
    m.GetStreams: {},
    m.CreateStream: {"stream_id": 0, "name": "new"},
    m.UpdateStream: {**STREAM, "name": "st"},
    m.DeleteStream: STREAM,
    m.GetTopic: TOPIC,
    m.GetTopics: STREAM,
    m.CreateTopic: NEW_TOPIC,
    m.DeleteTopic: TOPIC,
    m.CreatePartitions: {**TOPIC, "count": 1},
    m.GetGroup: GROUP,
    m.GetGroups: TOPIC,
    m.CreateGroup: {**TOPIC, "group_id": 0, "name": "new"},
    m.DeleteGroup: GROUP,
    m.JoinGroup: GROUP,
    m.LeaveGroup: GROUP,
    m.DeletePartitions: {**TOPIC, "count": 1},
    m.PurgeTopic: TOPIC,
    m.PurgeStream: STREAM,
    m.FlushUnsavedBuffer: {**TOPIC, "partition": 1, "fsync": True},
    m.UpdateTopic: {
        **TOPIC,
        "compression": 1,
        "expiry": NEVER,
        "max_size": 0,
        "replication": 0,
        "name": "tp",
    },
}
# These commands check access themselves, as every user may see and change its own data.
OF_OTHERS = {
    u.GetUser: {"user": named("bob")},
    u.GetUsers: {},
    u.CreateUser: {"username": "eve", "password": "secret", "status": 1, "permissions": None},
    u.UpdateUser: {"user": named("bob"), "username": "rob", "status": None},
    u.DeleteUser: {"user": named("bob")},
    u.UpdatePermissions: {"user": named("bob"), "permissions": None},
    u.ChangePassword: {"user": named("bob"), "old": "secret1", "new": "secret2"},
}
ABOUT_USERS = {*OF_OTHERS, u.LoginWithToken, u.GetTokens, u.CreateToken, u.DeleteToken}
FOR_ANYBODY = {
    *(m.Ping, u.LoginUser, u.LogoutUser, u.BindSession, m.GetMe),
    *(m.GetClusterMetadata, m.DescribeOptions),
    m.GetPartitionRoute,  # Its handler asks for either of two rights.
    *ABOUT_USERS,
}
CODES = {layout.type: code for code, layout in D2.requests.items()}
IN_LATER_DIALECTS = {
    *(m.GetClusterMetadata, m.DescribeOptions, m.SyncGroup, m.DeleteSegments),
    *(m.GetPartitionRoute, m.PollDeferred, m.WaitForMessages, u.BindSession, FetchMessages),
    GetMetadataChanges,
}


@pytest.fixture
async def ready(talk):
    """Return a connection, with a topic that has a group and a stored offset."""
    await talk.create_topic()
    await talk.send(b"x")
    await talk.status(602, **TOPIC, group_id=0, name="grp")
    await talk.status(121, **READER, offset=0)
    return talk


def names_only(rules):
    return {str(resource) for _, _, resource in rules.asked}


def test_each_command_has_a_sample():
    assert set(SAMPLES) | IN_LATER_DIALECTS | ABOUT_USERS == set(COMMANDS)


def test_only_these_commands_need_no_permission():
    assert {kind for kind, served in COMMANDS.items() if served.action is None} == FOR_ANYBODY


@pytest.mark.parametrize(
    "kind", [kind for kind in SAMPLES if kind not in FOR_ANYBODY], ids=lambda kind: kind.__name__
)
async def test_a_command_that_is_not_allowed_is_refused(broker, ready, kind):
    rules = Nothing()
    await broker.durability.all_durable()  # So an earlier lazy write is not counted below.
    ticket = broker.durability.ticket
    broker.access = Access(rules)
    assert await ready.status(CODES[kind], **SAMPLES[kind]) == ErrorCode.UNAUTHORIZED
    assert rules.actions == {COMMANDS[kind].action}
    assert broker.durability.ticket == ticket  # Nothing was written.


@pytest.mark.parametrize("kind", OF_OTHERS, ids=lambda kind: kind.__name__)
async def test_a_command_about_another_user_is_refused(broker, talk, kind):
    bob = {"username": "bob", "password": "secret1", "status": 1, "permissions": None}
    await talk.ask(CODES[u.CreateUser], **bob)
    before = repr(broker.users.all())
    rules = Nothing()
    broker.access = Access(rules)
    assert await talk.status(CODES[kind], **OF_OTHERS[kind]) == ErrorCode.UNAUTHORIZED
    reads = kind in (u.GetUser, u.GetUsers)
    assert rules.actions == {Action.DESCRIBE if reads else Action.ADMINISTER}
    assert repr(broker.users.all()) == before


async def test_deleting_segments_is_refused(broker, ready, connect):
    later = await connect()
    assert await later.login("0.7.0") == 0
    rules = Nothing()
    broker.access = Access(rules)
    body = raw.identifier("st") + raw.identifier("tp") + struct.pack("<II", 1, 1)
    answer = await later.exchange(raw.frame(m.CommandCode.DELETE_SEGMENTS, body))
    assert struct.unpack_from("<I", answer) == (ErrorCode.UNAUTHORIZED,)
    assert rules.actions == {COMMANDS[m.DeleteSegments].action}


async def test_a_request_for_a_members_partitions_is_refused(broker, ready, open_client):
    talk = VTalk(await open_client("iggy"))
    await talk.login(CLIENT)
    rules = Nothing()
    broker.access = Access(rules)
    body = raw.identifier("st") + raw.identifier("tp") + raw.identifier("grp")
    request = bytearray(frame(operation=2, code=m.CommandCode.SYNC_GROUP, body=body, number=1))
    struct.pack_into("<Q", request, 184, talk.session)
    answer = await talk.exchange(bytes(request))
    assert struct.unpack_from("<I", answer, 216) == (ErrorCode.UNAUTHORIZED,)
    assert rules.actions == {COMMANDS[m.SyncGroup].action}


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
async def test_a_command_needs_only_its_own_action(broker, ready, kind):
    action = COMMANDS[kind].action
    broker.access = Access(Nothing(action))
    assert await ready.status(CODES[kind], **SAMPLES[kind]) == 0


@pytest.mark.parametrize(
    ("kind", "values", "checked"),
    [
        (m.GetTopic, {"stream": named(9), "topic": named("t")}, "cluster"),
        (m.GetTopic, {"stream": named("no"), "topic": named("t")}, "topic public/no/t"),
        (m.GetTopic, {"stream": named("st"), "topic": named(9)}, "namespace public/st"),
        (m.GetGroup, {**TOPIC, "group": named(9)}, "topic public/st/tp"),
        (m.GetStream, {"stream": named("no")}, "namespace public/no"),
    ],
)
async def test_access_to_a_missing_object_is_checked_at_its_parent(
    broker, ready, kind, values, checked
):
    rules = Nothing()
    broker.access = Access(rules)
    assert await ready.status(CODES[kind], **values) == ErrorCode.UNAUTHORIZED
    assert names_only(rules) == {checked}


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (m.UpdateStream, {**STREAM, "name": "other"}),
        (m.UpdateTopic, {**SAMPLES[m.UpdateTopic], "name": "other"}),
    ],
    ids=["stream", "topic"],
)
async def test_a_rename_needs_the_permission_to_create_the_new_name(
    broker, ready, kind, values, is_moved
):
    if is_moved:
        await ready.ask(202, stream_id=0, name="other")
        await ready.create_topic("other")
    broker.access = Access(Nothing(Action.ALTER))
    assert await ready.status(CODES[kind], **values) == ErrorCode.UNAUTHORIZED
    assert broker.topics.find(TopicName("public", "st", "tp")) is not None


async def test_a_connection_acts_for_its_logged_in_user(broker, ready):
    (connection,) = broker.connections
    assert connection.principal == Principal("iggy")
    await ready.status(39)
    assert connection.principal == ANONYMOUS


@pytest.mark.parametrize(
    "kind", [kind for kind in SAMPLES if kind not in FOR_ANYBODY], ids=lambda kind: kind.__name__
)
async def test_a_refusal_does_not_reveal_existence(broker, ready, kind):
    broker.access = Access(Nothing())
    present = await ready.status(CODES[kind], **SAMPLES[kind])
    await broker.topics.delete(TopicName("public", "st", "tp"))
    assert await ready.status(CODES[kind], **SAMPLES[kind]) == present


@pytest.mark.parametrize(
    "kind", [m.GetStream, m.GetTopic, m.GetGroup], ids=lambda kind: kind.__name__
)
async def test_a_refusal_does_not_reveal_the_name_of_a_number(broker, ready, connect, kind):
    early = await connect()  # Of D1b, whose clients read the text of an error.
    assert await early.exchange(raw.frame(raw.LOGIN, raw.text8("iggy") * 2))
    broker.access = Access(Nothing())
    number = struct.pack("<BBI", 1, 4, 1)
    texts = set()
    for count in (1, 9):  # The first exists, the second does not.
        last = struct.pack("<BBI", 1, 4, count)
        names = {m.GetStream: last, m.GetTopic: number + last, m.GetGroup: number * 2 + last}
        answer = await early.exchange(raw.frame(CODES[kind], names[kind]))
        assert struct.unpack_from("<I", answer) == (ErrorCode.UNAUTHORIZED,)
        texts.add(answer[12:])
    assert texts == {b"unauthorized"}


@pytest.mark.parametrize("broker", [{"access.required": "true"}], indirect=True, ids=[""])
async def test_before_a_login_only_login_commands_are_served(broker, connect):
    rules = broker.access = Access(Nothing())
    talk = await connect()
    leads_there = {m.Ping, u.LoginUser, u.LogoutUser}
    for kind, values in SAMPLES.items():
        if kind not in leads_there:
            status = await talk.status(CODES[kind], **values)
            assert status == ErrorCode.UNAUTHENTICATED, kind.__name__
    assert not rules.rules.asked
    assert not broker.topics.all()


async def test_a_topic_is_created_for_its_client(talk, makers):
    for name in ("one", "two"):
        await talk.create_topic(name)
    assert makers == [("iggy", "iggy 127.0.0.1")] * 2
