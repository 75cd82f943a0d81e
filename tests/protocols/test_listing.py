"""Lists hide objects that the user may not see, in every protocol; a user without any view of a
namespace is refused, existing or not.
"""

import json

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Principal
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.kafka.consumer_protocol import subscription_of
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.pulsar.machine import Type
from braidlog.protocols.pulsar.topic_lists import topics_hash
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.user_records import Grant
from tests.protocols.http.asgi import call
from tests.protocols.iggy.description import named
from tests.protocols.iggy.talk import Talk
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.talk import second_client
from tests.protocols.pulsar.talk import RawPulsar

ANNA = Principal("anna")
ALL = "persistent://public/default/.*"


class AsAnna:
    """The granted rules, as if every client were anna."""

    def __init__(self, rules):
        self._rules = rules

    def allows(self, principal, action, resource):
        return self._rules.allows(ANNA, action, resource)

    def reaches(self, principal, tenant, namespace=""):
        return self._rules.reaches(ANNA, tenant, namespace)


def full(*topics, domain="persistent"):
    return [f"{domain}://public/default/{topic}" for topic in topics]


def topic(name, namespace="default"):
    return TopicName("public", namespace, name)


@pytest.fixture
async def granted(broker):
    """Return `granted`: `await granted(resource)` gives anna a permission; she may see nothing
    before.

    There are topics `seen` (one partition), `seen-too` (two) and `secret` (two), each with a group
    of its name, non-persistent topics `live-seen` and `live-secret`, and a namespace `other`.
    """
    await broker.namespaces.create("public", "other")
    for name, partitions in (("seen", 1), ("seen-too", 2), ("secret", 2)):
        topic_made = await broker.topics.create(topic(name), partitions)
        broker.subscriptions.open(topic_made, name.encode()).commit(0, 0)
    await broker.topics.create(topic("elsewhere", "other"), 1)
    for name in ("live-seen", "live-secret"):
        broker.non_persistent.create(topic(name))
        await broker.non_persistent.partition(topic(f"{name}-parts"), 2)
    broker.access = Access(AsAnna(broker.permissions))

    async def grant(resource, instead_of=None):
        await broker.permissions.grant(Grant("anna", "consume", resource))
        if instead_of is not None:
            await broker.permissions.revoke(Grant("anna", "consume", instead_of))

    return grant


@pytest.fixture
async def pulsar(open_client):
    client = RawPulsar(await open_client("pulsar"))
    await client.connect()
    return client


async def of_namespace(client, mode, namespace="public/default"):
    answer = await client.ask(
        Type.GET_TOPICS_OF_NAMESPACE,
        Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace=namespace,
        mode=mode,
    )
    assert answer.topics_hash == topics_hash(answer.topics)
    return sorted(answer.topics)


SEEN = full("seen", "seen-too-partition-0", "seen-too-partition-1")
LISTS = [
    ("persistent/public/default", SEEN),
    ("persistent/public/default/partitioned", full("seen-too")),
    ("non-persistent/public/default", full("live-seen", domain="non-persistent")),
    (
        "non-persistent/public/default/partitioned",
        full("live-seen-parts", domain="non-persistent"),
    ),
    ("namespaces/public/default/topics", SEEN),
    (
        "namespaces/public/default/topics?mode=ALL",
        [*SEEN, *full("live-seen", domain="non-persistent")],
    ),
    ("namespaces/public", ["public/default"]),
]


@pytest.mark.parametrize(("path", "shown"), LISTS, ids=[path for path, _ in LISTS])
async def test_the_admin_api_lists_only_visible_topics(broker, granted, path, shown):
    app = make_app(broker, RestOptions(), broker.stopping)
    assert (await call(app, "GET", f"/admin/v2/{path}")).status == 403
    nowhere = path.replace("default", "nowhere").replace("spaces/public", "spaces/nowhere", 1)
    assert (await call(app, "GET", f"/admin/v2/{nowhere}")).status == 403
    for resource in ("public/default/seen*", "public/default/live-seen*"):
        await granted(resource)
    answer = await call(app, "GET", f"/admin/v2/{path}")
    assert (answer.status, sorted(json.loads(answer.body))) == (200, sorted(shown))


async def test_pulsars_list_of_a_namespace_has_only_visible_topics(granted, pulsar):
    for namespace in ("public/default", "public/nowhere"):
        code, _ = await pulsar.refused(Type.GET_TOPICS_OF_NAMESPACE, namespace=namespace)
        assert code == ServerError.AuthorizationError
    # A permission to read in any group includes the view of the topic.
    await granted("public/default/seen@billing")
    await granted("public/default/live-seen")
    assert await of_namespace(pulsar, 0) == full("seen")
    assert await of_namespace(pulsar, 1) == full("live-seen", domain="non-persistent")
    await granted("public/default")
    assert len(await of_namespace(pulsar, 0)) == 5


async def test_a_watcher_is_notified_of_visible_topics_and_changed_permissions(
    broker, granted, pulsar
):
    pytest.importorskip("re2", reason="google-re2 is not installed: clients poll")
    watched = {"watcher_id": 1, "namespace": "public/default", "topics_pattern": ALL}
    code, _ = await pulsar.refused(Type.WATCH_TOPIC_LIST, **watched)
    assert code == ServerError.AuthorizationError
    await granted("public/default/seen*")
    answer = await pulsar.ask(Type.WATCH_TOPIC_LIST, Type.WATCH_TOPIC_LIST_SUCCESS, **watched)
    assert (sorted(answer.topic), answer.topics_hash) == (SEEN, topics_hash(SEEN))
    await broker.topics.create(topic("secret-too"), 1)
    await broker.topics.create(topic("seen-last"), 1)
    await broker.topics.delete(topic("secret"))
    await broker.topics.delete(topic("seen"))
    come, gone, shown = [], [], set(SEEN)
    while not (come and gone):
        update = await pulsar.next(Type.WATCH_TOPIC_UPDATE)
        come, gone = come + list(update.new_topics), gone + list(update.deleted_topics)
    assert (come, gone) == (full("seen-last"), full("seen"))
    shown = shown.difference(gone).union(come)
    assert update.topics_hash == topics_hash(shown)
    for resource, more in (("public/default/secret-*", full("secret-too")), ("public", [])):
        await granted(resource)
        for connection in broker.connections:
            connection.access_changed()
        if more:
            update = await pulsar.next(Type.WATCH_TOPIC_UPDATE)
            shown.update(more)
            assert list(update.new_topics) == more
            assert update.topics_hash == topics_hash(shown)
    await pulsar.silent()
    await broker.topics.create(topic("public-now"), 1)
    update = await pulsar.next(Type.WATCH_TOPIC_UPDATE)
    assert list(update.new_topics) == full("public-now")
    assert update.topics_hash == topics_hash({*shown, *full("public-now")})


async def test_kafkas_lists_have_only_visible_topics(granted, open_client):
    client = await second_client(open_client)

    async def listed():
        topics = (await client.call(m.MetadataRequest([]))).topics
        groups = (await client.call_with_table(ListGroupsRequest(), 2)).groups
        return [group.name for group in topics], sorted(group.group_id for group in groups)

    assert await listed() == ([], [])
    await granted("public/default/seen")
    assert await listed() == ([b"seen"], [b"seen"])
    await granted("public/default/seen-*@billing")
    assert await listed() == ([b"seen", b"seen-too"], [b"seen"])
    await granted("public/default/seen-too")
    assert await listed() == ([b"seen", b"seen-too"], [b"seen", b"seen-too"])


async def test_kafkas_groups_are_described_with_visible_topics_only(granted, open_client):
    member, asking = await second_client(open_client), await second_client(open_client)

    async def described(group):
        wanted = DescribeGroupsRequest(groups=[group])
        (described_group,) = (await asking.call_with_table(wanted, 3)).groups
        return described_group.error_code, described_group.group_state, len(described_group.members)

    async def join(group, topics):
        protocols = [JoinGroupRequestProtocol(name=b"range", metadata=subscription_of(topics))]
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            member_id=b"",
            protocol_type=b"consumer",
            protocols=protocols,
            rebalance_timeout_ms=10_000,
        )
        joined = await member.call_with_table(request, 3)
        assert joined.error_code == Code.NONE
        return LeaveGroupRequest(group_id=group, member_id=joined.member_id)

    await granted("public/default")
    leaving = await join(b"both", [b"seen", b"secret"])
    await join(b"one", [b"seen"])
    dead, unknown = (Code.NONE, b"Dead", 0), b"nobody's"
    assert await described(b"both") == (Code.NONE, b"CompletingRebalance", 1)

    await granted("public/default/seen", instead_of="public/default")
    assert await described(b"one") == (Code.NONE, b"CompletingRebalance", 1)
    assert await described(b"both") == await described(unknown) == dead

    await granted("acme", instead_of="public/default/seen")
    for group in (b"one", b"both", unknown):
        assert await described(group) == (Code.GROUP_AUTHORIZATION_FAILED, b"Dead", 0)
    assert (await asking.call_with_table(leaving, 1)).error_code == Code.GROUP_AUTHORIZATION_FAILED


async def test_a_hidden_group_in_use_looks_like_a_missing_group(broker, granted, open_client):
    member, asking = await second_client(open_client), await second_client(open_client)
    await granted("public/default")
    protocols = [JoinGroupRequestProtocol(name=b"range", metadata=subscription_of([b"secret"]))]
    join = JoinGroupRequest(
        group_id=b"used",
        session_timeout_ms=10_000,
        member_id=b"",
        protocol_type=b"consumer",
        protocols=protocols,
        rebalance_timeout_ms=10_000,
    )
    assert (await member.call_with_table(join, 3)).error_code == Code.NONE
    request = DeleteGroupsRequest(groups_names=[b"used"])
    await broker.permissions.grant(Grant("anna", "delete", "public/default/seen"))
    await granted("public/default/seen", instead_of="public/default")
    (deleted,) = (await asking.call_with_table(request, 1)).results
    assert deleted.error_code == Code.GROUP_ID_NOT_FOUND
    await broker.permissions.grant(Grant("anna", "delete", "public/default/secret"))
    (deleted,) = (await asking.call_with_table(request, 1)).results
    assert deleted.error_code == Code.NON_EMPTY_GROUP


async def test_iggys_lists_need_a_view_of_all_topics(granted, open_client):
    talk = Talk(await open_client("iggy"))
    assert await talk.login() == 0
    assert await talk.status(201) == ErrorCode.UNAUTHORIZED
    await granted("public/default/seen")
    wanted = {"stream": named("default")}
    for code in (200, 301):
        assert await talk.status(code, **wanted) == ErrorCode.UNAUTHORIZED
    assert await talk.status(300, **wanted, topic=named("seen")) == 0
    await granted("public/default")
    assert len((await talk.ask(301, **wanted))["topics"]) == 3


async def test_deleting_a_group_keeps_its_part_on_other_topics(broker, granted, open_client):
    for name in ("seen", "secret"):
        broker.subscriptions.open(broker.topics.get(topic(name)), b"shared").commit(0, 0)
    await broker.permissions.grant(Grant("anna", "delete", "public/default/seen"))
    client = await second_client(open_client)
    await client.call_with_table(DeleteGroupsRequest(groups_names=[b"shared"]), 1)
    assert broker.subscriptions.find(broker.topics.get(topic("seen")), b"shared") is None
    assert broker.subscriptions.find(broker.topics.get(topic("secret")), b"shared") is not None
