"""The nodes that show the broker as Kafka 0.8 shows itself, and the positions that all protocols
share.
"""

import json

import pytest

from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.zookeeper.adapter import ADAPTER
from braidlog.protocols.zookeeper.errors import ZkCode
from braidlog.protocols.zookeeper.messages import Event, Op
from braidlog.storage.metadata.names import TopicName
from tests.protocols.zookeeper.talk import EPHEMERAL, OPEN, SEQUENTIAL

T = TopicName("public", "default", "t")


async def read(client, path):
    return json.loads(await client.get(path))


async def make_topic(client, name="t", partitions=2):
    assignment = {"version": 1, "partitions": {str(index): [1] for index in range(partitions)}}
    await client.create(f"/brokers/topics/{name}", json.dumps(assignment).encode())


async def store_consumer(client, consumer="c-1", topic="t", group="g"):
    """Store the nodes of a consumer of Kafka 0.8 that owns partition 0."""
    await client.create(f"/consumers/{group}")
    for name in ("ids", "owners", f"owners/{topic}"):
        await client.create(f"/consumers/{group}/{name}")
    registration = {"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1"}
    path = f"/consumers/{group}/ids/{consumer}"
    await client.create(path, json.dumps(registration).encode(), EPHEMERAL)
    path = f"/consumers/{group}/owners/{topic}/0"
    await client.create(path, f"{consumer}-0".encode(), EPHEMERAL)


async def test_the_broker_is_shown_with_the_address_of_the_kafka_listener(client, broker):
    assert await client.children("/brokers/ids") == ["1"]
    shown = await read(client, "/brokers/ids/1")
    assert (shown["host"], shown["port"]) == broker.listeners["kafka"].bound
    assert (await read(client, "/controller"))["brokerid"] == 1
    assert await client.get("/controller_epoch") == b"1"
    assert await client.code(Op.SET_DATA, "/brokers/ids/1", b"{}", -1) == ZkCode.NO_AUTH
    assert await client.code(Op.CREATE, "/brokers/ids/2", b"{}", OPEN, 1) != 0
    assert await client.exists("/brokers/ids/2") is None


async def test_tools_create_grow_and_delete_topics(client, broker):
    await client.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5000"}}')
    await make_topic(client)
    topic = broker.topics.get(T)
    assert len(topic.partitions) == 2
    assert topic.settings == {"retention_ms": 5000}
    assert await client.children("/brokers/topics") == ["t"]
    assert (await read(client, "/brokers/topics/t"))["partitions"] == {"0": [1], "1": [1]}
    assert await client.children("/brokers/topics/t/partitions") == ["0", "1"]
    state = await read(client, "/brokers/topics/t/partitions/1/state")
    assert (state["leader"], state["isr"]) == (1, [1])
    three = b'{"version":1,"partitions":{"0":[1],"2":[1],"1":[1]}}'
    await client.set("/brokers/topics/t", three)
    assert len(topic.partitions) == 3
    await client.create("/admin/delete_topics/t", None)
    assert broker.topics.find(T) is None
    assert await client.exists("/brokers/topics/t") is None
    assert await client.exists("/config/topics/t") is None
    assert await client.children("/admin/delete_topics") == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"partitions":{}}',
        b'{"partitions":{"1":[1]}}',
        b'{"partitions":{"0":[2]}}',
        b'{"partitions":{"0":[]}}',
    ],
)
async def test_a_topic_without_a_sensible_assignment_is_refused(client, broker, data):
    path = "/brokers/topics/t"
    assert await client.code(Op.CREATE, path, data, OPEN, 0) == ZkCode.BAD_ARGUMENTS
    assert broker.topics.find(T) is None


async def test_a_topic_does_not_shrink_and_has_a_legal_name(client):
    await make_topic(client)
    assignment = b'{"version":1,"partitions":{"0":[1]}}'
    assert (
        await client.code(Op.SET_DATA, "/brokers/topics/t", assignment, -1) == ZkCode.BAD_ARGUMENTS
    )
    assert (
        await client.code(Op.CREATE, "/brokers/topics/a b", assignment, OPEN, 0)
        == ZkCode.BAD_ARGUMENTS
    )
    assert (
        await client.code(Op.CREATE, "/brokers/topics/t", assignment, OPEN, 0) == ZkCode.NODE_EXISTS
    )
    assert await client.code(Op.DELETE, "/brokers/topics/t", -1) == ZkCode.NO_AUTH


async def test_settings_change_and_unknown_names_are_kept(client, broker):
    await make_topic(client)
    config = {"retention.ms": "1000", "max.message.bytes": "7", "cleanup.policy": "compact"}
    await client.set("/config/topics/t", json.dumps({"version": 1, "config": config}).encode())
    assert broker.topics.get(T).settings == {
        "retention_ms": 1000,
        "batch_bytes_max": 7,
        "cleanup_policy": "compact",
    }
    assert (await read(client, "/config/topics/t"))["config"] == config
    await client.set("/config/topics/t", b'{"version":1,"config":{}}')
    assert broker.topics.get(T).settings == {}
    assert (await read(client, "/config/topics/t"))["config"] == {}
    bad = b'{"version":1,"config":{"retention.ms":"soon"}}'
    assert await client.code(Op.SET_DATA, "/config/topics/t", bad, -1) == ZkCode.BAD_ARGUMENTS


async def test_notifications_take_numbers_and_go_after_a_quarter_of_an_hour(client, broker):
    path = "/config/changes/config_change_"
    assert await client.create(path, b'"t"', SEQUENTIAL) == f"{path}0000000000"
    service = ADAPTER.services[broker]
    service._delete_notifications()
    assert len(await client.children("/config/changes")) == 1
    service._notifications_at = 0.0
    broker.now_us = lambda now=broker.now_us: now() + 16 * 60 * 1_000_000
    service._delete_notifications()
    assert await client.children("/config/changes") == []
    assert await client.create(path, b'"t"', SEQUENTIAL) == f"{path}0000000001"


async def test_requests_for_leaders_end_at_once(client):
    for name in ("preferred_replica_election", "reassign_partitions"):
        await client.create(f"/admin/{name}", b'{"version":1,"partitions":[]}')
        assert await client.exists(f"/admin/{name}") is None
        assert await client.code(Op.CREATE, f"/admin/{name}", b"[", OPEN, 0) == ZkCode.BAD_ARGUMENTS


async def test_a_position_is_that_of_the_group_in_every_protocol(client, broker):
    await make_topic(client)
    path = "/consumers/g/offsets/t/1"
    assert await client.code(Op.SET_DATA, path, b"5", -1) == ZkCode.NO_NODE
    for parent in ("/consumers/g", "/consumers/g/offsets", "/consumers/g/offsets/t"):
        await client.create(parent, None)
    await client.create(path, b"5")
    subscription = broker.subscriptions.get(broker.topics.get(T), b"g")
    assert subscription.position(1) == 5
    assert subscription.committed(1).offset == 5
    await client.set(path, b"7")
    assert subscription.position(1) == 7
    subscription.seek(1, 3)  # As another protocol does.
    assert await client.get(path) == b"3"
    subscription.seek(0, 9)
    assert await client.children("/consumers/g/offsets/t") == ["0", "1"]
    for data in (b"", b"x", b"1.5", b"9" * 20):
        assert await client.code(Op.SET_DATA, path, data, -1) == ZkCode.BAD_ARGUMENTS
    assert await client.get(path) == b"3"


async def test_a_position_is_shown_when_a_crash_does_not_take_it_back(client, broker):
    await make_topic(client)
    subscription = broker.subscriptions.open(broker.topics.get(T), b"g")
    for position, lazy in ((5, False), (7, True)):
        subscription.commit(1, position, lazy=lazy)
        assert await client.get("/consumers/g/offsets/t/1") == b"%d" % position
        assert broker.subscriptions.flush_lazy() <= broker.durability.durable_ticket


async def test_groups_of_all_protocols_are_shown(client, broker):
    await make_topic(client)
    topic = broker.topics.get(T)
    for name in (b"pulsar", b"with/slash", b"\xff", b".."):
        broker.subscriptions.open(topic, name).seek(0, 1)
    assert await client.children("/consumers") == ["pulsar"]
    assert await client.children("/consumers/pulsar") == ["offsets"]
    assert await client.children("/consumers/pulsar/offsets") == ["t"]
    assert await client.get("/consumers/pulsar/offsets/t/0") == b"1"
    await client.create("/consumers/pulsar/ids")  # The node above is stored with it.
    assert await client.children("/consumers/pulsar") == ["ids", "offsets"]


async def test_a_group_ends_leaf_by_leaf(client, broker):
    await make_topic(client)
    topic = broker.topics.get(T)
    broker.subscriptions.open(topic, b"g").seek(0, 1)
    assert await client.code(Op.DELETE, "/consumers/g", -1) != 0
    await client.delete("/consumers/g/offsets/t/0")
    assert await client.exists("/consumers/g") is None
    assert broker.subscriptions.find(topic, b"g") is None


async def test_a_position_stays_while_another_protocol_reads(client, broker):
    await make_topic(client)
    broker.subscriptions.open(broker.topics.get(T), b"g").seek(0, 1)
    broker.members.add_source(
        lambda topic, name: [SubscriptionMember("pulsar", "p", "", [0])], "pulsar"
    )
    assert await client.code(Op.DELETE, "/consumers/g/offsets/t/0", -1) == ZkCode.NOT_EMPTY


async def test_an_old_number_of_a_consumer_that_lost_the_partition_moves_nothing(session, broker):
    owner, former = await session(), await session()
    await make_topic(owner)
    await store_consumer(owner)
    path = "/consumers/g/offsets/t/0"
    broker.subscriptions.open(broker.topics.get(T), b"g").seek(0, 10)
    await former.set(path, b"4")
    assert await owner.get(path) == b"10"
    assert broker.metrics.number("braidlog_stale_commits", "zookeeper").value == 1
    await former.set(path, b"12")  # Forward, as every protocol may.
    await owner.set(path, b"6")  # The owner may go back.
    assert await owner.get(path) == b"6"


@pytest.mark.parametrize(
    ("subscription", "moved"),
    [
        (b'{"version":1,"subscription":{"t":1},"pattern":"static"}', b"10"),
        (b'{"version":1,"subscription":{".*":1},"pattern":"white_list"}', b"10"),
        (b'{"version":1,"subscription":{"other":1},"pattern":"static"}', b"4"),
        (b'{"version": 1, "subscription": {"other": 1}, "pattern": "static"}', b"4"),
    ],
)
async def test_an_old_number_moves_nothing_while_others_share_out_the_partitions(
    session, broker, subscription, moved
):
    other, former = await session(), await session()
    await make_topic(other)
    await other.create("/consumers/g", b"")
    await other.create("/consumers/g/ids", b"")
    await other.create("/consumers/g/ids/g_other", subscription, EPHEMERAL)
    await former.create("/consumers/g/ids/g_former", subscription, EPHEMERAL)
    broker.subscriptions.open(broker.topics.get(T), b"g").seek(0, 10)
    await former.set("/consumers/g/offsets/t/0", b"4")
    assert await other.get("/consumers/g/offsets/t/0") == moved


async def test_the_only_consumer_of_a_group_may_go_back(client, broker):
    await make_topic(client)
    await store_consumer(client)
    await client.delete("/consumers/g/owners/t/0")
    broker.subscriptions.open(broker.topics.get(T), b"g").seek(0, 10)
    await client.set("/consumers/g/offsets/t/0", b"4")
    assert await client.get("/consumers/g/offsets/t/0") == b"4"


async def test_consumers_are_members_in_every_tool(client, broker):
    await make_topic(client)
    await store_consumer(client)
    (member,) = broker.members.of(broker.topics.get(T), b"g")
    assert (member.protocol, member.name, member.partitions) == ("zookeeper", "c-1", [0])
    assert member.address.startswith("127.0.0.1:")
    assert broker.members.others(broker.topics.get(T), b"g", "zookeeper") == []
    await client.call(Op.CLOSE)
    assert broker.members.of(broker.topics.get(T), b"g") == []


async def test_changes_of_other_protocols_fire_watches(client, broker):
    await client.children("/brokers/topics", watch=True)
    await client.exists("/brokers/topics/t", watch=True)
    await broker.topics.create(T, 1)
    assert await client.exists("/brokers/topics/t") is not None
    assert set(client.events) == {
        (Event.CHILDREN_CHANGED, "/brokers/topics"),
        (Event.CREATED, "/brokers/topics/t"),
    }
    client.events.clear()
    await client.get("/brokers/topics/t", watch=True)
    await broker.topics.add_partitions(T, 2)
    await client.exists("/")
    assert list(client.events) == [(Event.DATA_CHANGED, "/brokers/topics/t")]


async def test_a_watch_on_a_position_fires_before_the_read_that_shows_it(client, broker):
    await make_topic(client)
    subscription = broker.subscriptions.open(broker.topics.get(T), b"g")
    subscription.seek(0, 1)
    path = "/consumers/g/offsets/t/0"
    await client.get(path, watch=True)
    subscription.seek(0, 2)
    assert await client.get(path, watch=True) == b"2"
    assert list(client.events) == [(Event.DATA_CHANGED, path)]
    subscription.seek(0, 3)
    await ADAPTER.services[broker].look_at_watched(0.0)  # Without a read, within a second.
    await client.exists("/")
    assert len(client.events) == 2


async def test_versions_of_virtual_nodes_grow_and_are_compared(client, broker):
    await make_topic(client)
    subscription = broker.subscriptions.open(broker.topics.get(T), b"g")
    subscription.seek(0, 1)
    path = "/consumers/g/offsets/t/0"
    first = await client.exists(path)
    assert await client.exists(path) == first
    subscription.seek(0, 2)
    second = await client.exists(path)
    assert second[4] > first[4]
    assert second[1] > first[1]
    assert second[0] == first[0]
    assert await client.code(Op.SET_DATA, path, b"3", first[4]) == ZkCode.BAD_VERSION
    await client.set(path, b"3", second[4])
    assert await client.get(path) == b"3"


async def test_an_offset_of_an_unknown_topic_is_a_stored_node(client):
    for part in ("g", "g/offsets", "g/offsets/none"):
        await client.create(f"/consumers/{part}")
    await client.create("/consumers/g/offsets/none/0", b"17")
    assert await client.get("/consumers/g/offsets/none/0") == b"17"
    await make_topic(client, "none", 1)
    assert await client.exists("/consumers/g/offsets/none/0") is None  # A position, never set.
    assert await client.children("/consumers/g/offsets/none") == []


async def test_virtual_nodes_take_no_part_in_transactions(client, broker):
    from tests.protocols.zookeeper.talk import multi_frame

    await make_topic(client)
    part = (Op.DELETE, "/brokers/topics/t", -1)
    await client.stream.send_all(multi_frame(9, part))
    reader = (await client.answer())[2]
    reader.take(9)
    assert reader.i32() == ZkCode.UNIMPLEMENTED
    assert broker.topics.find(T) is not None


@pytest.mark.parametrize("data", [b'{"\xc2":1}', b'"' + b"\xff", b"[" * 5000, b'{"config":[]}'])
async def test_data_that_are_no_settings_are_refused_and_the_session_goes_on(client, data):
    await make_topic(client)
    places = [(Op.SET_DATA, "/config/topics/t"), (Op.SET_DATA, "/brokers/topics/t")]
    for op, path in places:
        assert await client.code(op, path, data, -1) == ZkCode.BAD_ARGUMENTS
    if data != b'{"config":[]}':
        path = "/admin/reassign_partitions"
        assert await client.code(Op.CREATE, path, data, OPEN, 0) == ZkCode.BAD_ARGUMENTS


async def test_bad_settings_stored_before_the_topic_do_not_disturb_other_protocols(client, broker):
    await client.create("/config/topics/t", b"\xff")
    await client.get("/config/topics/t", watch=True)
    await broker.topics.create(T, 1)
    assert await read(client, "/config/topics/t") == {"version": 1, "config": {}}


async def test_names_with_thousands_of_digits_are_no_partitions(client, broker):
    await make_topic(client)
    await store_consumer(client)
    digits = "1" * 5000
    assert await client.exists(f"/brokers/topics/t/partitions/{digits}") is None
    assert await client.exists(f"/consumers/g/offsets/t/{digits}") is None
    await client.create(f"/consumers/g/owners/t/{digits}", b"c-1-0")
    (member,) = broker.members.of(broker.topics.get(T), b"g")
    assert member.partitions == [0]
