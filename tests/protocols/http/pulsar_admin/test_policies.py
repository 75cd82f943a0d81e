"""Policies of namespaces and topics by the admin API: they are in force, also after restarts."""

import pytest

from braidlog.broker.errors import TopicNotFound, TopicTerminated
from braidlog.broker.positions.backlog import limits_of
from braidlog.broker.topics.client_limits import Rate
from braidlog.broker.topics.schema_rules import AutoUpdateStrategy, SchemaStrategy
from braidlog.broker.topics.schemas import strategy_of
from braidlog.broker.topics.settings_table import QuotaPolicy
from braidlog.protocols.http.pulsar_admin.subscriptions import BACKLOG_MIN_OF_READERS
from braidlog.storage.formats.api import BodyFormat, BodyInfo
from braidlog.storage.log.settings import LogSettings
from tests.broker.records import append
from tests.protocols.http.pulsar_admin.test_admin import ADMIN, ORDERS, PARTS, TOPIC, produce

NAMESPACE = f"{ADMIN}/namespaces/public/default"


async def test_deduplication_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(ORDERS)
    assert (await ask("GET", f"{NAMESPACE}/deduplication", status=200)).body == b""
    await ask("POST", f"{NAMESPACE}/deduplication", True, 204)
    assert (await ask("GET", f"{NAMESPACE}/deduplication")).json is True
    assert broker.topics.is_deduplicated(topic)
    assert (await ask("GET", f"{TOPIC}/stats")).json["deduplicationStatus"] == "Enabled"
    assert (await ask("GET", f"{TOPIC}/deduplicationEnabled", status=200)).body == b""
    await ask("POST", f"{TOPIC}/deduplicationEnabled", False, 204)
    assert not broker.topics.is_deduplicated(topic)
    assert (await ask("GET", f"{TOPIC}/stats")).json["deduplicationStatus"] == "Disabled"
    await ask("DELETE", f"{TOPIC}/deduplicationEnabled", status=204)
    assert broker.topics.is_deduplicated(topic)
    await ask("DELETE", f"{NAMESPACE}/deduplication", status=204)
    assert not broker.topics.is_deduplicated(topic)
    await ask("POST", f"{NAMESPACE}/deduplication", "yes", 400)


async def test_strategies_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(ORDERS)
    path = "schemaCompatibilityStrategy"
    assert (await ask("GET", f"{NAMESPACE}/{path}")).json == "UNDEFINED"
    for strategy in SchemaStrategy:
        await ask("PUT", f"{NAMESPACE}/{path}", strategy.name, 204)
        assert (await ask("GET", f"{NAMESPACE}/{path}")).json == strategy.name
        assert strategy_of(topic) is strategy
    await ask("PUT", f"{TOPIC}/{path}", "BACKWARD", 204)
    assert strategy_of(topic) is SchemaStrategy.BACKWARD
    await ask("DELETE", f"{TOPIC}/{path}", status=204)
    await ask("PUT", f"{NAMESPACE}/{path}", "UNDEFINED", 204)
    assert strategy_of(topic) is SchemaStrategy.FULL
    await ask("PUT", f"{NAMESPACE}/{path}", "SOMETIMES", 400)


async def test_the_older_names_of_strategies_count_where_no_newer_is_set(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic, path = broker.topics.get(ORDERS), f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"
    assert (await ask("GET", path, status=204)).body == b""
    for older in AutoUpdateStrategy:
        await ask("PUT", path, older.value, 204)
        assert (await ask("GET", path)).json == older.value
        assert strategy_of(topic) is older.strategy
    shown = (await ask("GET", NAMESPACE)).json["schema_auto_update_compatibility_strategy"]
    assert shown == "FullTransitive"
    await ask("PUT", path, "AutoUpdateDisabled", 204)
    assert strategy_of(topic) is SchemaStrategy.ALWAYS_INCOMPATIBLE
    applied = f"{TOPIC}/schemaCompatibilityStrategy?applied=true"
    assert (await ask("GET", applied)).json == "ALWAYS_INCOMPATIBLE"
    await ask("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "BACKWARD", 204)
    assert strategy_of(topic) is SchemaStrategy.BACKWARD
    await ask("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "UNDEFINED", 204)
    for wrong in ("FULL", "full", 5, [], {}, True):
        await ask("PUT", path, wrong, 400)
    await ask("PUT", path, None, 204)  # As in Apache, nothing removes the strategy.
    await ask("GET", path, status=204)
    assert strategy_of(topic) is SchemaStrategy.FULL


async def test_compaction_thresholds_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    log = broker.topics.get(ORDERS).partitions[0].log
    path = "compactionThreshold"
    assert (await ask("GET", f"{NAMESPACE}/{path}", status=200)).body == b""
    await ask("PUT", f"{NAMESPACE}/{path}", 1 << 20, 204)
    assert (await ask("GET", f"{NAMESPACE}/{path}")).json == 1 << 20
    assert log.settings.compaction_threshold_bytes == 1 << 20
    await ask("POST", f"{TOPIC}/{path}", 5, 204)
    assert (await ask("GET", f"{TOPIC}/{path}")).json == 5
    assert log.settings.compaction_threshold_bytes == 5
    await ask("DELETE", f"{TOPIC}/{path}", status=204)
    assert log.settings.compaction_threshold_bytes == 1 << 20
    await ask("DELETE", f"{NAMESPACE}/{path}", status=204)
    assert log.settings.compaction_threshold_bytes is None
    await ask("PUT", f"{NAMESPACE}/{path}", -1, 412)
    for wrong in (True, "much", None):
        await ask("PUT", f"{NAMESPACE}/{path}", wrong, 400)


async def test_a_topic_is_compacted_on_request(ask, broker):
    await ask("PUT", TOPIC, status=204)
    assert (await ask("GET", f"{TOPIC}/compaction")).json["status"] == "NOT_RUN"
    await ask("PUT", f"{TOPIC}/compaction", status=204)
    status = (await ask("GET", f"{TOPIC}/compaction")).json["status"]
    assert status in ("RUNNING", "SUCCESS")  # The compaction may be quick.


async def test_retention_by_namespace_and_topic(ask, broker):
    policy = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
    await ask("PUT", TOPIC, status=204)
    settings = broker.topics.get(ORDERS).partitions[0].log
    assert (await ask("GET", f"{NAMESPACE}/retention", status=200)).body == b""
    await ask("POST", f"{NAMESPACE}/retention", policy, 204)
    assert (await ask("GET", f"{NAMESPACE}/retention")).json == policy
    assert (settings.settings.retention_ms, settings.settings.retention_bytes) == (
        600_000,
        5 << 20,
    )
    assert settings.settings.keep_unacknowledged
    await ask("PUT", f"{PARTS}/partitions", 2, 204)  # A later topic has this setting too.
    parts = broker.topics.list("public", "default")[1]
    assert parts.partitions[1].log.settings.retention_ms == 600_000
    infinite = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    await ask("POST", f"{TOPIC}/retention", infinite, 204)
    assert (await ask("GET", f"{TOPIC}/retention")).json == infinite
    assert settings.settings.retention_ms is None
    await ask("DELETE", f"{TOPIC}/retention", status=204)
    none = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    await ask("POST", f"{NAMESPACE}/retention", none, 204)
    assert (await ask("GET", f"{NAMESPACE}/retention")).json == none
    assert settings.settings.delete_acknowledged
    await ask("DELETE", f"{NAMESPACE}/retention", status=204)
    assert settings.settings == LogSettings()
    for bad in ({}, {**policy, "retentionSizeInMB": 0}, {**policy, "retentionSizeInMB": "much"}):
        await ask("POST", f"{NAMESPACE}/retention", bad, 400)
    await ask("POST", f"{ADMIN}/namespaces/no/where/retention", policy, 404)


async def test_terminating_answers_with_the_last_message(ask, broker):
    await ask("PUT", TOPIC, status=204)
    await produce(ask, "orders", "0", "1")
    last = (await ask("POST", f"{TOPIC}/terminate", status=200)).json
    assert (last["ledgerId"], last["entryId"], last["partitionIndex"]) == (1, 1, -1)
    with pytest.raises(TopicTerminated):
        broker.topics.partition(ORDERS, 0).append(
            [b"x"], BodyInfo(1), body_format=BodyFormat.KAFKA, append_us=1
        )
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    await ask("POST", f"{PARTS}/terminate", status=405)
    await ask("POST", f"{TOPIC}/terminate/partitions", status=405)
    ended = (await ask("POST", f"{PARTS}/terminate/partitions", status=200)).json
    assert {number: last["entryId"] for number, last in ended.items()} == {"0": -1, "1": -1}


async def test_ttl_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(ORDERS)
    assert (await ask("GET", f"{NAMESPACE}/messageTTL", status=200)).body == b""
    await ask("POST", f"{NAMESPACE}/messageTTL", 120, 204)
    assert (await ask("GET", f"{NAMESPACE}/messageTTL")).json == 120
    assert limits_of(topic).ttl_s == 120
    assert (await ask("GET", f"{TOPIC}/messageTTL")).body == b""
    assert (await ask("GET", f"{TOPIC}/messageTTL?applied=true")).json == 120
    await ask("POST", f"{TOPIC}/messageTTL?messageTTL=0", status=204)
    assert limits_of(topic).ttl_s is None
    await ask("DELETE", f"{TOPIC}/messageTTL", status=204)
    await ask("POST", f"{NAMESPACE}/messageTTL", -5, 412)
    await ask("POST", f"{TOPIC}/messageTTL", status=412)
    await ask("POST", f"{TOPIC}/messageTTL?messageTTL=-5", status=412)
    await ask("DELETE", f"{NAMESPACE}/messageTTL", status=204)
    assert limits_of(topic).ttl_s is None


async def test_backlog_quotas_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(ORDERS)
    quota = f"{NAMESPACE}/backlogQuota"
    assert (await ask("GET", f"{quota}Map")).json == {}
    by_size = {"limit": 1000, "policy": "producer_exception"}  # As older tools write the quota.
    await ask("POST", quota, by_size, 204)
    by_age = {"limitSize": -1, "limitTime": 10, "policy": "consumer_backlog_eviction"}
    await ask("POST", f"{quota}?backlogQuotaType=message_age", by_age, 204)
    assert (await ask("GET", f"{quota}Map")).json == {
        "destination_storage": {"limit": 1000, "limitSize": 1000, "limitTime": -1} | by_size,
        "message_age": {"limit": -1} | by_age,
    }
    limits = limits_of(topic)
    assert (limits.bytes_max, limits.bytes_policy) == (1000, QuotaPolicy.REFUSE)
    assert (limits.age_s_max, limits.age_policy) == (10, QuotaPolicy.EVICT)
    await ask("POST", f"{TOPIC}/backlogQuota", {**by_size, "limitSize": 5}, 204)
    assert limits_of(topic).bytes_max == 5
    applied = (await ask("GET", f"{TOPIC}/backlogQuotaMap?applied=true")).json
    assert (set(applied), applied["destination_storage"]["limit"]) == (
        {"destination_storage", "message_age"},
        5,
    )
    await ask("DELETE", f"{TOPIC}/backlogQuota", status=204)
    await ask("DELETE", f"{quota}?backlogQuotaType=message_age", status=204)
    assert list((await ask("GET", f"{quota}Map")).json) == ["destination_storage"]
    await ask("POST", quota, {"limit": 1, "policy": "bogus"}, 400)
    await ask("POST", quota, {"policy": "producer_exception"}, 400)


async def test_a_small_backlog_of_connected_consumers_does_not_expire(ask, broker):
    await ask("PUT", TOPIC, status=204)
    await produce(ask, "orders", 1, 2)
    path = "/topics/public/default/orders/subscription/s"
    await ask("POST", path, {"name": "w", "initial_position": "Earliest"}, 201)
    await ask("POST", f"{TOPIC}/subscription/s/expireMessages/3600", status=409)
    partition = broker.topics.get(ORDERS).partitions[0]
    await append(broker, partition, "plain", [b"v"] * BACKLOG_MIN_OF_READERS)
    await ask("POST", f"{TOPIC}/subscription/s/expireMessages/3600", status=204)


async def test_messages_of_a_subscription_expire_on_request(ask, broker):
    await ask("PUT", TOPIC, status=204)
    await ask("PUT", f"{TOPIC}/subscription/s", "earliest", 204)
    await produce(ask, "orders", 1, 2)
    # No message is so old.
    await ask("POST", f"{TOPIC}/subscription/s/expireMessages/3600", status=204)
    assert broker.subscriptions.find(broker.topics.get(ORDERS), b"s").position(0) == 0
    now_us = broker.now_us
    broker.now_us = lambda: now_us() + 7200 * 1_000_000
    await ask("POST", f"{TOPIC}/subscription/s/expireMessages/3600", status=204)
    assert broker.subscriptions.find(broker.topics.get(ORDERS), b"s").position(0) == 2
    # No message is waiting.
    await ask("POST", f"{TOPIC}/subscription/s/expireMessages/3600", status=409)
    await ask("PUT", f"{TOPIC}/unload", status=204)


NUMBERS = [
    ("maxProducersPerTopic", "maxProducers", "0"),
    ("maxConsumersPerTopic", "maxConsumers", "0"),
    ("maxConsumersPerSubscription", "maxConsumersPerSubscription", ""),
    ("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", ""),
    ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", "50000"),
    ("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription", "200000"),
]


@pytest.mark.parametrize(("of_namespace", "of_topic", "default"), NUMBERS)
async def test_a_limit_by_namespace_and_topic(ask, of_namespace, of_topic, default):
    await ask("PUT", TOPIC, status=204)
    upper, own = f"{NAMESPACE}/{of_namespace}", f"{TOPIC}/{of_topic}"
    assert (await ask("GET", upper, status=200)).body == b""
    assert (await ask("GET", f"{own}?applied=true")).body.decode() == default
    await ask("POST", upper, 5, 204)
    assert (await ask("GET", upper)).json == 5
    assert (await ask("GET", own)).body == b""
    assert (await ask("GET", f"{own}?applied=true")).json == 5
    await ask("POST", own, 0, 204)
    assert (await ask("GET", own)).json == 0
    assert (await ask("GET", f"{own}?applied=true")).json == 0
    for path in (own, upper):
        await ask("POST", path, -1, 412)
        await ask("POST", path, "x", 400)
        await ask("DELETE", path, status=204)
        assert (await ask("GET", path)).body == b""


async def test_rates_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(ORDERS)
    publish = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}
    await ask("POST", f"{NAMESPACE}/publishRate", publish, 204)
    assert (await ask("GET", f"{NAMESPACE}/publishRate")).json == publish
    assert topic.client_limits.publish == Rate(10, None)
    await ask("GET", f"{TOPIC}/publishRate", status=204)
    await ask("POST", f"{NAMESPACE}/publishRate", {}, 204)
    none = dict.fromkeys(publish, -1)
    assert (await ask("GET", f"{NAMESPACE}/publishRate")).json == none
    assert topic.client_limits.publish is None
    await ask("DELETE", f"{NAMESPACE}/publishRate", status=204)
    for path in ("dispatchRate", "subscriptionDispatchRate"):
        rate = {"dispatchThrottlingRateInMsg": 10}
        shown = {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 0,
        }
        usual = shown | {"dispatchThrottlingRateInMsg": 0, "ratePeriodInSecond": 1}
        assert (await ask("GET", f"{TOPIC}/{path}?applied=true")).json == usual
        await ask("POST", f"{TOPIC}/{path}", rate, 204)
        assert (await ask("GET", f"{TOPIC}/{path}")).json == shown
        await ask("POST", f"{NAMESPACE}/{path}", rate | {"relativeToPublishRate": True}, 204)
        assert (await ask("GET", f"{NAMESPACE}/{path}")).json == shown | {
            "relativeToPublishRate": True
        }
        await ask("POST", f"{TOPIC}/{path}", {"relativeToPublishRate": "x"}, 400)
        await ask("POST", f"{TOPIC}/{path}", [], 400)
        await ask("POST", f"{TOPIC}/{path}", {"ratePeriodInSecond": "x"}, 400)
    limits = topic.client_limits
    assert limits.dispatch == limits.subscription_dispatch == Rate(10, None)
    await ask("POST", f"{TOPIC}/subscribeRate", {"subscribeThrottlingRatePerConsumer": 3}, 204)
    shown = {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 30}
    assert (await ask("GET", f"{TOPIC}/subscribeRate")).json == shown
    assert topic.client_limits.subscribe == Rate(3, None, 30)


async def test_a_relative_rate_by_namespace_and_topic(ask, broker):
    await ask("PUT", TOPIC, status=204)
    topic = broker.topics.get(ORDERS)
    rate = {"dispatchThrottlingRateInMsg": 10, "relativeToPublishRate": True}
    for path, field in (
        ("dispatchRate", "dispatch"),
        ("subscriptionDispatchRate", "subscription_dispatch"),
    ):
        await ask("POST", f"{NAMESPACE}/{path}", rate, 204)
        assert getattr(topic.client_limits, field) == Rate(10, None, is_relative=True)
        await ask("POST", f"{TOPIC}/{path}", rate | {"relativeToPublishRate": False}, 204)
        assert getattr(topic.client_limits, field) == Rate(10, None)
        await ask("DELETE", f"{TOPIC}/{path}", status=204)
        await ask("DELETE", f"{NAMESPACE}/{path}", status=204)
        assert getattr(topic.client_limits, field) is None
    assert topic.settings == {}


async def test_the_message_size_is_a_policy_of_topics_alone(ask, broker):
    await ask("PUT", TOPIC, status=204)
    await ask("GET", f"{TOPIC}/maxMessageSize", status=204)
    await ask("POST", f"{TOPIC}/maxMessageSize", 1000, 204)
    assert (await ask("GET", f"{TOPIC}/maxMessageSize")).json == 1000
    assert broker.topics.get(ORDERS).client_limits.message_bytes == 1000
    for wrong in (-1, 10**9):
        await ask("POST", f"{TOPIC}/maxMessageSize", wrong, 412)
    await ask("GET", f"{NAMESPACE}/maxMessageSize", status=501)


async def test_the_topics_of_a_namespace_are_limited(ask):
    path = f"{NAMESPACE}/maxTopicsPerNamespace"
    assert (await ask("GET", path)).json == 0
    await ask("POST", path, 3, 204)
    await ask("PUT", TOPIC, status=204)
    text = "Exceed maximum number of topics in namespace."
    assert (await ask("PUT", f"{PARTS}/partitions", 3, 412)).json == {"reason": text}
    await ask("PUT", f"{PARTS}/partitions", 2, 204)
    await ask("POST", f"{PARTS}/partitions", 3, 412)
    await ask("DELETE", path, status=204)
    await ask("POST", f"{PARTS}/partitions", 3, 204)


async def test_the_subscriptions_of_a_topic_are_limited(ask):
    await ask("PUT", TOPIC, status=204)
    await ask("POST", f"{TOPIC}/maxSubscriptionsPerTopic", 1, 204)
    await ask("PUT", f"{TOPIC}/subscription/a", status=204)
    refused = await ask("PUT", f"{TOPIC}/subscription/b", status=412)
    assert "maximum number of subscriptions" in refused.json["reason"]


SHOWN = [
    (NAMESPACE, "autoTopicCreation", {"allowAutoTopicCreation": False}),
    (
        NAMESPACE,
        "autoTopicCreation",
        {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 3,
        },
    ),
    (NAMESPACE, "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
    (TOPIC, "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
    (NAMESPACE, "subscriptionTypesEnabled", ["Shared", "Failover"]),
    (TOPIC, "subscriptionTypesEnabled", ["Shared", "Failover"]),
    (NAMESPACE, "subscriptionExpirationTime", 5),
    (
        TOPIC,
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 9,
            "deleteWhileInactive": True,
        },
    ),
    (
        TOPIC,
        "inactiveTopicPolicies",
        {"maxInactiveDurationSeconds": 9, "deleteWhileInactive": False},
    ),
    (
        NAMESPACE,
        "delayedDelivery",
        {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
    ),
    (NAMESPACE, "schemaValidationEnforced", True),
    (TOPIC, "schemaValidationEnforced", True),
    (NAMESPACE, "isAllowAutoUpdateSchema", False),
    (NAMESPACE, "encryptionRequired", True),
    (NAMESPACE, "deduplicationSnapshotInterval", 5),
    (
        TOPIC,
        "persistence",
        {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 0.5,
        },
    ),
]


@pytest.mark.parametrize(("level", "path", "value"), SHOWN)
async def test_a_policy_is_shown_as_it_was_set(ask, level, path, value):
    await ask("PUT", TOPIC, status=204)
    await ask("POST", f"{level}/{path}", value, 204)
    assert (await ask("GET", f"{level}/{path}")).json == value
    assert (await ask("GET", f"{TOPIC}/{path}?applied=true")).status in (200, 501)


REFUSED = [
    ("autoTopicCreation", {"allowAutoTopicCreation": True}, 412, "Unknown topic type [null]"),
    ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "x"}, 412, "type [x]"),
    (
        "autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "partitioned"},
        412,
        "cannot be null when the type is partitioned",
    ),
    ("subscriptionTypesEnabled", ["x"], 400, "expected a list"),
    ("subscriptionExpirationTime", -1, 412, "Invalid value"),
    ("delayedDelivery", {"active": "x"}, 400, "active has to be true or false"),
    ("encryptionRequired", "x", 400, "true or false"),
    (
        "persistence",
        {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1},
        400,
        "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (1)",
    ),
]


@pytest.mark.parametrize(("path", "value", "status", "reason"), REFUSED)
async def test_a_value_that_apache_refuses_is_refused(ask, path, value, status, reason):
    answer = await ask("POST", f"{NAMESPACE}/{path}", value, status)
    assert reason in answer.json["reason"]


async def test_topics_are_created_by_their_namespace(ask, broker):
    policy = {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    }
    await ask("POST", f"{NAMESPACE}/autoTopicCreation", policy, 204)
    topic = await broker.topics.auto_create(ORDERS)
    assert (len(topic.partitions), topic.partitioned) == (3, True)
    await ask("POST", f"{NAMESPACE}/autoTopicCreation", {"allowAutoTopicCreation": False}, 204)
    with pytest.raises(TopicNotFound):
        await broker.topics.auto_create(ORDERS.__class__("public", "default", "more"))
