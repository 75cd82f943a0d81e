"""Properties and ledgers of topics, and work on subscriptions, with the answers of Apache."""

import pytest

from braidlog.broker.errors import Conflict, NotOwner, Unanswered
from braidlog.protocols.http.pulsar_admin import subscriptions
from tests.broker.records import append
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS, PARTS, TOPIC


async def test_properties_of_a_topic(ask):
    await ask("PUT", f"{PARTS}/partitions", {"partitions": 2, "properties": {"x": "y"}}, 204)
    await ask("PUT", f"{PARTS}/properties", {"a": "b"}, 204)
    assert (await ask("GET", f"{PARTS}/properties")).json == {"a": "b", "x": "y"}
    assert (await ask("GET", f"{PARTS}-partition-0/properties")).json == {}
    for _ in range(2):
        await ask("DELETE", f"{PARTS}/properties?key=a", status=204)
    assert (await ask("GET", f"{PARTS}/properties")).json == {"x": "y"}


async def test_missed_partitions_and_trimming(ask):
    await ask("PUT", TOPIC, status=204)
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    await ask("POST", f"{PARTS}/createMissedPartitions", status=204)
    answer = await ask("POST", f"{TOPIC}/createMissedPartitions", status=404)
    reason = "Topic persistent://public/default/orders does not exist"
    assert answer.json == {"reason": reason}
    for path in (TOPIC, PARTS):
        await ask("POST", f"{path}/trim", status=200)


async def test_the_cluster_of_a_topic(ask):
    await ask("PUT", TOPIC, status=204)
    assert (await ask("GET", f"{TOPIC}/replication", status=200)).body == b""
    assert (await ask("GET", f"{TOPIC}/replication?applied=true")).json == ["standalone"]
    for removal in (f"{TOPIC}/replication", f"{TOPIC}/policies"):
        await ask("POST", f"{TOPIC}/replication", ["standalone"], 204)
        await ask("POST", f"{TOPIC}/replication", ["standalone", "b"], 403)
        assert (await ask("GET", f"{TOPIC}/replication", status=200)).json == ["standalone"]
        await ask("DELETE", removal, status=204)
        assert (await ask("GET", f"{TOPIC}/replication", status=200)).body == b""


async def test_internal_info_and_stats_of_partitions(ask, broker):
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    names = [f"persistent://public/default/parts-partition-{index}" for index in range(2)]
    stats = (await ask("GET", f"{PARTS}/partitioned-internalStats")).json
    assert stats["metadata"] == {"partitions": 2, "deleted": False}
    assert list(stats["partitions"]) == names
    info = (await ask("GET", f"{PARTS}/internal-info")).json
    assert list(info["partitions"]) == names
    await ask("PUT", TOPIC, status=204)
    await ask("PUT", f"{TOPIC}/subscription/s", "earliest", 204)
    info = (await ask("GET", f"{TOPIC}/internal-info")).json
    ledger = info["ledgers"][0]["ledgerId"]
    assert info["cursors"]["s"]["markDelete"] == {"ledgerId": ledger, "entryId": -1}
    await ask("GET", f"{TOPIC}/partitioned-internalStats", status=404)


async def test_subscriptions_are_analyzed_and_have_properties(ask, broker):
    topic = await broker.topics.create(ORDERS, 1, partitioned=False)
    await append(broker, topic.partitions[0], "plain", [b"a", b"b", b"c"])
    broker.subscriptions.open(topic, b"s", {"k": "v"}).start(0, 1)
    assert (await ask("GET", f"{TOPIC}/subscription/s/properties")).json == {"k": "v"}
    backlog = (await ask("POST", f"{TOPIC}/subscription/s/analyzeBacklog", status=200)).json
    assert (backlog["messages"], backlog["aborted"]) == (2, False)
    ledger = topic.partitions[0].partition_id
    assert [backlog["firstMessageId"], backlog["lastMessageId"]] == [f"{ledger}:1", f"{ledger}:2"]
    later = {"ledgerId": ledger, "entryId": 2}
    backlog = (await ask("POST", f"{TOPIC}/subscription/s/analyzeBacklog", later, 200)).json
    assert (backlog["entries"], backlog["firstMessageId"]) == (1, f"{ledger}:2")
    await ask("POST", f"{TOPIC}/subscription/nosub/analyzeBacklog", status=404)
    size = await ask("PUT", f"{TOPIC}/backlogSize", {"ledgerId": ledger, "entryId": 0}, 200)
    assert 0 < size.json <= topic.partitions[0].size_bytes


async def test_properties_of_a_subscription_are_replaced(ask):
    properties = f"{PARTS}/subscription/s/properties"
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    await ask("PUT", properties, {"a": "b"}, 404)
    await ask(
        "PUT",
        f"{PARTS}/subscription/s",
        {"ledgerId": -1, "entryId": -1, "properties": {"x": "y"}},
        204,
    )
    await ask("PUT", properties, {"a": "b"}, 204)
    assert (await ask("GET", properties)).json == {"a": "b"}
    for refused, status in (([], 400), ({"a": 1}, 400), ({"a": "b" * 5000}, 412)):
        await ask("PUT", properties, refused, status)
    await ask("PUT", properties, status=204)
    assert (await ask("GET", properties)).json == {}


async def test_messages_expire_by_position_and_for_all_subscriptions(ask, broker, monkeypatch):
    topic = await broker.topics.create(ORDERS, 1, partitioned=False)
    await append(broker, topic.partitions[0], "plain", [b"a", b"b", b"c"])
    group = broker.subscriptions.open(topic, b"s")
    group.start(0, 0)
    at = {"ledgerId": topic.partitions[0].partition_id, "entryId": 1}
    path = f"{TOPIC}/subscription/s/expireMessages"
    await ask("POST", path, {**at, "isExcluded": True}, 204)
    assert group.position(0) == 1
    await ask("POST", path, {**at, "isExcluded": False}, 204)
    assert group.position(0) == 2
    now_us = broker.now_us
    broker.now_us = lambda: now_us() + 7200 * 1_000_000
    await ask("POST", f"{TOPIC}/all_subscription/expireMessages/3600", status=204)
    assert group.position(0) == 3
    await ask("POST", f"{TOPIC}/all_subscription/expireMessages/3600", status=409)
    assert subscriptions.NO_BACKLOG["entries"] == 0


async def test_brokers_and_the_cluster(ask):
    own = {"Host": "h:8080"}
    assert (await ask("GET", f"{ADMIN}/brokers", headers=own)).json == ["h:8080"]
    leader = (await ask("GET", f"{ADMIN}/brokers/leaderBroker", headers=own)).json
    assert leader == {"serviceUrl": "http://h:8080", "brokerId": "h:8080"}
    assert (await ask("GET", f"{ADMIN}/brokers/configuration")).json == []
    assert (await ask("GET", f"{ADMIN}/brokers/configuration/values")).json == {}
    await ask("POST", f"{ADMIN}/brokers/configuration/maxTenants/5", status=501)
    await ask("GET", f"{ADMIN}/brokers/backlog-quota-check", status=204)
    refused = await ask("PUT", f"{ADMIN}/clusters/standalone", {}, 409)
    assert refused.json == {"reason": "Cluster already exists"}
    assert (await ask("GET", f"{ADMIN}/clusters/standalone/failureDomains")).json == {}
    assert (await ask("GET", f"{ADMIN}/clusters/standalone/peers", status=200)).body == b""


@pytest.mark.parametrize(
    ("error", "status"), [(None, 204), (Conflict("changed"), 409), (Unanswered("no answer"), 502)]
)
async def test_a_deletion_without_force_lets_no_record_in_meanwhile(ask, broker, error, status):
    """The record would be acknowledged, and then deleted with the topic."""
    topic = await broker.topics.create(ORDERS, 1, partitioned=False)
    delete, refused = broker.topics.delete, []

    async def store():
        await append(broker, topic.partitions[0], "plain", [b"a"])

    async def distant_delete(name, *, holds_name=False):
        with pytest.raises(NotOwner, match="about to be deleted") as caught:
            await store()
        refused.append(caught.value)
        if error is not None:
            raise error
        return await delete(name, holds_name=holds_name)

    broker.topics.delete = distant_delete
    await ask("DELETE", f"{ADMIN}/persistent/public/default/orders", status=status)
    assert len(refused) == 1
    assert (broker.topics.find(ORDERS) is not None) is (error is not None)
    if error is not None:
        await store()


async def test_a_deletion_without_force_lets_no_record_in_behind_its_check(ask, broker):
    """A producer that comes, stores a record and leaves behind the check would lose the record."""
    topic = await broker.topics.create(ORDERS, 1, partitioned=False)
    refused = []

    def producers(_):
        with pytest.raises(NotOwner, match="about to be deleted") as caught:
            topic.partitions[0].check_open()
        refused.append(caught.value)
        return []

    broker.shown_producers.add_source(producers)
    await ask("DELETE", f"{ADMIN}/persistent/public/default/orders", status=204)
    assert refused
