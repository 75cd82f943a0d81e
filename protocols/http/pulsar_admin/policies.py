"""Policies of namespaces and topics in Pulsar's admin API, mapped to the broker's settings.

The rows of `broker/topics/settings_table.py` name the policies; a policy of a single setting needs
no code here. A namespace's setting applies to its topics that do not set their own value. A policy
that the broker does not enforce has no path. Knows Pulsar's names of settings, but not their
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from braidlog.broker.topics.settings_table import NO_LIMIT, TOPIC_SETTINGS, QuotaPolicy
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import BAD_BODY, BAD_TTL, RequestRefused
from braidlog.protocols.http.pulsar_admin.answers import as_number

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.settings_table import TopicSetting

MINUTE_MS: Final = 60_000
MIB: Final = 1 << 20
INFINITE: Final = -1  # In a retention policy.
LIMIT_MAX: Final = 1 << 40  # Minutes or MiB: far above any real need.
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
class Policy:
    """A policy, of one or several settings of a topic.

    `path` ends the paths of a namespace and, without `topic_path`, of a topic. `read` returns the
    changes by a body, `show` the JSON value; both have defaults for a policy of a single setting.
    `topic_query` is the query parameter that has a topic's value, in place of the body.
    """

    path: str
    noun: str = ""  # For the API's description; by default the path.
    form: str = ""  # Describes the body.
    _: KW_ONLY
    read: Callable[[object, Request], Changes] | None = None
    show: Callable[[Settings], object] | None = None
    removed: Callable[[Request], Changes] | None = None  # The changes by a DELETE.
    check: Callable[[Broker], None] | None = None  # Raises if the broker cannot have the policy.
    topic_path: str = ""
    shown_at: str = ""  # The path of GET, if that differs.
    topic_query: str = ""
    namespace_method: str = "POST"
    topic_method: str = "POST"
    is_removable: bool = True  # For a namespace; a topic's policy can always be removed.
    is_empty_if_absent: bool = False  # An empty answer without a value, in place of null.

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
        (row,) = self.settings
        return {row.name: read_value(row, body)}

    def shown(self, settings: Settings) -> object:
        """Return the policy as JSON; None without a value."""
        if self.show is not None:
            return self.show(settings)
        (row,) = self.settings
        value = settings.get(row.name)
        if row.choices:
            return UNDEFINED if value is None else str(value).upper()
        return value

    def removal(self, request: Request) -> Changes:
        """Return the changes that remove the policy. Raises RequestRefused."""
        if self.removed is not None:
            return self.removed(request)
        return dict.fromkeys(row.name for row in self.settings)


def read_value(row: TopicSetting, body: object) -> Setting | None:
    """Return the value of a policy of a single setting, by the setting's values. Raises
    RequestRefused.
    """
    if row.is_switch:
        if not isinstance(body, bool):
            raise RequestRefused(BAD_BODY, "the body has to be true or false")
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
    if type(body) is not int or not 0 <= body <= LIMIT_MAX:
        unit = " of bytes" if row.name.endswith("_bytes") else ""
        raise RequestRefused(BAD_BODY, f"the body has to be a number{unit}, 0 or more")
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
        is_empty_if_absent=True,
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
)
_BY_PATH: Final = {policy.path: policy for policy in _OWN_FORM}
POLICIES: Final = tuple(
    _BY_PATH.get(path) or Policy(path)
    for path in dict.fromkeys(row.pulsar for row in TOPIC_SETTINGS.values() if row.pulsar)
)
