"""Statistics of all topics, under the names that Apache Pulsar 4.2.4 has."""

from braidlog.protocols.http.limits import HttpLimits
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


async def test_there_is_no_load_report(ask):
    await ask("GET", f"{ADMIN}/broker-stats/load-report", status=204)
