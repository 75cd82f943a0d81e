import base64
from urllib.parse import quote

import pytest
import trio

from braidlog.broker.positions.members import SubscriptionMember
from braidlog.protocols.http.management.groups import RANGES_TOLD_MAX
from braidlog.storage.errors import WouldBlock
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.asgi import call
from tests.protocols.http.opened import connection
from tests.protocols.http.records import append_records

PATH = "/api/v1/groups/public/default/orders"


@pytest.fixture
async def topic(broker):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 2)
    append_records(broker, topic.partition(0), 10)
    await broker.durability.all_durable()
    return topic


async def test_show_has_position_ranges_and_backlog_of_each_partition(app, broker, topic):
    group = broker.subscriptions.open(topic, b"billing")
    group.commit(0, 2)
    group.ack(0, [(4, 6), (7, 8)], lazy=False)
    answer = await call(app, "GET", f"{PATH}/billing")
    assert answer.status == 200
    assert answer.json == {
        "topic": "public/default/orders",
        "group": "billing",
        "encoding": "utf8",
        "backlog": 5,
        "state": "Empty",
        "type": None,
        "protocol_type": None,
        "members": [],
        "silent_brokers": [],
        "partitions": [
            {
                "partition": 0,
                "position": 2,
                "acknowledged": [[4, 5], [7, 7]],
                "acknowledged_ranges": 2,
                "backlog": 5,
                "log_start_offset": 0,
                "high_watermark": 10,
            },
            {
                "partition": 1,
                "position": None,
                "acknowledged": [],
                "acknowledged_ranges": 0,
                "backlog": 0,
                "log_start_offset": 0,
                "high_watermark": 0,
            },
        ],
    }


async def test_only_the_first_ranges_are_shown_and_all_are_counted(app, broker, topic):
    count = RANGES_TOLD_MAX + 1
    append_records(broker, topic.partition(0), 2 * count)
    group = broker.subscriptions.open(topic, b"g")
    group.commit(0, 0)
    group.ack(0, [(2 * n + 1, 2 * n + 2) for n in range(count)], lazy=False)
    position = (await call(app, "GET", f"{PATH}/g")).json["partitions"][0]
    assert len(position["acknowledged"]) == RANGES_TOLD_MAX
    assert position["acknowledged_ranges"] == count


async def test_a_missing_group_is_not_found(app, topic):
    answer = await call(app, "GET", f"{PATH}/nobody")
    assert (answer.status, answer.json["code"]) == (404, "group_not_found")


@pytest.mark.parametrize("name", [b"a/b", b"%2F", "größe".encode(), b"a b"])
async def test_a_group_of_any_text_name_has_a_path(app, broker, topic, name):
    broker.subscriptions.open(topic, name).commit(0, 1)
    answer = await call(app, "GET", f"{PATH}/{quote(name, safe='')}")
    assert (answer.status, answer.json["group"]) == (200, name.decode())


async def test_a_binary_group_name_is_in_base64(app, broker, topic):
    name = b"\xff/\x00"
    broker.subscriptions.open(topic, name).commit(0, 1)
    (listed,) = (await call(app, "GET", "/api/v1/groups")).json["groups"]
    assert listed["encoding"] == "base64"
    assert base64.b64decode(listed["group"]) == name
    encoded = quote(listed["group"], safe="")
    shown = await call(app, "GET", f"{PATH}/{encoded}?encoding=base64")
    assert shown.json["partitions"][0]["position"] == 1
    answer = await call(app, "GET", f"/api/v1/groups?group={encoded}&encoding=base64")
    assert answer.json["groups"] == [listed]


async def test_groups_are_listed_by_topic_and_name_in_pages_of_whole_topics(app, broker, topic):
    other = await broker.topics.create(TopicName("public", "default", "zebra"), 1)
    for owner, name in ((other, b"c"), (topic, b"b"), (topic, b"a")):
        broker.subscriptions.open(owner, name)
    first = (await call(app, "GET", "/api/v1/groups?limit=1")).json
    assert [group["group"] for group in first["groups"]] == ["a", "b"]
    second = (await call(app, "GET", f"/api/v1/groups?limit=1&after={first['next']}")).json
    assert [group["group"] for group in second["groups"]] == ["c"]
    assert second["next"] is None


async def test_groups_can_be_filtered_by_topic_or_name(app, broker, topic):
    other = await broker.topics.create(TopicName("public", "default", "zebra"), 1)
    for owner, name in ((other, b"a"), (topic, b"a"), (topic, b"b")):
        broker.subscriptions.open(owner, name)
    of_topic = (await call(app, "GET", "/api/v1/groups?topic=zebra")).json["groups"]
    assert [(group["topic"], group["group"]) for group in of_topic] == [
        ("public/default/zebra", "a")
    ]
    of_name = (await call(app, "GET", "/api/v1/groups?group=a")).json["groups"]
    assert [group["topic"].rpartition("/")[2] for group in of_name] == ["orders", "zebra"]


async def test_groups_of_a_missing_topic_are_refused(app):
    answer = await call(app, "GET", "/api/v1/groups?topic=nothing")
    assert (answer.status, answer.json["code"]) == (404, "topic_not_found")


async def test_a_group_is_deleted_and_then_unknown(app, broker, topic):
    broker.subscriptions.open(topic, b"\xffg").commit(0, 2)
    name = quote(base64.b64encode(b"\xffg").decode(), safe="")
    path = f"{PATH}/{name}?encoding=base64"
    assert (await call(app, "DELETE", path)).status == 204
    assert broker.subscriptions.find(topic, b"\xffg") is None
    answer = await call(app, "DELETE", path)
    assert (answer.status, answer.json["code"]) == (404, "group_not_found")


async def test_a_group_with_members_is_deleted_by_force_only(app, broker, topic):
    broker.subscriptions.open(topic, b"g")
    member = SubscriptionMember("kafka", "worker-1", "127.0.0.1:5", (0,))
    broker.members.add_source(lambda on, name: [member])
    answer = await call(app, "DELETE", f"{PATH}/g")
    assert (answer.status, answer.json["code"]) == (409, "group_busy")
    assert "kafka 'worker-1'" in answer.json["message"]
    assert (await call(app, "DELETE", f"{PATH}/g?force=true")).status == 204
    assert broker.subscriptions.find(topic, b"g") is None


async def test_groups_can_be_listed_by_a_part_of_the_name_and_with_ages(app):
    await call(app, "PUT", "/api/v1/topics/public/default/orders", {"partitions": 2})
    await call(app, "POST", "/topics/public/default/orders/partitions/0", {"messages": [{}]})
    for name in ("billing", "mailing", "lake"):
        path = f"/api/v1/groups/public/default/orders/{name}/positions"
        await call(app, "PUT", path, {"positions": {"0": 0 if name == "billing" else 1}})
    answer = await call(app, "GET", "/api/v1/groups?contains=iling&ages=true")
    assert [group["group"] for group in answer.json["groups"]] == ["mailing"]
    assert answer.json["groups"][0]["oldest_s"] == 0
    answer = await call(app, "GET", "/api/v1/groups/public/default/orders/billing?ages=true")
    first, second = answer.json["partitions"]
    assert first["oldest_s"] > 0 and second["oldest_s"] == 0
    answer = await call(app, "GET", "/api/v1/groups/public/default/orders/billing")
    assert "oldest_s" not in answer.json["partitions"][0]


async def test_members_have_the_library_of_their_connection(app, broker, topic):
    broker.subscriptions.open(topic, b"g")
    for address in ("10.0.0.1:3", "/10.0.0.1", "10.0.0.2:3"):
        member = SubscriptionMember("kafka", address, address, (0,))
        broker.members.add_source(lambda on, name, member=member: [member])

    async def libraries(*connections):
        broker.connections |= set(connections)
        members = (await call(app, "GET", f"{PATH}/g")).json["members"]
        broker.connections.clear()
        return [member["library"] for member in members]

    same = [connection(3, library="a"), connection(4, library="a")]
    assert await libraries(*same) == ["a", "a", ""]
    assert await libraries(*same, connection(5, library="b")) == ["a", "", ""]


def change_at_next_read(partition, change):
    """Let the next read of a partition wait for the disk, and change the topic meanwhile."""
    log, read, changes = partition.log, partition.log.read, [change]

    def read_after_change(*arguments, wait=True, **options):
        if not wait:
            raise WouldBlock("not in memory")
        while changes:
            trio.from_thread.run_sync(changes.pop())
        return read(*arguments, **options)

    log.read = read_after_change


@pytest.mark.parametrize("change", ["shrink", "move_away"])
@pytest.mark.parametrize("sort", ["topic", "lag"])
async def test_a_topic_that_changes_during_a_walk_is_left_out(app, broker, topic, sort, change):
    """A client that names the topic gets the error instead."""
    other = await broker.topics.create(TopicName("public", "default", "zebras"), 1)
    for each in (topic, other):
        broker.subscriptions.open(each, b"billing").commit(0, 0)
    changes = {
        "shrink": lambda: broker.topics.shrink(topic, 1),
        "move_away": lambda: broker.topics.move_away(topic),
    }
    change_at_next_read(topic.partition(0), changes[change])
    answer = await call(app, "GET", f"/api/v1/groups?ages=true&sort={sort}")
    assert answer.status == 200
    assert [group["topic"] for group in answer.json["groups"]] == ["public/default/zebras"]


async def test_a_named_topic_that_changes_meanwhile_is_an_error(app, broker, topic):
    broker.subscriptions.open(topic, b"billing").commit(0, 0)
    change_at_next_read(topic.partition(0), lambda: broker.topics.move_away(topic))
    answer = await call(app, "GET", "/api/v1/groups?ages=true&topic=public/default/orders")
    assert (answer.status, answer.json["code"]) == (503, "no_owner")
