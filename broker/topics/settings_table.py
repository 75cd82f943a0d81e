"""The settings of a topic, a row each: values, range, default, the protocols' names, and effect.

The only list of settings. Checks (`settings.py`), Kafka's configs, Pulsar's policies, Iggy's
options and the table in docs/api.md follow from the rows: a new setting is a row here, and code for
its effect. Knows no topic and no file.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Mapping, Sequence
from typing import Final

from braidlog.broker.access.subscription_rules import AUTH_MODE, SubscriptionAuthMode
from braidlog.broker.config.settings import LogConfig
from braidlog.broker.topics.kept_settings import KAFKA_LIMITS, KAFKA_SETTINGS, KEPT_SETTINGS
from braidlog.broker.topics.schema_rules import AutoUpdateStrategy, SchemaStrategy
from braidlog.broker.topics.topic_setting import (
    Count,
    Deliveries,
    Limit,
    Millionths,
    Name,
    Switch,
    TopicSetting,
)
from braidlog.storage.log.settings import CleanupPolicy


class QuotaPolicy(enum.Enum):
    """Action when a backlog is full; the value is Pulsar's word."""

    HOLD = "producer_request_hold"  # Producers are closed, and wait for room.
    REFUSE = "producer_exception"  # Producers are closed, and fail.
    EVICT = "consumer_backlog_eviction"  # The slowest subscriptions lose the oldest messages.


class TopicKind(enum.Enum):
    """Kind of a topic; the value is Pulsar's word."""

    PLAIN = "non-partitioned"
    PARTITIONED = "partitioned"


class InactiveMode(enum.Enum):
    """Condition for the deletion of an inactive topic; the value is Pulsar's word."""

    NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    CAUGHT_UP = "delete_when_subscriptions_caught_up"


DELIVERIES_MAX: Final = 5  # Kafka's group.share.delivery.count.limit
_OF_BROKER = typing.get_type_hints(LogConfig, include_extras=True)
_DEFAULTS = LogConfig()


def _log(
    name: str, effect: str, *, kafka: str = "", pulsar: str = "", iggy: str = ""
) -> TopicSetting:
    """Return a setting whose default, values and range are those of the broker's `log.NAME`."""
    return TopicSetting(
        name,
        _OF_BROKER[name],
        getattr(_DEFAULTS, name),
        effect,
        broker=f"log.{name}",
        kafka=kafka,
        pulsar=pulsar,
        iggy=iggy,
    )


def _limit(
    name: str, pulsar: str, effect: str, default: int | None = None, *, of_broker: bool = True
) -> TopicSetting:
    """Return a limit for Pulsar's clients of a topic, without which 0 means none."""
    return TopicSetting(
        name,
        Limit,
        default,
        effect,
        broker=f"topics.{name}" if of_broker else "",
        pulsar=pulsar,
        zero_is_none=True,
    )


def _dispatch_rate(name: str, pulsar: str, of: str) -> Sequence[TopicSetting]:
    """Return the settings of a rate of delivery: messages and bytes in a period."""
    return (
        _limit(f"{name}_messages", pulsar, f"messages delivered in a period {of}"),
        _limit(f"{name}_bytes", pulsar, f"bytes delivered in a period {of}"),
        TopicSetting(f"{name}_period_s", Count, 1, "the period; 0 is a second", pulsar=pulsar),
        TopicSetting(
            f"{name}_relative",
            Switch,
            False,
            "the rate of publishing is added to this rate",
            pulsar=pulsar,
        ),
    )


_BEYOND = (
    "`producer_request_hold` or `producer_exception` (Pulsar's producers are closed at the next "
    "check and none is opened meanwhile), `consumer_backlog_eviction` (subscriptions advance until "
    "nine tenths are left)"
)
_KEPT: Final = [
    TopicSetting(
        name, hint, default, f"kept for Kafka's tools, no effect: {reason}", kafka=kafka_name
    )
    for name, hint, default, kafka_name, reason in KEPT_SETTINGS
]
_ROWS: Final = (
    _log(
        "durability",
        "the meaning of an acknowledgement: [durability.md](durability.md)",
        iggy="durability",
    ),
    _log(
        "retention_bytes",
        "bytes that a partition keeps at least",
        kafka="retention.bytes",
        pulsar="retention",
        iggy="max_topic_size",
    ),
    _log(
        "retention_ms",
        "time that records are kept at least",
        kafka="retention.ms",
        pulsar="retention",
        iggy="message_expiry",
    ),
    TopicSetting(
        "keep_unacknowledged",
        Switch,
        False,
        "the limits never drop records that a group has not acknowledged",
        pulsar="retention",
    ),
    TopicSetting(
        "delete_acknowledged",
        Switch,
        False,
        "records that every group has acknowledged are dropped, with or without limits",
        pulsar="retention",
    ),
    TopicSetting(
        "retention_hold",
        Name,
        None,
        "a group, as `export:lake`: the limits do not drop records that the group has not read",
    ),
    TopicSetting(
        "retention_hold_bytes",
        Limit,
        None,
        "hard cap of the hold: more bytes are dropped all the same, with a warning in the log",
    ),
    TopicSetting("retention_hold_ms", Limit, None, "the same for older records"),
    TopicSetting(
        "message_ttl_s",
        Limit,
        None,
        "older messages count as acknowledged for every subscription of every protocol; checked "
        "every `log.retention_check_ms`",
        pulsar="messageTTL",
        zero_is_none=True,
    ),
    TopicSetting(
        "backlog_bytes",
        Limit,
        None,
        "stored bytes of a partition that the slowest subscription may leave unacknowledged",
        pulsar="backlogQuota",
        zero_is_none=True,
    ),
    TopicSetting(
        "backlog_bytes_policy",
        QuotaPolicy,
        QuotaPolicy.HOLD,
        f"the effect of more bytes: {_BEYOND}",
        pulsar="backlogQuota",
    ),
    TopicSetting(
        "backlog_age_s",
        Limit,
        None,
        "age of the oldest message that the slowest subscription may leave unacknowledged",
        pulsar="backlogQuota",
        zero_is_none=True,
    ),
    TopicSetting(
        "backlog_age_policy",
        QuotaPolicy,
        QuotaPolicy.HOLD,
        "the effect of a higher age, as `backlog_bytes_policy`",
        pulsar="backlogQuota",
    ),
    _log(
        "segment_bytes",
        "size at which a partition begins the next file: whole files are dropped",
        kafka="segment.bytes",
        iggy="segment_size",
    ),
    _log("segment_ms", "age at which a partition begins the next file", kafka="segment.ms"),
    TopicSetting(
        "cleanup_policy",
        CleanupPolicy,
        CleanupPolicy.DELETE,
        "`compact`: [compaction](durability.md#compaction) keeps the latest record of each key; "
        "`delete`: records are dropped by the limits above",
        kafka="cleanup.policy",
    ),
    TopicSetting(
        "min_dirty_ppm",
        Millionths,
        500_000,
        "compaction begins once that many millionths of a partition's closed segments are new",
        kafka="min.cleanable.dirty.ratio",
    ),
    TopicSetting(
        "min_compaction_lag_ms",
        Count,
        0,
        "compaction leaves out segments that were written within the lag",
        kafka="min.compaction.lag.ms",
    ),
    TopicSetting(
        "delete_retention_ms",
        Count,
        24 * 3_600_000,
        "time that compaction keeps a record without a value, which deletes the key",
        kafka="delete.retention.ms",
    ),
    *(TopicSetting(name, Limit, None, text, kafka=kafka) for name, kafka, text in KAFKA_LIMITS),
    *(
        TopicSetting(name, hint, default, text, kafka=kafka)
        for name, hint, default, kafka, text in KAFKA_SETTINGS
    ),
    *_KEPT,
    TopicSetting(
        "compaction_threshold_bytes",
        Limit,
        None,
        "number of new bytes that start Pulsar's compaction, into a view; without: only on request",
        pulsar="compactionThreshold",
        zero_is_none=True,
    ),
    TopicSetting(
        "deduplication",
        Switch,
        False,
        "repeated sends of a Pulsar producer are stored once, whatever the namespace says",
        broker="topics.deduplication",
        pulsar="deduplication",
    ),
    TopicSetting(
        "schema_compatibility",
        SchemaStrategy,
        SchemaStrategy.FULL,
        "rule for new schemas of Pulsar's clients",
        pulsar="schemaCompatibilityStrategy",
    ),
    TopicSetting(
        "schema_auto_update_compatibility",
        AutoUpdateStrategy,
        None,
        "of a namespace: the rule under its older name, if `schema_compatibility` is not set",
        pulsar="schemaAutoUpdateCompatibilityStrategy",
    ),
    TopicSetting(
        AUTH_MODE,
        SubscriptionAuthMode,
        SubscriptionAuthMode.NONE,
        "of a namespace: with `Prefix` a client may use groups whose names begin with the name of "
        "the client's user",
        pulsar="subscriptionAuthMode",
    ),
    _log(
        "unreadable_records",
        "a body that the broker cannot open, for readers of other protocols: "
        "[mapping.md](mapping.md#records-that-a-reader-cannot-receive)",
    ),
    _log("uncarried_records", "a record that the reader's protocol cannot carry"),
    _limit("producers_max", "maxProducersPerTopic", "Pulsar producers of a partition"),
    _limit("consumers_max", "maxConsumersPerTopic", "consumers of a partition (Pulsar, HTTP)"),
    _limit(
        "subscription_consumers_max",
        "maxConsumersPerSubscription",
        "consumers of a subscription of a partition (Pulsar, HTTP)",
    ),
    _limit(
        "subscriptions_max",
        "maxSubscriptionsPerTopic",
        "groups of a topic; a further group is refused",
    ),
    _limit(
        "unacked_consumer_max",
        "maxUnackedMessagesPerConsumer",
        "unacknowledged messages of a consumer of a Shared or Key_Shared subscription",
        50_000,
    ),
    _limit(
        "unacked_subscription_max",
        "maxUnackedMessagesPerSubscription",
        "the same for all consumers of a subscription of a partition",
        200_000,
    ),
    _limit(
        "message_bytes_max",
        "maxMessageSize",
        "bytes of a message of a Pulsar producer; larger messages are refused",
    ),
    _limit("topics_max", "maxTopicsPerNamespace", "topics of the namespace, partitions counted"),
    _limit(
        "publish_rate_messages",
        "publishRate",
        "messages a second of a partition's producers, which have to wait",
    ),
    _limit("publish_rate_bytes", "publishRate", "the same in bytes"),
    *_dispatch_rate("dispatch_rate", "dispatchRate", "to all subscriptions of a partition"),
    *_dispatch_rate(
        "subscription_dispatch_rate",
        "subscriptionDispatchRate",
        "to each subscription; `NAME:SUBSCRIPTION` is that of a single subscription",
    ),
    _limit("subscribe_rate", "subscribeRate", "SUBSCRIBEs of a Pulsar consumer in a period"),
    TopicSetting(
        "subscribe_rate_period_s", Count, 30, "the period of that rate", pulsar="subscribeRate"
    ),
    TopicSetting(
        "auto_topic_creation",
        Switch,
        True,
        "of a namespace: clients create its topics by naming them",
        broker="topics.auto_create",
        pulsar="autoTopicCreation",
    ),
    TopicSetting(
        "auto_topic_type",
        TopicKind,
        TopicKind.PLAIN,
        "kind of a topic that a client creates by naming it",
        broker="topics.num_partitions",
        pulsar="autoTopicCreation",
    ),
    TopicSetting(
        "auto_topic_partitions", Limit, None, "its partitions", pulsar="autoTopicCreation"
    ),
    TopicSetting(
        "auto_subscription_creation",
        Switch,
        True,
        "Pulsar's consumers create their subscription",
        pulsar="autoSubscriptionCreation",
    ),
    TopicSetting(
        "subscription_types",
        Name,
        None,
        "kinds of subscription that Pulsar's consumers may use, as `Shared,Failover`",
        pulsar="subscriptionTypesEnabled",
    ),
    TopicSetting(
        "subscription_expiration_minutes",
        Limit,
        None,
        "a group without members that does not move for so long is deleted; checked every "
        "`log.retention_check_ms`",
        pulsar="subscriptionExpirationTime",
        zero_is_none=True,
    ),
    TopicSetting(
        "inactive_topics_deleted",
        Switch,
        False,
        "the topic is deleted when no client has used it for `inactive_topic_s`",
        pulsar="inactiveTopicPolicies",
    ),
    TopicSetting(
        "inactive_topic_mode",
        InactiveMode,
        InactiveMode.NO_SUBSCRIPTIONS,
        "only without groups, or also if all groups have acknowledged everything",
        pulsar="inactiveTopicPolicies",
    ),
    TopicSetting("inactive_topic_s", Count, 60, "time without use", pulsar="inactiveTopicPolicies"),
    TopicSetting(
        "delayed_delivery",
        Switch,
        True,
        "messages wait for their delivery time; otherwise they are delivered at once",
        pulsar="delayedDelivery",
    ),
    TopicSetting(
        "deliver_at_header",
        Switch,
        False,
        "the header `braidlog.deliver_at` of a record [names its delivery time]"
        "(positions.md#delivery-times), whatever protocol wrote the record",
        kafka="braidlog.deliver_at.header.enable",
    ),
    TopicSetting(
        "dead_letter_topic",
        Name,
        None,
        "a topic of the namespace: queues with [share groups](positions.md#dead-letters) copy "
        "records there that are rejected or delivered too often",
        kafka="errors.deadletterqueue.topic.name",
    ),
    TopicSetting(
        "deliveries_max",
        Deliveries,
        DELIVERIES_MAX,
        "deliveries after which such a queue gives a record up, unless its group has a limit",
        kafka="share.delivery.count.limit",
    ),
    TopicSetting(
        "delayed_delivery_tick_ms",
        Count,
        1000,
        "without effect here: delivery times are exact",
        pulsar="delayedDelivery",
    ),
    TopicSetting(
        "delayed_delivery_max_ms",
        Limit,
        None,
        "longest delay of a message of a Pulsar producer",
        pulsar="delayedDelivery",
        zero_is_none=True,
    ),
    TopicSetting(
        "schema_required",
        Switch,
        False,
        "Pulsar's producers need a schema if the topic has a schema",
        pulsar="schemaValidationEnforced",
    ),
    TopicSetting(
        "schema_auto_update",
        Switch,
        True,
        "Pulsar's producers may add a schema",
        pulsar="isAllowAutoUpdateSchema",
    ),
    TopicSetting(
        "encryption_required",
        Switch,
        False,
        "Pulsar's producers have to encrypt their messages",
        pulsar="encryptionRequired",
    ),
    TopicSetting(
        "deduplication_snapshot_entries",
        Limit,
        None,
        "without effect here: sequences need no snapshots",
        pulsar="deduplicationSnapshotInterval",
    ),
    TopicSetting(
        "persistence",
        Name,
        None,
        "without effect here: Apache's copies of a message in BookKeeper",
        pulsar="persistence",
    ),
)
TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {row.name: row for row in _ROWS}
