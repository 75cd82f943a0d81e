"""Policies of namespaces and topics in Pulsar's admin API, mapped to the broker's settings.

The rows of `broker/topics/settings_table.py` name the policies; a policy of a single setting needs
no code here. A namespace's setting applies to its topics that do not set their own value. A policy
that the broker does not enforce has no path, unless its effect names the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from braidlog.broker.access.rights import Action
from braidlog.broker.access.subscription_rules import AUTH_MODE, SubscriptionAuthMode
from braidlog.broker.topics.schema_rules import SchemaStrategy
from braidlog.broker.topics.schemas import strategy_of
from braidlog.broker.topics.settings import of_subscription
from braidlog.broker.topics.settings_table import (
    TOPIC_SETTINGS,
    InactiveMode,
    TopicKind,
)
from braidlog.broker.topics.topic_setting import NO_LIMIT
from braidlog.protocols.http.errors import (
    BAD_BODY,
    BAD_LIMIT,
    BAD_TTL,
    NOT_SUPPORTED,
    RequestRefused,
)
from braidlog.protocols.http.pulsar_admin.answers import as_number
from braidlog.protocols.http.pulsar_admin.policies import (
    LIMIT_MAX,
    UNDEFINED,
    Changes,
    Policy,
    PolicyField,
    Settings,
)
from braidlog.protocols.http.pulsar_admin.storage_policies import (
    NO_QUOTA,
    NO_QUOTAS,
    QUOTA_KINDS,
    quota_kind,
    quotas_shown,
    read_quota,
    read_retention,
    retention_in_force,
    retention_shown,
)

MESSAGE_BYTES_MAX: Final = 5 << 20  # Apache's largest message, and that of the Pulsar listener.
PARTITIONS_MAX: Final = 10_000  # Of a topic.
SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
PERSISTENCE: Final = (
    "bookkeeperEnsemble",
    "bookkeeperWriteQuorum",
    "bookkeeperAckQuorum",
    "managedLedgerMaxMarkDeleteRate",
)
STORAGE_CLASS: Final = "managedLedgerStorageClassName"


def _read_ttl(body: object, _: Request) -> Changes:
    body = as_number(body)
    if type(body) is not int or not 0 <= body <= LIMIT_MAX:
        raise RequestRefused(BAD_TTL, "Invalid value for message TTL, message TTL must >= 0")
    return {"message_ttl_s": body}


def _read_size(body: object, _: Request) -> Changes:
    size = as_number(body)
    if type(size) is not int:
        raise RequestRefused(BAD_BODY, "the body has to be a number of bytes")
    if not 0 <= size <= MESSAGE_BYTES_MAX:
        text = "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller"
        raise RequestRefused(BAD_LIMIT, f"{text} than that in the broker-level")
    return {"message_bytes_max": size}


def _read_auto_topics(body: object, request: Request) -> Changes:
    fields = body if isinstance(body, dict) else {}
    kind, count = fields.get("topicType"), as_number(fields.get("defaultNumPartitions"))
    fault = ""
    if fields.get("allowAutoTopicCreation"):
        if kind not in TOPIC_SETTINGS["auto_topic_type"].choices:
            fault = f"Unknown topic type [{'null' if kind is None else str(kind)[:60]}]"
        elif kind == TopicKind.PARTITIONED.value and count is None:
            fault = "[defaultNumPartitions] cannot be null when the type is partitioned."
        elif kind == TopicKind.PLAIN.value and count is not None:
            fault = (
                "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
            )
        elif count is not None and not (type(count) is int and 0 < count <= PARTITIONS_MAX):
            fault = "[defaultNumPartitions] cannot be less than 1 for partition type."
    if fault:
        text = f"Invalid configuration for autoTopicCreationOverride. the detail is {fault}"
        raise RequestRefused(BAD_LIMIT, text)
    policy = Policy("autoTopicCreation", fields=AUTO_TOPIC_FIELDS)
    return policy.changes_by_fields(body)


def _read_types(body: object, _: Request) -> Changes:
    names = body if isinstance(body, list) else [None]
    if not all(isinstance(name, str) and name in SUBSCRIPTION_TYPES for name in names):
        raise RequestRefused(BAD_BODY, f"expected a list of {', '.join(SUBSCRIPTION_TYPES)}")
    return {"subscription_types": ",".join(dict.fromkeys(map(str, names)))}


def _types_shown(settings: Settings) -> list[str] | None:
    names = settings.get("subscription_types")
    return str(names).split(",") if names else [] if names == "" else None


def _word(setting: str) -> Callable[[object, Request], Changes]:
    """Return a function that reads a setting in Pulsar's words."""
    words = TOPIC_SETTINGS[setting].choices

    def read(body: object, _: Request) -> Changes:
        if body is not None and body not in words:
            raise RequestRefused(BAD_BODY, f"expected one of {', '.join(words)}")
        return {setting: None if body is None else str(body)}

    return read


def _read_persistence(body: object, _: Request) -> Changes:
    if body is None:
        return {"persistence": None}
    if not isinstance(body, dict):
        raise RequestRefused(BAD_BODY, f"expected an object with {', '.join(PERSISTENCE)}")
    if body.get(STORAGE_CLASS) is not None:
        raise RequestRefused(NOT_SUPPORTED, f"{STORAGE_CLASS}: there is a single kind of storage")
    counts = [as_number(body.get(name, 0)) for name in PERSISTENCE[:3]]
    rate = body.get(PERSISTENCE[3], 0.0)
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < 1e9
    if not is_number or not all(type(count) is int and 0 <= count < 1000 for count in counts):
        raise RequestRefused(BAD_BODY, f"{', '.join(PERSISTENCE)}: expected numbers, 0 or more")
    if counts != sorted(counts, key=lambda count: -int(str(count))):
        ensemble, write, ack = counts
        text = f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})"
        raise RequestRefused(BAD_BODY, text)
    values = dict(zip(PERSISTENCE, [*counts, float(rate)], strict=True))
    return {"persistence": json.dumps(values, separators=(",", ":"))}


def _persistence_shown(settings: Settings) -> object:
    stored = settings.get("persistence")
    return None if stored is None else json.loads(str(stored))


def _dispatch_rate(path: str, setting: str, subscription: str = "") -> Policy:
    """Return a policy about a rate of delivery, by default to every subscription."""
    end = of_subscription("", subscription) if subscription else ""
    fields = (
        PolicyField("dispatchThrottlingRateInMsg", f"{setting}_messages{end}", 0),
        PolicyField("dispatchThrottlingRateInByte", f"{setting}_bytes{end}", 0),
        PolicyField("relativeToPublishRate", f"{setting}_relative{end}", False),
        PolicyField("ratePeriodInSecond", f"{setting}_period_s{end}", 0),
    )
    return Policy(
        path,
        "rate of delivery: messages and bytes in a period",
        "the messages and bytes in a period of seconds, 0 for no limit; with "
        "`relativeToPublishRate`, in addition to the rate of publishing",
        fields=fields,
        applied={
            "dispatchThrottlingRateInMsg": 0,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        },
    )


def _read_delayed_delivery(body: object, _: Request) -> Changes:
    fields = body if isinstance(body, dict) else {}
    if fields.get(GOS_LONGEST_DELAY) is not None:
        body = {LONGEST_DELAY: fields[GOS_LONGEST_DELAY], **fields}
    return Policy("delayedDelivery", fields=DELAY_FIELDS).changes_by_fields(body)


LONGEST_DELAY: Final = "maxDeliveryDelayInMillis"
GOS_LONGEST_DELAY: Final = "maxDelayInMillis"  # The name in Go's client; Apache drops the field.
DELAY_FIELDS: Final = (
    PolicyField("tickTime", "delayed_delivery_tick_ms", 0),
    PolicyField("active", "delayed_delivery", False),
    PolicyField(LONGEST_DELAY, "delayed_delivery_max_ms", 0),
)
AUTO_TOPIC_FIELDS: Final = (
    PolicyField("allowAutoTopicCreation", "auto_topic_creation", False),
    PolicyField("topicType", "auto_topic_type"),
    PolicyField("defaultNumPartitions", "auto_topic_partitions"),
)
# The policies that differ from the default form.
_OWN_FORM: Final = (
    Policy(
        "deduplication",
        "deduplication",
        "the body is true or false",
        topic_path="deduplicationEnabled",
        in_force=lambda broker, topic: broker.topics.is_deduplicated(topic),
        of_non_persistent=False,
    ),
    Policy(
        "schemaCompatibilityStrategy",
        "strategy for schema compatibility",
        "the body is the strategy's name",
        namespace_method="PUT",
        topic_method="PUT",
        is_removable=False,
        unset=UNDEFINED,
        in_force=lambda _, topic: strategy_of(topic).value.upper(),
        applied=SchemaStrategy.FULL.value.upper(),
    ),
    Policy(
        "schemaAutoUpdateCompatibilityStrategy",
        "strategy for schema compatibility under its older name",
        "the body is the strategy's older name, as `Full`",
        levels=("namespace",),
        read=_word("schema_auto_update_compatibility"),
        show=lambda settings: settings.get("schema_auto_update_compatibility"),
        namespace_method="PUT",
        is_removable=False,
        absent_status=204,
    ),
    Policy(
        "subscriptionAuthMode",
        "rule for the names of subscriptions",
        "`None`, or `Prefix`: a name begins with that of the client's user",
        levels=("namespace",),
        read=_word(AUTH_MODE),
        show=lambda settings: settings.get(AUTH_MODE),
        is_removable=False,
        unset=SubscriptionAuthMode.NONE.value,
        action=Action.ADMINISTER,
    ),
    Policy(
        "retention",
        "retention: the time and the bytes for which acknowledged messages are kept",
        read=read_retention,
        own_names=("retentionTimeInMinutes", "retentionSizeInMB"),
        show=retention_shown,
        in_force=retention_in_force,
        of_non_persistent={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    ),
    Policy(
        "messageTTL",
        "message TTL, after which messages count as acknowledged",
        "the number of seconds, 0 for never",
        read=_read_ttl,
        topic_query="messageTTL",
        applied=0,
    ),
    Policy(
        "backlogQuota",
        "backlog quota, a limit by bytes (`destination_storage`) or by age (`message_age`)",
        "the limit, and the policy beyond the limit",
        read=read_quota,
        own_names=tuple(NO_QUOTA),
        query=("backlogQuotaType",),
        show=quotas_shown,
        removed=lambda request: dict.fromkeys(QUOTA_KINDS[quota_kind(request)]),
        applied=NO_QUOTAS,
        shown_at="backlogQuotaMap",
    ),
    Policy(
        "compactionThreshold",
        "compaction threshold, a number of new bytes",
        "the body is a number of bytes, 0 for never",
        check=lambda broker: broker.compactor.check_possible(),
        namespace_method="PUT",
        applied=0,
    ),
    Policy("maxProducersPerTopic", topic_path="maxProducers", applied=0),
    Policy("maxConsumersPerTopic", topic_path="maxConsumers", applied=0),
    Policy("maxConsumersPerSubscription", topic_absent_status=204),
    Policy("maxSubscriptionsPerTopic", topic_absent_status=204),
    Policy(
        "maxUnackedMessagesPerConsumer", topic_path="maxUnackedMessagesOnConsumer", applied=50_000
    ),
    Policy(
        "maxUnackedMessagesPerSubscription",
        topic_path="maxUnackedMessagesOnSubscription",
        applied=200_000,
    ),
    Policy("maxMessageSize", levels=("topic",), read=_read_size, topic_absent_status=204),
    Policy("maxTopicsPerNamespace", levels=("namespace",), unset=0),
    Policy(
        "publishRate",
        "rate of publishing: messages and bytes a second",
        "the messages and bytes a second, -1 or 0 for no limit",
        fields=(
            PolicyField("publishThrottlingRateInMsg", "publish_rate_messages", NO_LIMIT),
            PolicyField("publishThrottlingRateInByte", "publish_rate_bytes", NO_LIMIT),
        ),
        topic_absent_status=204,
    ),
    _dispatch_rate("dispatchRate", "dispatch_rate"),
    _dispatch_rate("subscriptionDispatchRate", "subscription_dispatch_rate"),
    Policy(
        "subscribeRate",
        "rate of subscribing: times that a consumer may subscribe in a period",
        "the number of times, and the period in seconds",
        fields=(
            PolicyField("subscribeThrottlingRatePerConsumer", "subscribe_rate", NO_LIMIT),
            PolicyField("ratePeriodInSecond", "subscribe_rate_period_s", 30),
        ),
        applied={"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30},
    ),
    Policy(
        "autoTopicCreation",
        "creation of topics that clients name",
        "`allowAutoTopicCreation`, `topicType` and `defaultNumPartitions`",
        levels=("namespace",),
        read=_read_auto_topics,
        fields=AUTO_TOPIC_FIELDS,
    ),
    Policy(
        "autoSubscriptionCreation",
        "creation of subscriptions by their first consumer",
        "`allowAutoSubscriptionCreation`, true or false",
        fields=(PolicyField("allowAutoSubscriptionCreation", "auto_subscription_creation", True),),
        applied={"allowAutoSubscriptionCreation": True},
    ),
    Policy(
        "subscriptionTypesEnabled",
        "kinds of subscription that consumers may use",
        "the list of kinds; empty for all",
        read=_read_types,
        show=_types_shown,
        unset=[],
        topic_absent_status=204,
    ),
    Policy(
        "subscriptionExpirationTime",
        topic_query="subscriptionExpirationTime",
        applied=0,
        form="a number of minutes",
        negative="Invalid value for subscription expiration time",
    ),
    Policy(
        "inactiveTopicPolicies",
        "deletion of inactive topics",
        "`deleteWhileInactive`, `maxInactiveDurationSeconds` and `inactiveTopicDeleteMode`",
        fields=(
            PolicyField("inactiveTopicDeleteMode", "inactive_topic_mode"),
            PolicyField("maxInactiveDurationSeconds", "inactive_topic_s", 0),
            PolicyField("deleteWhileInactive", "inactive_topics_deleted", False),
        ),
        applied={
            "inactiveTopicDeleteMode": InactiveMode.NO_SUBSCRIPTIONS.value,
            "maxInactiveDurationSeconds": 60,
            "deleteWhileInactive": False,
        },
    ),
    Policy(
        "delayedDelivery",
        "delayed delivery",
        "`active`, `tickTime` and `maxDeliveryDelayInMillis`",
        read=_read_delayed_delivery,
        fields=DELAY_FIELDS,
        own_names=(*(field.name for field in DELAY_FIELDS), GOS_LONGEST_DELAY),
        applied={"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
    ),
    Policy(
        "schemaValidationEnforced",
        "need of a schema for producers, if the topic has a schema",
        "true or false",
        is_removable=False,
        unset=False,
        topic_unset=False,
    ),
    Policy(
        "isAllowAutoUpdateSchema",
        "right of producers to add a schema",
        "true or false",
        levels=("namespace",),
        is_removable=False,
        unset=True,
    ),
    Policy(
        "encryptionRequired",
        "need of encryption for producers",
        "true or false",
        levels=("namespace",),
        is_removable=False,
        unset=False,
    ),
    Policy("deduplicationSnapshotInterval", is_removable=False, may_be_empty=True),
    Policy(
        "persistence",
        "copies of a message in BookKeeper, without effect here",
        "the numbers of bookies, and a rate",
        read=_read_persistence,
        own_names=(*PERSISTENCE, STORAGE_CLASS),
        show=_persistence_shown,
        applied=dict(zip(PERSISTENCE, (1, 1, 1, 0.1), strict=True)),
    ),
)
_OWN_FORM_BY_PATH: Final = {policy.path: policy for policy in _OWN_FORM}
BY_PATH: Final = {
    row.pulsar: _OWN_FORM_BY_PATH.get(row.pulsar) or Policy(row.pulsar)
    for row in TOPIC_SETTINGS.values()
    if row.pulsar
}
POLICIES: Final = tuple(BY_PATH.values())


def rate_of_subscription(subscription: str) -> Policy:
    """Return the policy about the rate of delivery to a single subscription of a topic."""
    return _dispatch_rate("dispatchRate", "subscription_dispatch_rate", subscription)
