"""Policies about the storage of messages: retention and backlog quotas, in Pulsar's form.

`policy_table.py` has their paths. Knows no route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from braidlog.broker.topics.settings import in_force
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS, QuotaPolicy
from braidlog.broker.topics.topic_setting import NO_LIMIT
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import BAD_BODY, NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pulsar_admin.answers import as_number
from braidlog.protocols.http.pulsar_admin.policies import LIMIT_MAX, Changes, Setting, Settings

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

MINUTE_MS: Final = 60_000
MIB: Final = 1 << 20
INFINITE: Final = -1  # In a retention policy.
# Pulsar's kinds of quota, each with its settings for limit and policy.
QUOTA_KINDS: Final = {
    "destination_storage": ("backlog_bytes", "backlog_bytes_policy"),
    "message_age": ("backlog_age_s", "backlog_age_policy"),
}
NO_QUOTA: Final = {
    "limit": INFINITE,
    "limitSize": INFINITE,
    "limitTime": INFINITE,
    "policy": QuotaPolicy.HOLD.value,
}
# Apache's words.
SINGLE_ZERO: Final = (
    "Setting a single time or size limit to 0 is invalid when one of the limits has a non-zero"
    " value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both"
    " limits must be set to 0."
)
NO_QUOTAS: Final = dict.fromkeys(QUOTA_KINDS, NO_QUOTA)


def read_retention(body: object, _: Request) -> Changes:
    limits = body if isinstance(body, dict) else {}
    minutes = as_number(limits.get("retentionTimeInMinutes"))
    size = as_number(limits.get("retentionSizeInMB"))
    for limit in (minutes, size):
        if type(limit) is not int or not INFINITE <= limit <= LIMIT_MAX:
            raise RequestRefused(BAD_BODY, "expected retentionTimeInMinutes and retentionSizeInMB")
    assert isinstance(minutes, int) and isinstance(size, int)
    if (minutes == 0) != (size == 0):
        raise RequestRefused(BAD_BODY, f"Invalid retention policy: {SINGLE_ZERO}")
    return {
        "retention_ms": NO_LIMIT if minutes <= 0 else minutes * MINUTE_MS,
        "retention_bytes": NO_LIMIT if size <= 0 else size * MIB,
        "keep_unacknowledged": True,
        "delete_acknowledged": minutes == 0,
    }


def retention_shown(settings: Settings) -> dict[str, int] | None:
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


def retention_in_force(broker: Broker, topic: Topic) -> dict[str, int]:
    """Return the retention by the settings of the broker's logs."""
    limits = in_force(broker.config.log, topic.settings)
    if limits["delete_acknowledged"]:
        return {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    kept_ms, kept_bytes = limits["retention_ms"], limits["retention_bytes"]
    assert isinstance(kept_ms, int | None) and isinstance(kept_bytes, int | None)
    return {
        "retentionTimeInMinutes": INFINITE if kept_ms is None else kept_ms // MINUTE_MS,
        "retentionSizeInMB": INFINITE if kept_bytes is None else kept_bytes // MIB,
    }


def quota_kind(request: Request) -> str:
    """Return the kind of quota in the query. Raises RequestRefused."""
    return query.choice(request, "backlogQuotaType", tuple(QUOTA_KINDS))


def read_quota(body: object, request: Request) -> Changes:
    return quota_changes(body, quota_kind(request))


def quota_changes(body: object, kind: str) -> Changes:
    """Return the changes that set a quota of this kind. Raises RequestRefused, also for a limit of
    another kind: in Apache it has no effect.
    """
    quota = body if isinstance(body, dict) else {}
    limit, policy = QUOTA_KINDS[kind]
    is_age = limit == "backlog_age_s"
    key = "limitTime" if is_age else "limitSize"
    numbers = {name: as_number(quota.get(name)) for name in ("limitSize", "limit", "limitTime")}
    if not numbers["limitSize"]:  # `limit` is an older name; as in Apache, the newer name counts.
        numbers["limitSize"] = numbers["limit"]
    number = numbers[key]
    for name, other in numbers.items():
        is_older_name = name == "limit" and not is_age
        if name != key and other not in (None, 0, INFINITE) and not is_older_name:
            text = f"{name} has no meaning in a quota of kind {kind} beside {key}"
            raise RequestRefused(NOT_SUPPORTED, f"{text}, expected {INFINITE}")
    if type(number) is not int or not INFINITE <= number <= LIMIT_MAX:
        raise RequestRefused(BAD_BODY, f"{key}: expected a number, -1 for none")
    known = TOPIC_SETTINGS[policy].choices
    if quota.get("policy") not in known:
        raise RequestRefused(BAD_BODY, f"the attribute policy has to be one of {', '.join(known)}")
    return {limit: max(number, 0), policy: quota["policy"]}


def quotas_shown(settings: Settings) -> dict[str, dict[str, Setting]]:
    """Return the quotas that are set, by kind."""
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
