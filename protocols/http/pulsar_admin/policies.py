"""Policies of namespaces and topics in Pulsar's admin API, mapped to the broker's settings.

The rows of `broker/topics/settings_table.py` name the policies; a policy of a single setting needs
no code here. A namespace's setting applies to its topics that do not set their own value. A policy
that the broker does not enforce has no path. Knows Pulsar's names of settings, but not their
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from braidlog.broker.topics.settings_table import NO_LIMIT, TOPIC_SETTINGS, QuotaPolicy
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import (
    BAD_BODY,
    BAD_LIMIT,
    BAD_TTL,
    NOT_SUPPORTED,
    RequestRefused,
)
from braidlog.protocols.http.pulsar_admin.answers import as_number

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.settings_table import TopicSetting

MINUTE_MS: Final = 60_000
MIB: Final = 1 << 20
MESSAGE_BYTES_MAX: Final = 5 << 20  # Apache's largest message, and that of the Pulsar listener.
INFINITE: Final = -1  # In a retention policy.
LIMIT_MAX: Final = 1 << 40  # Minutes or MiB: far above any real need.
LEVELS: Final = ("namespace", "topic")
UNDEFINED: Final = "UNDEFINED"  # A choice that is not set.
# Pulsar's kinds of quota, each with its settings for limit and policy.
QUOTA_KINDS: Final = {
    "destination_storage": ("backlog_bytes", "backlog_bytes_policy"),
    "message_age": ("backlog_age_s", "backlog_age_policy"),
}
Setting = str | int | bool
Settings = Mapping[str, Setting]
Changes = dict[str, Setting | None]


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A field of a policy with several values: its name in JSON, and its setting.

    An absent field has the value `default`; a default of None means that the field may be absent.
    """

    name: str
    setting: str
    default: Setting | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, of one or several settings of a topic.

    `path` ends the paths of a namespace and, without `topic_path`, of a topic. `read` returns the
    changes by a body, `show` the JSON value; both have defaults for a policy of a single setting,
    and of `fields`. `topic_query` is the query parameter that has a topic's value, in place of the
    body. `applied` is the value in force where no level sets any.
    """

    path: str
    noun: str = ""  # For the API's description; by default the path.
    form: str = ""  # Describes the body.
    _: KW_ONLY
    fields: Sequence[PolicyField] = ()
    applied: object = None
    unset: object = None  # A namespace's value where it sets none.
    read: Callable[[object, Request], Changes] | None = None
    show: Callable[[Settings], object] | None = None
    removed: Callable[[Request], Changes] | None = None  # The changes by a DELETE.
    check: Callable[[Broker], None] | None = None  # Raises if the broker cannot have the policy.
    levels: Sequence[str] = LEVELS
    topic_path: str = ""
    shown_at: str = ""  # The path of GET, if that differs.
    topic_query: str = ""
    namespace_method: str = "POST"
    topic_method: str = "POST"
    is_removable: bool = True  # For a namespace; a topic's policy can always be removed.
    topic_absent_status: int = 200  # Of a topic's answer without a value, which is empty.

    @property
    def settings(self) -> list[TopicSetting]:
        """The settings that make the policy."""
        return [row for row in TOPIC_SETTINGS.values() if row.pulsar == self.path]

    def calls(self, *, is_topic: bool) -> list[tuple[str, list[str]]]:
        """Return the ends of the policy's paths with their methods; GET shows, DELETE removes."""
        path = (is_topic and self.topic_path) or self.path
        methods = [self.topic_method if is_topic else self.namespace_method]
        methods += ["DELETE"] if is_topic or self.is_removable else []
        if self.shown_at:
            return [(self.shown_at, ["GET"]), (path, methods)]
        return [(path, ["GET", *methods])]

    def changes(self, body: object, request: Request) -> Changes:
        """Return the changes that a body asks for. Raises RequestRefused."""
        if self.read is not None:
            return self.read(body, request)
        if self.fields:
            return self.changes_by_fields(body)
        (row,) = self.settings
        return {row.name: read_value(row, body)}

    def changes_by_fields(self, body: object) -> Changes:
        """Return the changes that an object with the fields asks for. Raises RequestRefused."""
        if body is None:  # Apache removes the policy.
            return dict.fromkeys(field.setting for field in self.fields)
        if not isinstance(body, dict):
            names = ", ".join(field.name for field in self.fields)
            raise RequestRefused(BAD_BODY, f"expected an object with the fields {names}")
        changes: Changes = {}
        for field in self.fields:
            value = body.get(field.name)
            row = TOPIC_SETTINGS[field.setting]
            is_number = not (row.is_switch or row.choices)
            if value is None or (is_number and value == NO_LIMIT):
                changes[field.setting] = field.default if value is None else NO_LIMIT
            else:
                changes[field.setting] = read_value(row, value, field.name)
        return changes

    def shown(self, settings: Settings) -> object:
        """Return the policy as JSON; None without a value."""
        if self.show is not None:
            return self.show(settings)
        if self.fields:
            return self.fields_shown(settings)
        (row,) = self.settings
        value = settings.get(row.name)
        if row.choices:
            return UNDEFINED if value is None else str(value).upper()
        return 0 if value == NO_LIMIT else value

    def fields_shown(self, settings: Settings) -> dict[str, Setting] | None:
        """Return the object of the fields; None without a value."""
        if not any(field.setting in settings for field in self.fields):
            return None
        values = {field.name: settings.get(field.setting, field.default) for field in self.fields}
        return {name: value for name, value in values.items() if value is not None}

    def removal(self, request: Request) -> Changes:
        """Return the changes that remove the policy. Raises RequestRefused."""
        if self.removed is not None:
            return self.removed(request)
        return dict.fromkeys(row.name for row in self.settings)


def read_value(row: TopicSetting, body: object, named: str = "the body") -> Setting | None:
    """Return the value of a setting, by the setting's values; `named` is the value's place. Raises
    RequestRefused.
    """
    if row.is_switch:
        if not isinstance(body, bool):
            raise RequestRefused(BAD_BODY, f"{named} has to be true or false")
        return body
    if row.choices:
        known = {choice.upper(): choice for choice in row.choices}
        if body == UNDEFINED:
            return None
        if not isinstance(body, str) or body not in known:
            raise RequestRefused(
                BAD_BODY, f"expected one of {UNDEFINED}, {', '.join(sorted(known))}"
            )
        return known[body]
    body = as_number(body)
    if type(body) is not int or not body <= LIMIT_MAX:
        unit = " of bytes" if row.name.endswith("_bytes") else ""
        raise RequestRefused(BAD_BODY, f"{named} has to be a number{unit}, 0 or more")
    if body < 0:
        raise RequestRefused(BAD_LIMIT, f"{named} must be 0 or more")
    return body


def _read_ttl(body: object, _: Request) -> Changes:
    body = as_number(body)
    if type(body) is not int or not 0 <= body <= LIMIT_MAX:
        raise RequestRefused(BAD_TTL, "Invalid value for message TTL, message TTL must >= 0")
    return {"message_ttl_s": body}


def _read_retention(body: object, _: Request) -> Changes:
    limits = body if isinstance(body, dict) else {}
    minutes = as_number(limits.get("retentionTimeInMinutes"))
    size = as_number(limits.get("retentionSizeInMB"))
    for limit in (minutes, size):
        if type(limit) is not int or not INFINITE <= limit <= LIMIT_MAX:
            raise RequestRefused(BAD_BODY, "expected retentionTimeInMinutes and retentionSizeInMB")
    assert isinstance(minutes, int) and isinstance(size, int)
    if (minutes == 0) != (size == 0):
        raise RequestRefused(BAD_BODY, "both limits of a retention policy are 0, or none is")
    return {
        "retention_ms": NO_LIMIT if minutes <= 0 else minutes * MINUTE_MS,
        "retention_bytes": NO_LIMIT if size <= 0 else size * MIB,
        "keep_unacknowledged": True,
        "delete_acknowledged": minutes == 0,
    }


def _retention_shown(settings: Settings) -> dict[str, int] | None:
    if "keep_unacknowledged" not in settings or "retention_ms" not in settings:
        return None
    if settings.get("delete_acknowledged"):
        return {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    kept_ms, kept_bytes = settings["retention_ms"], settings.get("retention_bytes", NO_LIMIT)
    assert isinstance(kept_ms, int) and isinstance(kept_bytes, int)
    return {
        "retentionTimeInMinutes": INFINITE if kept_ms == NO_LIMIT else kept_ms // MINUTE_MS,
        "retentionSizeInMB": INFINITE if kept_bytes == NO_LIMIT else kept_bytes // MIB,
    }


def _quota_settings(request: Request) -> tuple[str, str]:
    """Return the settings for limit and policy of the quota kind in the query. Raises
    RequestRefused.
    """
    kind = query.choice(request, "backlogQuotaType", tuple(QUOTA_KINDS))
    return QUOTA_KINDS[kind]


def _read_quota(body: object, request: Request) -> Changes:
    quota = body if isinstance(body, dict) else {}
    limit, policy = _quota_settings(request)
    key = "limitTime" if limit == "backlog_age_s" else "limitSize"
    number = as_number(quota.get(key, quota.get("limit") if key == "limitSize" else None))
    if type(number) is not int or not INFINITE <= number <= LIMIT_MAX:
        raise RequestRefused(BAD_BODY, f"{key}: expected a number, -1 for none")
    known = TOPIC_SETTINGS[policy].choices
    if quota.get("policy") not in known:
        raise RequestRefused(BAD_BODY, f"the attribute policy has to be one of {', '.join(known)}")
    return {limit: max(number, 0), policy: quota["policy"]}


def _quotas_shown(settings: Settings) -> dict[str, dict[str, Setting]]:
    shown: dict[str, dict[str, Setting]] = {}
    for kind, (limit, policy) in QUOTA_KINDS.items():
        if limit in settings:
            number = settings[limit] or INFINITE
            is_age = limit == "backlog_age_s"
            size = INFINITE if is_age else number
            shown[kind] = {
                "limit": size,
                "limitSize": size,
                "limitTime": number if is_age else INFINITE,
                "policy": settings.get(policy, QuotaPolicy.HOLD.value),
            }
    return shown


def _read_size(body: object, _: Request) -> Changes:
    size = as_number(body)
    if type(size) is not int:
        raise RequestRefused(BAD_BODY, "the body has to be a number of bytes")
    if not 0 <= size <= MESSAGE_BYTES_MAX:
        text = "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller"
        raise RequestRefused(BAD_LIMIT, f"{text} than that in the broker-level")
    return {"message_bytes_max": size}


def _dispatch_rate(path: str, setting: str) -> Policy:
    """Return a policy about a rate of delivery."""
    fields = (
        PolicyField("dispatchThrottlingRateInMsg", f"{setting}_messages", 0),
        PolicyField("dispatchThrottlingRateInByte", f"{setting}_bytes", 0),
        PolicyField("ratePeriodInSecond", f"{setting}_period_s", 0),
    )

    def read(body: object, _: Request) -> Changes:
        if isinstance(body, dict) and body.get("relativeToPublishRate"):
            text = "a rate of delivery relative to the rate of publishing is not served here"
            raise RequestRefused(NOT_SUPPORTED, text)
        return Policy(path, fields=fields).changes_by_fields(body)

    def show(settings: Settings) -> object:
        shown = Policy(path, fields=fields).fields_shown(settings)
        return shown and {**shown, "relativeToPublishRate": False}

    return Policy(
        path,
        "rate of delivery: messages and bytes in a period",
        "the messages and bytes in a period of seconds, 0 for no limit",
        read=read,
        show=show,
        applied={
            "dispatchThrottlingRateInMsg": 0,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        },
    )


# The policies that differ from the default form.
_OWN_FORM: Final = (
    Policy(
        "deduplication",
        "deduplication",
        "the body is true or false",
        topic_path="deduplicationEnabled",
    ),
    Policy(
        "schemaCompatibilityStrategy",
        "strategy for schema compatibility",
        "the body is the strategy's name",
        namespace_method="PUT",
        topic_method="PUT",
        is_removable=False,
    ),
    Policy(
        "retention",
        "retention: the time and the bytes for which acknowledged messages are kept",
        read=_read_retention,
        show=_retention_shown,
    ),
    Policy(
        "messageTTL",
        "message TTL, after which messages count as acknowledged",
        "the number of seconds, 0 for never",
        read=_read_ttl,
        topic_query="messageTTL",
    ),
    Policy(
        "backlogQuota",
        "backlog quota, a limit by bytes (`destination_storage`) or by age (`message_age`)",
        "the limit, and the policy beyond the limit",
        read=_read_quota,
        show=_quotas_shown,
        removed=lambda request: dict.fromkeys(_quota_settings(request)),
        shown_at="backlogQuotaMap",
    ),
    Policy(
        "compactionThreshold",
        "compaction threshold, a number of new bytes",
        "the body is a number of bytes, 0 for never",
        check=lambda broker: broker.compactor.check_possible(),
        namespace_method="PUT",
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
)
_BY_PATH: Final = {policy.path: policy for policy in _OWN_FORM}
POLICIES: Final = tuple(
    _BY_PATH.get(path) or Policy(path)
    for path in dict.fromkeys(row.pulsar for row in TOPIC_SETTINGS.values() if row.pulsar)
)
