"""Calls about a whole topic refuse the name of a partition, and the other way round; statuses and
texts are those of Apache Pulsar 4.2.4, or 501.
"""

import pytest

from braidlog.broker.access.rules import Grant
from braidlog.storage.metadata.names import TopicName
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, PARTS, TOPIC
from tests.protocols.http.pulsar_admin.test_non_persistent import NON_PERSISTENT
from tests.protocols.http.pulsar_admin.test_non_persistent import PARTS as VOLATILE_PARTS

PARTITION = f"{PARTS}-partition-0"
VOLATILE_PARTITION = f"{VOLATILE_PARTS}-partition-0"
NAME = TopicName("public", "default", "parts")
NO_POLICIES = "Not allowed to set/get topic policy for a partition"
NO_PARTITIONS = "Partitioned Topic Name should not contain '-partition-'"
RATE = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": 1}


@pytest.fixture
async def parts(ask):
    """Create a partitioned topic of each domain, and a topic without partitions."""
    for place in (PARTS, VOLATILE_PARTS):
        await ask("PUT", f"{place}/partitions", 2, 204)
    await ask("PUT", TOPIC, status=204)


async def test_a_partition_has_no_policies(parts, ask, broker):
    for method, end, body in (
        ("POST", "maxConsumers", 5),
        ("PUT", "schemaCompatibilityStrategy", "FULL"),
        ("POST", "messageTTL?messageTTL=5", None),
        ("POST", "s/dispatchRate", RATE),
        ("POST", "replication", ["standalone"]),
        ("POST", "backlogQuota", {"limitSize": 5, "policy": "producer_exception"}),
        ("GET", "maxConsumers", None),
        ("GET", "backlogQuotaMap", None),
        ("GET", "entryFilters", None),
        ("DELETE", "retention", None),
        ("DELETE", "policies", None),
    ):
        answer = await ask(method, f"{PARTITION}/{end}", body, 412)
        assert answer.json["reason"] == NO_POLICIES
    for method, body in (("POST", 5), ("GET", None), ("DELETE", None)):
        answer = await ask(method, f"{VOLATILE_PARTITION}/maxConsumers", body, 412)
        assert answer.json["reason"] == NO_POLICIES
    assert broker.topics.get(NAME).meta.settings == {}


async def test_a_partitioned_topic_is_not_changed_by_the_name_of_a_partition(parts, ask, broker):
    for partition in (PARTITION, VOLATILE_PARTITION):
        for method, end, body in (
            ("DELETE", "partitions", None),
            ("DELETE", "partitions?force=true", None),
            ("POST", "partitions", 4),
            ("PUT", "partitions", 4),
            ("GET", "partitioned-stats", None),
        ):
            answer = await ask(method, f"{partition}/{end}", body, 412)
            assert answer.json["reason"] == NO_PARTITIONS
    answer = await ask("POST", f"{PARTITION}/createMissedPartitions", status=412)
    assert answer.json["reason"] == NO_PARTITIONS
    answer = await ask("POST", f"{PARTITION}/terminate/partitions", status=405)
    assert answer.json["reason"].startswith("Termination of a non-partitioned topic is not allowed")
    for method, end, body in (
        ("DELETE", "", None),
        ("DELETE", "?force=true", None),
        ("POST", "/terminate", None),
        ("PUT", "/properties", {"a": "b"}),
        ("DELETE", "/properties?key=a", None),
        ("POST", "/permissions/anna", ["produce"]),
        ("DELETE", "/permissions/anna", None),
    ):
        answer = await ask(method, f"{PARTITION}{end}", body, 501)
        assert "expected the topic's name" in answer.json["reason"]
    await ask("DELETE", VOLATILE_PARTITION, status=501)
    for place in (PARTS, VOLATILE_PARTS):
        assert (await ask("GET", f"{place}/partitions")).json["partitions"] == 2
    topic = broker.topics.get(NAME)
    assert (topic.is_terminated, dict(topic.meta.settings)) == (False, {})
    assert broker.permissions.list("anna") == []


async def test_a_topic_without_partitions_is_not_changed_by_the_name_of_a_partition(
    parts, ask, broker
):
    broker.permissions.replace([Grant("anna", "produce", "public/default/orders")], [])
    await ask("PUT", NON_PERSISTENT, status=204)
    for place in (TOPIC, NON_PERSISTENT):
        await ask("DELETE", f"{place}-partition-0", status=404)
        await ask("DELETE", f"{place}-partition-0?force=true", status=404)
    for method, end in (("POST", "terminate"), ("DELETE", "permissions/anna")):
        await ask(method, f"{TOPIC}-partition-0/{end}", status=404)
    assert (await ask("GET", f"{TOPIC}/stats", status=200)).json
    assert (await ask("GET", f"{NON_PERSISTENT}/stats", status=200)).json
    assert len(broker.permissions.list("anna")) == 1


async def test_a_partition_is_created_only_with_its_topic(parts, ask):
    await ask("PUT", NON_PERSISTENT, status=204)
    for partitioned, plain in ((PARTS, TOPIC), (VOLATILE_PARTS, NON_PERSISTENT)):
        reason = (await ask("PUT", f"{partitioned}-partition-1", status=409)).json["reason"]
        assert reason == "This topic already exists"
        reason = (await ask("PUT", f"{partitioned}-partition-2", status=412)).json["reason"]
        end = "a number smaller than number of partition of partitioned topic parts"
        text = 'Can\'t create topic parts-partition-2 with "-partition-" followed by'
        assert reason == f"{text} {end}"
        name = plain.rpartition("/")[2]
        reason = (await ask("PUT", f"{plain}-partition-0", status=412)).json["reason"]
        end = f"numeric value if there isn't a partitioned topic {name} created."
        text = f'Can\'t create topic {name}-partition-0 with "-partition-" followed by'
        assert reason == f"{text} {end}"


async def test_calls_about_a_partition_refuse_the_name_of_a_partitioned_topic(parts, ask):
    await ask("PUT", f"{PARTS}/subscription/s", status=204)
    for end in ("stats", "internalStats", "lastMessageId", "compaction"):
        answer = await ask("GET", f"{PARTS}/{end}", status=404)
        assert answer.json["reason"] == "Topic persistent://public/default/parts not found"
        await ask("GET", f"{PARTITION}/{end}", status=200)
    first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    for method, end, body, text in (
        ("GET", "messageid/1", None, "Get message ID by timestamp on a partitioned topic is not"),
        ("GET", "ledger/1/entry/1", None, "GetMessageById is not allowed on partitioned-topic"),
        ("GET", "examinemessage", None, "Examine messages on a partitioned topic is not allowed"),
        ("GET", "subscription/s/position/1", None, "Peek messages on a partitioned topic is not"),
        ("POST", "subscription/s/skip/1", None, "Skip messages on a partitioned topic is not"),
        ("POST", "subscription/s/resetcursor", first, "Reset-cursor at position is not allowed"),
        ("POST", "subscription/s/expireMessages", first, "Expire message at position is not"),
        ("POST", "subscription/s/analyzeBacklog", None, "Analyze backlog on a partitioned topic"),
        ("PUT", "backlogSize", first, "calculate backlog size is not allowed for"),
        ("POST", "terminate", None, "Termination of a partitioned topic is not allowed"),
    ):
        answer = await ask(method, f"{PARTS}/{end}", body, 405)
        assert answer.json["reason"].startswith(text)


async def test_a_topic_is_deleted_by_the_call_for_its_kind(parts, ask):
    await ask("PUT", NON_PERSISTENT, status=204)
    for place, domain in ((PARTS, "persistent"), (VOLATILE_PARTS, "non-persistent")):
        reason = (await ask("DELETE", place, status=409)).json["reason"]
        text = "is a partitioned topic, instead of calling delete topic, please call"
        full = f"{domain}://public/default/parts"
        assert reason == f"{full} {text} delete-partitioned-topic."
    for place, domain in ((TOPIC, "persistent"), (NON_PERSISTENT, "non-persistent")):
        reason = (await ask("DELETE", f"{place}/partitions", status=409)).json["reason"]
        text = "is a non-partitioned topic. Instead of calling delete-partitioned-topic please call"
        full = f"{domain}://{place.removeprefix(f'{ADMIN}/{domain}/')}"
        assert reason == f"{full} {text} delete."
