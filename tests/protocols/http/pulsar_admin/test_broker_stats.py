"""Statistics of all topics, under the names that Apache Pulsar 4.2.4 has."""

from braidlog.protocols.http.limits import HttpLimits
from braidlog.protocols.http.pulsar_admin.broker_load import WINDOW_S, LoadCounts, LoadMeter
from braidlog.storage.metadata.names import TopicName
from tests.broker.records import append
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS

# As answered by Apache for a topic and a subscription without consumers, without its rates.
OF_TOPIC = {
    *("publishers", "replication", "subscriptions", "producerCount", "averageMsgSize"),
    *("msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount"),
    *("storageSize", "backlogSize", "pendingAddEntriesCount", "filteredEntriesCount"),
    *("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"),
}


async def test_topics_are_shown_by_namespace_and_bundle(ask, broker):
    topic = await broker.topics.create(ORDERS, 1, partitioned=False)
    await append(broker, topic.partitions[0], "plain", [b"a", b"b"])
    broker.subscriptions.open(topic, b"s").start(0, 1)
    await broker.topics.create(TopicName("public", "default", "parts"), 2, partitioned=True)
    answer = (await ask("GET", f"{ADMIN}/broker-stats/topics", status=200)).json
    shown = answer["public/default"]["0x00000000_0xffffffff"]["persistent"]
    names = ("orders", "parts-partition-0", "parts-partition-1")
    assert {*shown} == {f"persistent://public/default/{name}" for name in names}
    stats = shown["persistent://public/default/orders"]
    assert {*stats} == OF_TOPIC
    assert stats["subscriptions"]["s"]["msgBacklog"] == 1


async def test_too_many_partitions_are_refused(ask, broker):
    broker.shared_states["http"] = HttpLimits(partitions_shown=1)
    await broker.topics.create(ORDERS, 2)
    answer = await ask("GET", f"{ADMIN}/broker-stats/topics", status=412)
    assert "more than 1 partitions" in answer.json["reason"]


async def test_too_many_subscriptions_are_refused(ask, broker):
    broker.shared_states["http"] = HttpLimits(subscriptions_shown=3)
    topic = await broker.topics.create(ORDERS, 2)
    for name in (b"a", b"b"):
        broker.subscriptions.open(topic, name)
    answer = await ask("GET", f"{ADMIN}/broker-stats/topics", status=412)
    assert "more than 3 subscriptions" in answer.json["reason"]


# Of the metrics of a namespace in Apache, without the times of appends.
OF_NAMESPACE = {
    *("brk_in_rate", "brk_in_tp_rate", "brk_out_rate", "brk_out_tp_rate", "brk_storage_size"),
    *("brk_no_of_subscriptions", "brk_no_of_producers", "brk_no_of_consumers", "brk_msg_backlog"),
    *("brk_no_of_replicators", "brk_replication_backlog", "brk_max_replication_delay_second"),
}


async def loaded_topic(broker):
    """Return a topic with two messages and a subscription that has acknowledged the first."""
    topic = await broker.topics.create(ORDERS, 1, partitioned=False)
    await append(broker, topic.partitions[0], "plain", [b"a", b"b"])
    broker.subscriptions.open(topic, b"s").start(0, 1)
    return topic


async def test_metrics_have_the_load_of_each_namespace(ask, broker):
    topic = await loaded_topic(broker)
    parts = TopicName("public", "default", "parts")
    other = await broker.topics.create(parts, 2, partitioned=True)
    rows = (await ask("GET", f"{ADMIN}/broker-stats/metrics", status=200)).json
    named = {row["dimensions"].get("metric", row["dimensions"].get("namespace")) for row in rows}
    assert named == {"broker_connection", "broker_health", "loadBalancing", "public/default"}
    metrics = next(row["metrics"] for row in rows if "namespace" in row["dimensions"])
    assert {*metrics} == OF_NAMESPACE
    assert metrics["brk_msg_backlog"] == metrics["brk_no_of_subscriptions"] == 1
    sizes = [partition.size_bytes for partition in (*topic.partitions, *other.partitions)]
    assert metrics["brk_storage_size"] == sum(sizes) > 0
    health = next(
        row["metrics"] for row in rows if row["dimensions"].get("metric") == "broker_health"
    )
    assert health == {"brk_health": 1}


async def test_there_is_no_load_report(ask):
    assert not (await ask("GET", f"{ADMIN}/broker-stats/load-report", status=204)).body


async def test_rates_are_averages_since_the_second_to_last_snapshot(broker):
    topic = await loaded_topic(broker)
    now_s, traffic = 100.0, topic.partitions[0].traffic
    meter = LoadMeter(broker, lambda: now_s)
    assert (await meter.look())["public/default"].rates == LoadCounts()
    for _ in range(5):
        now_s += WINDOW_S
        traffic.records_in += 50
        traffic.bytes_in += 5000
        traffic.records_out += 20
        traffic.bytes_out += 2000
        rates = (await meter.look())["public/default"].rates
    assert rates == LoadCounts(5.0, 500.0, 2.0, 200.0)
    traffic.records_in = 0  # As after a move of the topic to another broker and back.
    now_s += WINDOW_S
    assert (await meter.look())["public/default"].rates.messages_in == 0


async def test_a_namespace_that_comes_later_has_no_rate_from_before(broker):
    now_s = 100.0
    meter = LoadMeter(broker, lambda: now_s)
    await meter.look()
    topic = await loaded_topic(broker)
    topic.partitions[0].traffic.records_in += 1000
    now_s += WINDOW_S
    first = (await meter.look())["public/default"].rates
    now_s += WINDOW_S
    await meter.look()
    now_s += WINDOW_S
    assert (await meter.look())["public/default"].rates == LoadCounts() != first


async def test_there_are_no_bookies(ask):
    assert (await ask("GET", f"{ADMIN}/bookies/racks-info", status=200)).json == {}
    assert (await ask("GET", f"{ADMIN}/bookies/all", status=200)).json == {"bookies": []}
