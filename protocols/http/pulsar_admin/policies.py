"""Policies of namespaces and topics in Pulsar's admin API, mapped to the broker's settings.

A namespace's setting applies to its topics that do not set their own value. A policy that the
broker does not enforce has no path here. Knows Pulsar's names of settings, but not their storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.delivery import entries
from braidlog.broker.topics.schema_rules import Strategy
from braidlog.broker.topics.settings_table import NO_LIMIT, QuotaPolicy
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import BAD_BODY, BAD_TTL, ONE_PARTITION_WANTED, Refused
from braidlog.protocols.http.pulsar_admin.answers import done, read_any, told
from braidlog.protocols.http.pulsar_admin.names import name_of, namespace_of

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.http.bodies import BodyReader

MINUTE_MS: Final = 60_000
MIB: Final = 1 << 20
INFINITE: Final = -1  # In a retention policy.
LIMIT_MAX: Final = 1 << 40  # Minutes or MiB: far above any real need.
RETENTION: Final = (
    "retention_ms",
    "retention_bytes",
    "keep_unacknowledged",
    "delete_acknowledged",
)
# Pulsar's kinds of quota, each with its settings for limit and policy.
QUOTA_KINDS: Final = {
    "destination_storage": ("backlog_bytes", "backlog_bytes_policy"),
    "message_age": ("backlog_age_s", "backlog_age_policy"),
}
Setting = str | int | bool
Settings = Mapping[str, Setting]


class AdminPolicies:
    """Handlers of a broker's policies."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        self._broker = broker
        self._bodies = bodies

    # Deduplication.

    async def namespace_deduplication(self, request: Request) -> Response:
        """True if a namespace's topics have deduplication; null if not set."""
        return told(self._of_namespace(request).get("deduplication"))

    async def set_namespace_deduplication(self, request: Request) -> Response:
        """Set a namespace's deduplication: the body is true or false."""
        return await self._alter_namespace(request, {"deduplication": await self._switch(request)})

    async def end_namespace_deduplication(self, request: Request) -> Response:
        """Leave a namespace's deduplication to the broker's configuration."""
        return await self._alter_namespace(request, {"deduplication": None})

    async def topic_deduplication(self, request: Request) -> Response:
        """True if a topic has deduplication; null if not set."""
        return told(self._of_topic(request).get("deduplication"))

    async def set_topic_deduplication(self, request: Request) -> Response:
        """Set a topic's deduplication: the body is true or false."""
        return await self._alter_topic(request, {"deduplication": await self._switch(request)})

    async def end_topic_deduplication(self, request: Request) -> Response:
        """Leave a topic's deduplication to its namespace."""
        return await self._alter_topic(request, {"deduplication": None})

    # Schema compatibility.

    async def namespace_strategy(self, request: Request) -> Response:
        """A namespace's strategy for schema compatibility."""
        return told(_strategy_shown(self._of_namespace(request)))

    async def set_namespace_strategy(self, request: Request) -> Response:
        """Set a namespace's strategy for schema compatibility: the body is the strategy's name."""
        return await self._alter_namespace(request, await self._strategy(request))

    async def topic_strategy(self, request: Request) -> Response:
        """A topic's strategy for schema compatibility."""
        return told(_strategy_shown(self._of_topic(request)))

    async def set_topic_strategy(self, request: Request) -> Response:
        """Set a topic's strategy for schema compatibility: the body is the strategy's name."""
        return await self._alter_topic(request, await self._strategy(request))

    async def end_topic_strategy(self, request: Request) -> Response:
        """Leave a topic's schema compatibility to its namespace."""
        return await self._alter_topic(request, {"schema_compatibility": None})

    # Retention.

    async def namespace_retention(self, request: Request) -> Response:
        """The time and the bytes for which a namespace keeps acknowledged messages."""
        return told(_retention_shown(self._of_namespace(request)))

    async def set_namespace_retention(self, request: Request) -> Response:
        """Set a namespace's retention."""
        return await self._alter_namespace(request, await self._retention(request))

    async def end_namespace_retention(self, request: Request) -> Response:
        """Leave a namespace's retention to the broker's configuration."""
        return await self._alter_namespace(request, dict.fromkeys(RETENTION))

    async def topic_retention(self, request: Request) -> Response:
        """The time and the bytes for which a topic keeps acknowledged messages."""
        return told(_retention_shown(self._of_topic(request)))

    async def set_topic_retention(self, request: Request) -> Response:
        """Set a topic's retention."""
        return await self._alter_topic(request, await self._retention(request))

    async def end_topic_retention(self, request: Request) -> Response:
        """Leave a topic's retention to its namespace."""
        return await self._alter_topic(request, dict.fromkeys(RETENTION))

    # Message TTL, in seconds.

    async def namespace_ttl(self, request: Request) -> Response:
        """A namespace's TTL, after which messages count as acknowledged; empty if not set."""
        return _told_or_nothing(self._of_namespace(request).get("message_ttl_s"))

    async def set_namespace_ttl(self, request: Request) -> Response:
        """Set a namespace's message TTL: the body is the number of seconds, 0 for never."""
        body = await read_any(self._bodies, request)
        return await self._alter_namespace(request, {"message_ttl_s": _ttl(body)})

    async def end_namespace_ttl(self, request: Request) -> Response:
        """Remove a namespace's message TTL."""
        return await self._alter_namespace(request, {"message_ttl_s": None})

    async def topic_ttl(self, request: Request) -> Response:
        """A topic's message TTL; with `applied`, the TTL in force."""
        return _told_or_nothing(self._of_topic(request).get("message_ttl_s"))

    async def set_topic_ttl(self, request: Request) -> Response:
        """Set a topic's message TTL; the number of seconds is in the query."""
        await read_any(self._bodies, request)
        given = query.integer(request, "messageTTL", -1)
        return await self._alter_topic(request, {"message_ttl_s": _ttl(given)})

    async def end_topic_ttl(self, request: Request) -> Response:
        """Leave a topic's message TTL to its namespace."""
        return await self._alter_topic(request, {"message_ttl_s": None})

    # Backlog quotas.

    async def namespace_quotas(self, request: Request) -> Response:
        """A namespace's backlog quotas: limits by bytes and by age, and the policy beyond them."""
        return told(_quotas_shown(self._of_namespace(request)))

    async def set_namespace_quota(self, request: Request) -> Response:
        """Set a namespace's backlog quota: bytes (`destination_storage`) or age (`message_age`)."""
        return await self._alter_namespace(request, await self._quota(request))

    async def end_namespace_quota(self, request: Request) -> Response:
        """Remove a namespace's backlog quota of the given kind."""
        return await self._alter_namespace(request, dict.fromkeys(_quota_settings(request)))

    async def topic_quotas(self, request: Request) -> Response:
        """A topic's backlog quotas; with `applied`, the quotas in force."""
        return told(_quotas_shown(self._of_topic(request)))

    async def set_topic_quota(self, request: Request) -> Response:
        """Set a topic's backlog quota of the given kind."""
        return await self._alter_topic(request, await self._quota(request))

    async def end_topic_quota(self, request: Request) -> Response:
        """Leave a topic's backlog quota of the given kind to its namespace."""
        return await self._alter_topic(request, dict.fromkeys(_quota_settings(request)))

    # Compaction.

    async def namespace_threshold(self, request: Request) -> Response:
        """Number of new bytes after which a namespace's topics are compacted; null if not set."""
        return told(_threshold_shown(self._of_namespace(request)))

    async def set_namespace_threshold(self, request: Request) -> Response:
        """Set a namespace's compaction threshold: the body is a number of bytes, 0 for never."""
        return await self._alter_namespace(request, await self._threshold(request))

    async def end_namespace_threshold(self, request: Request) -> Response:
        """Remove a namespace's compaction threshold: topics are compacted only on request."""
        return await self._alter_namespace(request, {"compaction_threshold_bytes": None})

    async def topic_threshold(self, request: Request) -> Response:
        """Number of new bytes after which a topic is compacted; null if not set."""
        return told(_threshold_shown(self._of_topic(request)))

    async def set_topic_threshold(self, request: Request) -> Response:
        """Set a topic's compaction threshold: the body is a number of bytes, 0 for never."""
        return await self._alter_topic(request, await self._threshold(request))

    async def end_topic_threshold(self, request: Request) -> Response:
        """Leave a topic's compaction threshold to its namespace."""
        return await self._alter_topic(request, {"compaction_threshold_bytes": None})

    async def compact(self, request: Request) -> Response:
        """Compact a topic; the answer follows as soon as the compaction is queued."""
        name, index = name_of(request)
        self._broker.compactor.ask(self._broker.topics.get(name), index)
        return done()

    async def compaction_status(self, request: Request) -> Response:
        """The state of a topic's compaction since the broker started."""
        name, index = name_of(request)
        status = self._broker.compactor.status(self._broker.topics.get(name), index)
        return told({"status": status.state.value, "lastError": status.last_error})

    # Terminating.

    async def terminate(self, request: Request) -> Response:
        """Terminate a topic without partitions; answers with its last message's id."""
        name, index = name_of(request)
        topic = self._broker.topics.get(name)
        if topic.partitioned or index is not None:
            text = "Termination of a partitioned topic is not allowed: see terminate/partitions"
            raise Refused(ONE_PARTITION_WANTED, text)
        await self._broker.durability.reached(await self._broker.topics.terminate(name))
        return told(await _last_id(topic.partitions[0], -1))

    async def terminate_partitions(self, request: Request) -> Response:
        """Terminate a partitioned topic; answers with each partition's last message's id."""
        name, _ = name_of(request)
        topic = self._broker.topics.get(name)
        if not topic.partitioned:
            raise Refused(ONE_PARTITION_WANTED, f"{name} has no partitions: see terminate")
        await self._broker.durability.reached(await self._broker.topics.terminate(name))
        return told(
            {str(one.index): await _last_id(one, one.index) for one in tuple(topic.partitions)}
        )

    # Settings and bodies.

    def _of_namespace(self, request: Request) -> Settings:
        return self._broker.namespaces.get(*namespace_of(request)).settings

    def _of_topic(self, request: Request) -> Settings:
        topic = self._broker.topics.get(name_of(request)[0])
        return topic.settings if query.truth(request, ("applied",)) else topic.meta.settings

    async def _alter_namespace(
        self, request: Request, changes: Mapping[str, Setting | None]
    ) -> Response:
        ticket = await self._broker.topics.alter_namespace(*namespace_of(request), changes)
        await self._broker.durability.reached(ticket)
        return done()

    async def _alter_topic(
        self, request: Request, changes: Mapping[str, Setting | None]
    ) -> Response:
        ticket = await self._broker.topics.alter_settings(name_of(request)[0], changes)
        await self._broker.durability.reached(ticket)
        return done()

    async def _switch(self, request: Request) -> bool:
        body = await read_any(self._bodies, request)
        if not isinstance(body, bool):
            raise Refused(BAD_BODY, "the body has to be true or false")
        return body

    async def _strategy(self, request: Request) -> dict[str, Setting | None]:
        body = await read_any(self._bodies, request)
        if body == "UNDEFINED":
            return {"schema_compatibility": None}
        known = {strategy.name for strategy in Strategy}
        if not isinstance(body, str) or body not in known:
            raise Refused(BAD_BODY, f"a strategy is one of UNDEFINED, {', '.join(sorted(known))}")
        return {"schema_compatibility": Strategy[body].value}

    async def _threshold(self, request: Request) -> dict[str, Setting | None]:
        self._broker.compactor.check_possible()
        body = await read_any(self._bodies, request)
        if type(body) is not int or not 0 <= body <= LIMIT_MAX:
            raise Refused(BAD_BODY, "the body has to be a number of bytes, 0 or more")
        return {"compaction_threshold_bytes": body}

    async def _retention(self, request: Request) -> dict[str, Setting | None]:
        body = await read_any(self._bodies, request)
        limits = body if isinstance(body, dict) else {}
        minutes, size = limits.get("retentionTimeInMinutes"), limits.get("retentionSizeInMB")
        for limit in (minutes, size):
            if type(limit) is not int or not INFINITE <= limit <= LIMIT_MAX:
                raise Refused(BAD_BODY, "expected retentionTimeInMinutes and retentionSizeInMB")
        assert isinstance(minutes, int) and isinstance(size, int)
        if (minutes == 0) != (size == 0):
            raise Refused(BAD_BODY, "both limits of a retention policy are 0, or none is")
        return {
            "retention_ms": NO_LIMIT if minutes <= 0 else minutes * MINUTE_MS,
            "retention_bytes": NO_LIMIT if size <= 0 else size * MIB,
            "keep_unacknowledged": True,
            "delete_acknowledged": minutes == 0,
        }

    async def _quota(self, request: Request) -> dict[str, Setting | None]:
        body = await read_any(self._bodies, request)
        quota = body if isinstance(body, dict) else {}
        limit, policy = _quota_settings(request)
        key = "limitTime" if limit == "backlog_age_s" else "limitSize"
        number = quota.get(key, quota.get("limit") if key == "limitSize" else None)
        if type(number) is not int or not INFINITE <= number <= LIMIT_MAX:
            raise Refused(BAD_BODY, f"{key}: expected a number, -1 for none")
        known = [one.value for one in QuotaPolicy]
        if quota.get("policy") not in known:
            raise Refused(BAD_BODY, f"the attribute policy has to be one of {', '.join(known)}")
        return {limit: max(number, 0), policy: quota["policy"]}


def _told_or_nothing(value: object) -> Response:
    """Return the value as JSON; an empty answer if not set, as in Apache."""
    return Response(status_code=200) if value is None else told(value)


def _ttl(given: object) -> int:
    if type(given) is not int or not 0 <= given <= LIMIT_MAX:
        raise Refused(BAD_TTL, "Invalid value for message TTL, message TTL must >= 0")
    return given


def _quota_settings(request: Request) -> tuple[str, str]:
    """Return the settings for limit and policy of the quota kind in the query. Raises Refused."""
    kind = query.choice(request, "backlogQuotaType", tuple(QUOTA_KINDS))
    return QUOTA_KINDS[kind]


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


def _threshold_shown(settings: Settings) -> int | None:
    value = settings.get("compaction_threshold_bytes")
    return value if isinstance(value, int) else None


def _strategy_shown(settings: Settings) -> str:
    value = settings.get("schema_compatibility")
    return "UNDEFINED" if value is None else Strategy(value).name


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


async def _last_id(partition: Partition, index: int) -> dict[str, int]:
    span = await entries.last_entry(partition)
    entry = entries.EARLIEST if span is None else span.offset
    return {
        "ledgerId": partition.partition_id,
        "entryId": entry,
        "partitionIndex": index,
        "batchIndex": -1,
        "batchSize": 0,
    }
