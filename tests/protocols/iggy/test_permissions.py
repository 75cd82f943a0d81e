"""Iggy's permissions as the broker's grants: read back exactly, and enforced."""

import random

import pytest

from braidlog.broker.access.rules import Grant
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.permissions import GLOBAL, of_stream, of_topic
from braidlog.protocols.iggy.user_messages import (
    GLOBAL_PERMISSIONS,
    STREAM_PERMISSIONS,
    TOPIC_PERMISSIONS,
)
from tests.protocols.iggy.description import named
from tests.protocols.iggy.description_permissions import block
from tests.protocols.iggy.talk import FIRST

CREATE, UPDATE, PERMISSIONS, GET, DELETE = 33, 35, 36, 31, 34
NOTHING = [0] * 10
BOB = {"username": "bob", "password": "secret1", "status": 1}
TP = {"stream": named("st"), "topic": named("tp")}


def permission_flags(names, *wanted):
    assert set(wanted) <= set(names)
    return [int(name in wanted) for name in names]


def everywhere(*wanted):
    return block(permission_flags(GLOBAL_PERMISSIONS, *wanted), {})


def stream_1(*wanted, topics=None):
    return block(NOTHING, {1: (permission_flags(STREAM_PERMISSIONS, *wanted), topics or {})})


def topic_1(*wanted):
    return stream_1(topics={1: permission_flags(TOPIC_PERMISSIONS, *wanted)})


@pytest.fixture
async def bob(talk, connect):
    """Return a user who has logged in; stream `st` (1) has the topics `tp` (1) and `other` (2)."""
    await talk.create_topic()
    await talk.create_topic("other")
    await talk.send(b"x")
    assert await talk.status(CREATE, **BOB, permissions=None) == 0
    other = await connect()
    await other.ask(38, username="bob", password="secret1", version="0.6.202", context="")
    return other


async def set_permissions(talk, permissions):
    assert await talk.status(PERMISSIONS, user=named("bob"), permissions=permissions) == 0


COMMANDS = {
    "stats": lambda client: client.status(10),
    "users": lambda client: client.status(32),
    "new user": lambda client: client.status(
        CREATE, username="eve", password="secret1", status=1, permissions=None
    ),
    "streams": lambda client: client.status(201),
    "stream": lambda client: client.status(200, stream=named("st")),
    "new stream": lambda client: client.status(202, stream_id=0, name="new"),
    "change stream": lambda client: client.status(204, stream=named("st"), name="st"),
    "topics": lambda client: client.status(301, stream=named("st")),
    "topic": lambda client: client.status(300, **TP),
    "new topic": lambda client: new_topic(client),
    "other": lambda client: client.status(300, stream=named("st"), topic=named("other")),
    "add partition": lambda client: client.status(402, **TP, count=1),
    "group": lambda client: client.status(602, **TP, group_id=0, name="grp"),
    "poll": lambda client: poll(client, "tp"),
    "poll other": lambda client: poll(client, "other"),
    "send": lambda client: client.send(b"y"),
    "send other": lambda client: client.send(b"y", topic="other"),
}


async def poll(client, topic):
    return (await client.poll(FIRST, topic=topic))["status"]


async def new_topic(client):
    return (await client.create_topic("new"))["status"]


# The allowed calls of real clients for each permission; any permission on a topic includes its
# view.
SEES = {"topic", "other", "topics"}
READS = {*SEES, "group", "poll", "poll other"}
MANAGES = {*READS, "new topic", "add partition", "send", "send other"}
ONE_SEES = {"topic"}
ONE_READS = {"topic", "group", "poll"}
WHAT = [
    (None, set()),
    (everywhere(), set()),
    (everywhere("read_servers"), {"stats"}),
    (everywhere("manage_servers"), {"stats"}),
    (everywhere("read_users"), {"users"}),
    (everywhere("manage_users"), {"users", "new user"}),
    (everywhere("read_streams"), {*READS, "streams", "stream"}),
    (
        everywhere("manage_streams"),
        {*MANAGES, "streams", "stream", "new stream", "change stream"},
    ),
    (everywhere("read_topics"), READS),
    (everywhere("manage_topics"), MANAGES),
    (everywhere("poll_messages"), READS),
    (everywhere("send_messages"), {*SEES, "send", "send other"}),
    (stream_1("read_stream"), {*READS, "stream"}),
    (stream_1("manage_stream"), {*MANAGES, "stream", "change stream"}),
    (stream_1("read_topics"), READS),
    (stream_1("manage_topics"), MANAGES),
    (stream_1("poll_messages"), READS),
    (stream_1("send_messages"), {*SEES, "send", "send other"}),
    (topic_1("read_topic"), ONE_READS),
    (topic_1("manage_topic"), {*ONE_READS, "add partition", "send"}),
    (topic_1("poll_messages"), ONE_READS),
    (topic_1("send_messages"), {*ONE_SEES, "send"}),
]


@pytest.mark.parametrize(("permissions", "allowed"), WHAT)
async def test_a_permission_is_enforced_and_read_back(talk, bob, permissions, allowed):
    await set_permissions(talk, permissions)
    shown = await talk.ask(GET, user=named("bob"))
    assert shown["permissions"] == permissions
    statuses = {}
    for name, command in COMMANDS.items():
        statuses[name] = await command(bob)
    assert set(statuses.values()) <= {0, ErrorCode.UNAUTHORIZED}
    assert {name for name, status in statuses.items() if status == 0} == allowed


@pytest.mark.parametrize("seed", range(25))
async def test_all_permissions_are_read_back(talk, bob, seed):
    chance = random.Random(seed)

    def flags(count):
        return [chance.randrange(2) for _ in range(count)]

    topics = {number: flags(4) for number in (1, 2) if chance.random() < 0.7}
    streams = {1: (flags(6), topics)} if chance.random() < 0.8 else {}
    permissions = block(flags(10), streams)
    await set_permissions(talk, everywhere(*GLOBAL_PERMISSIONS))
    await set_permissions(talk, permissions)
    assert (await talk.ask(GET, user=named("bob")))["permissions"] == permissions


def test_no_two_permissions_share_a_mark():
    marks = [
        rights[name][0]
        for rights in (GLOBAL, of_stream("st"), of_topic("st", "tp"))
        for name in rights
    ]
    assert len(set(marks)) == len(marks)
    included = [
        right
        for rights in (GLOBAL, of_stream("st"), of_topic("st", "tp"))
        for name in rights
        for right in rights[name][1:]
    ]
    assert not set(included) & set(marks)
    assert list(GLOBAL) == sorted(GLOBAL_PERMISSIONS, key=list(GLOBAL).index)
    assert set(of_stream("s")) == set(STREAM_PERMISSIONS)
    assert set(of_topic("s", "t")) == set(TOPIC_PERMISSIONS)


async def test_a_user_is_created_with_permissions(talk, connect):
    await talk.create_topic()
    created = await talk.ask(CREATE, **BOB, permissions=topic_1("send_messages"))
    assert created["permissions"] == topic_1("send_messages")


@pytest.mark.parametrize(
    ("permissions", "status"),
    [
        (block(NOTHING, {9: ([1] * 6, {})}), ErrorCode.STREAM_ID_NOT_FOUND),
        (stream_1(topics={9: [1] * 4}), ErrorCode.TOPIC_ID_NOT_FOUND),
        (block(NOTHING, {2: ([1] * 6, {})}), ErrorCode.FEATURE_UNAVAILABLE),
        (block(NOTHING, {3: ([1] * 6, {})}), ErrorCode.FEATURE_UNAVAILABLE),
    ],
)
async def test_permissions_without_a_grant_are_refused_without_effect(
    talk, bob, broker, permissions, status
):
    await talk.status(202, stream_id=2, name="all*")
    await talk.status(202, stream_id=3, name="a@b")
    await set_permissions(talk, everywhere("read_users"))
    before = broker.permissions.list()
    assert await talk.status(PERMISSIONS, user=named("bob"), permissions=permissions) == status
    eve = {**BOB, "username": "eve"}
    assert await talk.status(CREATE, **eve, permissions=permissions) == status
    assert broker.permissions.list() == before
    assert broker.users.find("eve") is None


async def test_grants_of_other_tools_are_replaced_except_other_tenants(talk, bob, broker):
    for resource in ("*", "public/default/orders@billing", "pub*", "cluster", "acme/x", "ac*"):
        await broker.permissions.grant(Grant("bob", "produce", resource))
    await set_permissions(talk, None)
    assert {grant.resource for grant in broker.permissions.list("bob")} == {"acme/x", "ac*"}


async def test_permissions_follow_a_renamed_user_and_end_with_a_deleted_user(talk, bob, broker):
    await set_permissions(talk, topic_1("send_messages"))
    assert await talk.status(UPDATE, user=named("bob"), username="bobby", status=None) == 0
    assert (await talk.ask(GET, user=named("bobby")))["permissions"] == topic_1("send_messages")
    assert await talk.status(CREATE, **BOB, permissions=None) == 0
    assert (await talk.ask(GET, user=named("bob")))["permissions"] is None
    assert await talk.status(DELETE, user=named("bobby")) == 0
    assert broker.permissions.list() == []


async def test_every_user_sees_and_changes_itself(bob):
    assert (await bob.ask(GET, user=named("bob")))["user"]["username"] == "bob"
    assert await bob.status(37, user=named("bob"), old="secret1", new="secret2") == 0
    assert await bob.status(GET, user=named("iggy")) == ErrorCode.UNAUTHORIZED


async def test_changes_and_refusals_are_in_the_audit_log(talk, bob, broker):
    noted = []
    audit = broker.audit
    audit.is_on = True
    audit._note = lambda event, name, at, **fields: noted.append((event, name, fields))
    await set_permissions(talk, topic_1("send_messages"))
    assert await bob.status(200, stream=named("st")) == ErrorCode.UNAUTHORIZED
    await bob.ask(42, name="tok", expiry=0)
    await bob.status(43, name="tok")
    await bob.status(37, user=named("bob"), old="secret1", new="secret2")
    await talk.status(DELETE, user=named("bob"))
    changes = [
        (name, fields["what"], fields["on"]) for event, name, fields in noted if event == "change"
    ]
    assert changes == [
        ("iggy", "permission_granted", "bob produce public/st/tp"),
        ("bob", "token_created", "bob tok"),
        ("bob", "token_revoked", "bob tok"),
        ("bob", "user_changed", "bob"),
        ("iggy", "user_deleted", "bob"),
    ]
    refused = [fields for event, _, fields in noted if event == "access" and not fields["allowed"]]
    assert [(event["action"], event["resource"]) for event in refused] == [
        ("describe", "namespace public/st")
    ]


def told_of_changes(broker):
    for connection in tuple(broker.connections):
        connection.access_changed()


async def test_a_member_without_poll_permission_leaves_the_group(talk, bob, broker):
    await set_permissions(talk, topic_1("poll_messages"))
    group = {**TP, "group": named("grp")}
    await talk.ask(602, **TP, group_id=0, name="grp")
    assert await bob.status(604, **group) == 0
    told_of_changes(broker)
    assert len((await talk.ask(600, **group))["members"]) == 1
    await set_permissions(talk, topic_1("send_messages"))
    told_of_changes(broker)
    assert (await talk.ask(600, **group))["members"] == []
    assert await bob.status(604, **group) == ErrorCode.UNAUTHORIZED


@pytest.mark.parametrize("how", ["removed", "inactive"])
async def test_a_deleted_user_has_no_connection_left(talk, bob, broker, how):
    if how == "removed":
        assert await talk.status(DELETE, user=named("bob")) == 0
    else:
        assert await talk.status(UPDATE, user=named("bob"), username=None, status=2) == 0
    told_of_changes(broker)
    assert await bob.answer() is None
    assert await talk.status(1) == 0


async def test_only_visible_groups_of_a_topic_are_listed(talk, bob, broker):
    for number, name in enumerate(("billing", "shipping"), 1):
        await talk.ask(602, **TP, group_id=number, name=name)
    await broker.permissions.grant(Grant("bob", "consume", "public/st/tp@billing"))
    assert [group["name"] for group in (await bob.ask(601, **TP))["groups"]] == ["billing"]
    assert len((await talk.ask(601, **TP))["groups"]) == 2


EMPTY = {
    "nothing anywhere": everywhere(),
    "nothing in a stream": stream_1(),
    "nothing in a topic": stream_1(topics={1: [0] * 4}),
    "nothing beside something": block(
        NOTHING,
        {1: (permission_flags(STREAM_PERMISSIONS, "read_stream"), {1: [0] * 4, 2: [0, 0, 1, 0]})},
    ),
}


@pytest.mark.parametrize("name", EMPTY)
async def test_permissions_that_are_all_false_are_kept_and_read_back(broker, talk, bob, name):
    async def stored_permissions():
        return (await talk.ask(GET, user=named("bob")))["permissions"]

    await set_permissions(talk, EMPTY[name])
    assert await stored_permissions() == EMPTY[name]
    assert broker.users.find("bob").permitted
    may_read = name == "nothing beside something"
    assert await poll(bob, "tp") == (0 if may_read else ErrorCode.UNAUTHORIZED)
    assert await talk.status(UPDATE, user=named("bob"), username="bobby", status=None) == 0
    assert (await talk.ask(GET, user=named("bobby")))["permissions"] == EMPTY[name]
    assert await talk.status(UPDATE, user=named("bobby"), username="bob", status=None) == 0
    await set_permissions(talk, everywhere("read_users"))
    assert await stored_permissions() == everywhere("read_users")
    await set_permissions(talk, None)
    assert await stored_permissions() is None


async def test_a_user_is_created_with_permissions_that_are_all_false(talk):
    await talk.create_topic()
    created = await talk.ask(CREATE, **BOB, permissions=EMPTY["nothing in a topic"])
    assert created["permissions"] == EMPTY["nothing in a topic"]


async def test_permissions_for_a_deleted_stream_are_not_returned(talk, bob):
    await set_permissions(talk, stream_1())
    assert await talk.status(203, stream=named("st")) == 0
    assert (await talk.ask(GET, user=named("bob")))["permissions"] == everywhere()


async def test_a_user_with_permissions_and_a_change_of_them_are_a_record_each(talk, broker):
    """Several records would leave a part of the permissions after a crash."""
    await talk.create_topic()
    await talk.create_topic("other")
    place = broker.catalogue.state.writer.place
    created = await talk.ask(CREATE, **BOB, permissions=EMPTY["nothing beside something"])
    assert created["status"] == 0 and len(broker.permissions.list("bob")) > 1
    assert broker.catalogue.state.writer.place == place + 1
    await set_permissions(talk, stream_1("manage_stream", topics={1: [0] * 4}))
    assert broker.catalogue.state.writer.place == place + 2


@pytest.mark.limits(grants=3)
async def test_permissions_above_the_limit_change_nothing(talk, bob, broker):
    await set_permissions(talk, everywhere("read_users"))
    large = everywhere("manage_streams", "manage_users")
    eve = {**BOB, "username": "eve"}
    assert await talk.status(CREATE, **eve, permissions=large) == ErrorCode.ERROR
    assert await talk.status(PERMISSIONS, user=named("bob"), permissions=large) == ErrorCode.ERROR
    assert (await talk.ask(GET, user=named("bob")))["permissions"] == everywhere("read_users")
    assert broker.users.find("eve") is None
