"""Groups that clients have joined are in every list before their first position."""

from types import SimpleNamespace

import pytest
import trio

from braidlog.broker.cluster.placement import NOBODY
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.kafka.consumer_protocol import assignment_of, subscription_of
from braidlog.protocols.kafka.group_coordinator import groups_of
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.describe_groups import DescribeGroupsRequest
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.user_records import Grant
from tests.broker.cluster.nodes import two_brokers
from tests.listeners import open_listeners
from tests.protocols.http.asgi import call
from tests.protocols.http.test_login import basic
from tests.protocols.iggy.description import named
from tests.protocols.iggy.talk import Talk
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import join_request, second_client
from tests.protocols.zookeeper.talk import RawZooKeeper
from tests.protocols.zookeeper.test_kafka_view import store_consumer
from tests.storage.shared.shared_dirs import SharedStore

GROUPS = "/api/v1/groups"
ORDERS = TopicName("public", "default", "orders")
MEMBER = b"A" * 22


@pytest.fixture
async def app(broker):
    await broker.topics.create(ORDERS, 2)
    return make_app(broker, RestOptions(), broker.stopping)


async def listed(app, query=""):
    """Return (topic, group, type, protocol type, state, members, backlog) of each group."""
    page = (await call(app, "GET", f"{GROUPS}{query}")).json
    return [
        tuple(
            group[key]
            for key in ("topic", "group", "type", "protocol_type", "state", "members", "backlog")
        )
        for group in page["groups"]
    ]


async def shown(app, group, topic="orders"):
    return (await call(app, "GET", f"{GROUPS}/public/default/{topic}/{group}")).json


async def join_classic(client, topics, partitions=None, group=b"g", kind=b"consumer"):
    """Join a classic group as its only member, with these topics; return the member's id."""
    metadata = subscription_of(topics) if kind == b"consumer" else b"a worker"
    request = join_request({b"range": metadata}, group_id=group, protocol_type=kind)
    reply = await client.call_with_table(request, 3)
    assert reply.error_code == 0
    if partitions is not None:
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=reply.generation_id,
            member_id=reply.member_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=reply.member_id, assignment=assignment_of(partitions)
                )
            ],
        )
        assert (await client.call_with_table(sync, 3)).error_code == 0
    return reply.member_id.decode()


async def test_a_classic_group_is_listed_with_its_first_member(app, open_client):
    client = await second_client(open_client)
    member = await join_classic(client, [b"orders"], {b"orders": [0, 1]})
    row = ("public/default/orders", "g", "classic", "consumer", "Stable", 1, None)
    for query in ("", "?topic=orders", "?group=g", "?contains=g", "?sort=lag", "?ages=true"):
        assert await listed(app, query) == [row], query
    assert await listed(app, "?group=other") == await listed(app, "?contains=other") == []
    detail = await shown(app, "g")
    assert (detail["state"], detail["type"], detail["backlog"]) == ("Stable", "classic", None)
    assert [part["position"] for part in detail["partitions"]] == [None, None]
    assert [part["backlog"] for part in detail["partitions"]] == [None, None]
    (shown_member,) = detail["members"]
    assert (shown_member["name"], shown_member["partitions"]) == (member, [0, 1])
    topic = (await call(app, "GET", "/api/v1/topics/public/default/orders")).json
    assert [group["group"] for group in topic["groups"]] == ["g"]


async def test_a_group_is_listed_on_topics_with_and_without_a_position(app, broker, open_client):
    other = await broker.topics.create(TopicName("public", "default", "paid"), 1)
    broker.subscriptions.open(other, b"g").commit(0, 0)
    client = await second_client(open_client)
    await join_classic(client, [b"orders", b"paid"])
    rows = [
        (topic, state, members, lag) for topic, _, _, _, state, members, lag in await listed(app)
    ]
    assert rows == [
        ("public/default/orders", "CompletingRebalance", 1, None),
        ("public/default/paid", "CompletingRebalance", 1, 0),
    ]
    assert [row[0] for row in await listed(app, "?sort=lag")] == [
        "public/default/paid",
        "public/default/orders",
    ]
    first = (await call(app, "GET", f"{GROUPS}?limit=1")).json
    assert [group["topic"] for group in first["groups"]] == ["public/default/orders"]
    second = (await call(app, "GET", f"{GROUPS}?limit=1&after={first['next']}")).json
    assert [group["topic"] for group in second["groups"]] == ["public/default/paid"]


async def test_metrics_count_members_without_a_position(app, broker, open_client):
    client = await second_client(open_client)
    await join_classic(client, [b"orders"])
    own = 'braidlog_group_members{subscription="g",topic="public/default/orders"} 1.0'
    of_exporter = 'kafka_consumergroup_members{consumergroup="g",topic="orders"} 1.0'
    for _ in range(2):
        lines = (await call(app, "GET", "/metrics")).body.decode().splitlines()
        assert own in lines and lines.count(of_exporter) == 1
        broker.subscriptions.open(broker.topics.get(ORDERS), b"g").commit(0, 0)


async def test_a_group_of_the_consumer_protocol_is_listed(app, open_client):
    client = await second_client(open_client)
    beat = ConsumerGroupHeartbeatRequest(
        group_id=b"g",
        member_id=MEMBER,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[b"orders"],
        topic_partitions=[],
    )
    assert (await client.call_with_table(beat, 1)).error_code == 0
    row = ("public/default/orders", "g", "consumer", "consumer", "Stable", 1, None)
    assert await listed(app) == [row]
    (member,) = (await shown(app, "g"))["members"]
    assert (member["name"], member["partitions"]) == (MEMBER.decode(), [0, 1])


async def test_a_share_group_is_listed_before_its_first_fetch(app, open_client):
    client = await second_client(open_client)
    beat = ShareGroupHeartbeatRequest(
        group_id=b"g", member_id=MEMBER, subscribed_topic_names=[b"orders"]
    )
    assert (await client.call_whole(beat, 1)).error_code == 0
    row = ("public/default/orders", "g", "share", "share", "Stable", 1, None)
    assert await listed(app) == [row]
    (member,) = (await shown(app, "g"))["members"]
    assert (member["name"], member["partitions"]) == (MEMBER.decode(), [0, 1])


@pytest.mark.parametrize(
    ("kind", "topics"), [(b"connect", []), (b"consumer", [b"missing"])], ids=["connect", "missing"]
)
async def test_a_group_of_no_topic_is_listed_with_its_clients(app, open_client, kind, topics):
    client = await second_client(open_client)
    member = await join_classic(client, topics, kind=kind)
    row = (None, "g", "classic", kind.decode(), "CompletingRebalance", 1, None)
    assert await listed(app) == await listed(app, "?sort=lag") == [row]
    assert await listed(app, "?topic=orders") == []
    (group,) = (await call(app, "GET", f"{GROUPS}?group=g")).json["groups"]
    assert [each["name"] for each in group["clients"]] == [member]


async def test_a_group_with_members_has_nothing_to_delete(app, open_client):
    client = await second_client(open_client)
    await join_classic(client, [b"orders"])
    path = f"{GROUPS}/public/default/orders/g"
    assert (await call(app, "DELETE", path)).json["code"] == "group_busy"
    assert (await call(app, "DELETE", f"{path}?force=true")).json["code"] == "group_not_found"


@pytest.mark.parametrize("broker", [{"access.required": "true"}], indirect=True, ids=[""])
async def test_groups_that_the_user_may_not_see_are_hidden(app, broker):
    await broker.users.create("anna", "secret")
    await broker.permissions.grant(Grant("anna", "consume", "public/default/@seen*"))
    for name, topics in ((b"seen", [b"orders"]), (b"hidden", [b"orders"]), (b"seen-too", [])):
        request = join_request({b"range": subscription_of(topics)}, group_id=name)
        group = groups_of(broker, "public/default").get(name)
        group.admit(request, (b"client", b"/::1"), trio.current_time())
    answer = await call(app, "GET", GROUPS, headers=basic("anna:secret"))
    assert [group["group"] for group in answer.json["groups"]] == ["seen-too", "seen"]


@pytest.fixture
async def iggy(broker, open_client):
    """Return a connection with a topic of two partitions and a group without a position."""
    talk = Talk(await open_client("iggy"))
    assert await talk.login() == 0
    await talk.create_topic(partitions=2)
    await talk.ask(602, stream=named("st"), topic=named("tp"), group_id=0, name="g")
    return talk


IGGY_GROUP = {"stream": named("st"), "topic": named("tp"), "group": named("g")}


async def test_an_iggy_group_is_listed_before_its_first_position(broker, iggy):
    app = make_app(broker, RestOptions(), broker.stopping)
    assert await listed(app) == [("public/st/tp", "g", "group", "", "Empty", 0, None)]
    await iggy.ask(604, **IGGY_GROUP)
    assert await listed(app) == [("public/st/tp", "g", "group", "", "Stable", 1, None)]
    detail = (await call(app, "GET", f"{GROUPS}/public/st/tp/g")).json
    assert [member["partitions"] for member in detail["members"]] == [[0, 1]]


async def test_a_deleted_iggy_group_is_gone_with_its_members(broker, iggy):
    app = make_app(broker, RestOptions(), broker.stopping)
    await iggy.ask(604, **IGGY_GROUP)
    path = f"{GROUPS}/public/st/tp/g"
    assert (await call(app, "DELETE", path)).json["code"] == "group_busy"
    assert (await call(app, "DELETE", f"{path}?force=true")).status == 204
    assert await listed(app) == []
    assert await iggy.ask(600, **IGGY_GROUP) == {"status": 0}
    await iggy.ask(602, stream=named("st"), topic=named("tp"), group_id=0, name="g")
    assert await listed(app) == [("public/st/tp", "g", "group", "", "Empty", 0, None)]


async def test_kafkas_tools_see_the_members_of_an_iggy_group(iggy, open_client):
    client = RawKafka(await open_client("kafka", namespace="public/st"))

    async def kafka_view():
        groups = (await client.call_with_table(ListGroupsRequest(), 4)).groups
        request = DescribeGroupsRequest(groups=[b"g"])
        (described,) = (await client.call_with_table(request, 1)).groups
        states = [(group.group_id, group.group_state) for group in groups]
        return states, described.group_state, len(described.members)

    assert await kafka_view() == ([], b"Dead", 0)
    await iggy.ask(604, **IGGY_GROUP)
    assert await kafka_view() == ([(b"g", b"Stable")], b"Stable", 1)
    request = DeleteGroupsRequest(groups_names=[b"g"])
    (deleted,) = (await client.call_with_table(request, 1)).results
    assert deleted.error_code == 68  # NON_EMPTY_GROUP


async def test_a_zookeeper_group_is_listed_before_its_first_position(app, open_client):
    await (await open_client("kafka")).aclose()
    client = await RawZooKeeper(await open_client("zookeeper")).connect()
    await store_consumer(client, topic="orders")
    row = ("public/default/orders", "g", "group", "", "Stable", 1, None)
    assert await listed(app) == [row]
    (member,) = (await shown(app, "g"))["members"]
    assert (member["name"], member["partitions"]) == ("c-1", [0])


@pytest.fixture
async def cluster(tmp_path):
    """Yield two brokers: the client has joined a group at the second, which reads both brokers'
    topics.
    """
    async with two_brokers(SharedStore(tmp_path)) as (nodes, names):
        second = nodes[1].broker
        second.placement.owner_of_name = lambda name: None  # It coordinates every group.
        async with open_listeners(second) as connect:
            client = RawKafka(await connect("kafka", group_initial_delay_ms=0))
            mine, theirs = (name.topic.encode() for name in names)
            member = await join_classic(client, [mine, theirs], {mine: [1], theirs: [0]})
            apps = [make_app(node.broker, RestOptions(), trio.Event()) for node in nodes]
            yield SimpleNamespace(apps=apps, nodes=nodes, names=names, member=member)


async def test_a_group_of_another_coordinator_is_listed(cluster):
    rows = sorted(
        (name.full, "g", "classic", "consumer", "Stable", 1, None) for name in cluster.names
    )
    for app in cluster.apps:
        assert await listed(app) == rows
    detail = await shown(cluster.apps[0], "g", cluster.names[0].topic)
    assert (detail["state"], detail["silent_brokers"]) == ("Stable", [])
    members = [(member["name"], member["partitions"]) for member in detail["members"]]
    assert members == [(cluster.member, [1])]
    path = f"{GROUPS}/{cluster.names[0].full}/g"
    assert (await call(cluster.apps[0], "DELETE", path)).json["code"] == "group_busy"


async def test_a_group_that_has_moved_to_another_coordinator_is_not_listed(cluster):
    cluster.nodes[1].broker.placement.owner_of_name = lambda name: NOBODY
    for app in cluster.apps:
        assert await listed(app) == []


async def test_a_broker_that_does_not_answer_is_named(cluster, autojump_clock):
    first, app = cluster.nodes[0].broker, cluster.apps[0]
    calls = []

    async def hangs(node, asker, name, *arguments):
        calls.append(name)
        await trio.sleep_forever()

    first.peers.ask = hangs
    page = (await call(app, "GET", GROUPS)).json
    assert (page["groups"], page["silent_brokers"], calls) == ([], [3], ["joined_groups"])
    topic = (await call(app, "GET", f"/api/v1/topics/{cluster.names[0].full}")).json
    assert topic["silent_brokers"] == [3]
    position = first.subscriptions.open(first.topics.get(cluster.names[0]), b"g")
    position.commit(0, 0)
    detail = await shown(app, "g", cluster.names[0].topic)
    assert (detail["members"], detail["silent_brokers"]) == ([], [3])
    path = f"{GROUPS}/{cluster.names[0].full}/g"
    refused = (await call(app, "DELETE", path)).json
    assert refused["code"] == "group_busy" and "broker 3" in refused["message"]
    assert (await call(app, "DELETE", f"{path}?force=true")).status == 204
