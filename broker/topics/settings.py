"""Settings of a topic's logs: as users write them, as they are stored, and their effect.

A topic's own setting overrides the broker's configuration, name by name. Knows no topic and no
file.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import msgspec

from braidlog.broker.config.settings import LogConfig, plain_value
from braidlog.broker.config.wording import explain
from braidlog.broker.errors import InvalidRequest
from braidlog.storage.log.settings import (
    CleanupPolicy,
    Durability,
    LogSettings,
    UncarriedRecords,
    UnreadableRecords,
)

if TYPE_CHECKING:
    from braidlog.storage.metadata.catalogue_records import Setting

NO_LIMIT = -1  # Kafka's and Iggy's clients write "unlimited" as this number.
LIMITS = frozenset(
    (
        "retention_bytes",
        "retention_ms",
        "retention_hold_bytes",
        "retention_hold_ms",
        "message_ttl_s",
        "backlog_bytes",
        "backlog_age_s",
        "compaction_threshold_bytes",
    )
)
COMPACTION = frozenset(
    ("cleanup_policy", "min_dirty_ppm", "min_compaction_lag_ms", "delete_retention_ms")
)
SWITCHES = frozenset(("keep_unacknowledged", "delete_acknowledged", "deduplication"))
TOPIC_SETTINGS = (
    LIMITS
    | SWITCHES
    | COMPACTION
    | {"segment_bytes", "segment_ms", "durability", "retention_hold", "schema_compatibility"}
    | {"backlog_bytes_policy", "backlog_age_policy"}
    | {"unreadable_records", "uncarried_records"}
)


BacklogPolicy = typing.Literal[
    "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
]


INT64_MAX = 2**63 - 1  # The catalogue stores no larger numbers.


class _Merged(LogConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The broker's settings and the settings of topics alone (see LogSettings)."""

    keep_unacknowledged: bool = False
    delete_acknowledged: bool = False
    retention_hold: str | None = None
    retention_hold_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    retention_hold_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    # See broker/topics/schema_rules.py: which reader must be able to read which writer's data.
    schema_compatibility: typing.Literal[
        "full",
        "backward",
        "forward",
        "full_transitive",
        "backward_transitive",
        "forward_transitive",
        "always_compatible",
        "always_incompatible",
    ] = "full"
    # See broker/positions/backlog.py; 0 means no limit.
    message_ttl_s: Annotated[int, msgspec.Meta(ge=0)] | None = None
    backlog_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    backlog_bytes_policy: BacklogPolicy = "producer_request_hold"
    backlog_age_s: Annotated[int, msgspec.Meta(ge=0)] | None = None
    backlog_age_policy: BacklogPolicy = "producer_request_hold"
    cleanup_policy: typing.Literal["delete", "compact", "compact,delete"] = "delete"
    min_dirty_ppm: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 500_000
    min_compaction_lag_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    delete_retention_ms: Annotated[int, msgspec.Meta(ge=0)] = 24 * 3_600_000
    compaction_threshold_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    deduplication: bool = False  # Do not store a repeated message of a Pulsar producer again.


def read_settings(given: Mapping[str, Setting | None]) -> dict[str, Setting | None]:
    """Turn settings as users write them into the stored form; None unsets a setting.

    Sizes and times may have units (`1GiB`, `7d`); `none` means no limit, or no group that holds.
    Raises InvalidRequest for an unknown name, and for text that is no value; `log_settings` checks
    the rest.
    """
    if unknown := sorted(given.keys() - TOPIC_SETTINGS):
        known = ", ".join(sorted(TOPIC_SETTINGS))
        raise InvalidRequest(f"no topic has a setting {unknown[0]!r}; there are: {known}")
    kept = {name: _kept(name, value) for name, value in given.items()}
    for name, value in kept.items():
        if isinstance(value, int) and abs(value) > INT64_MAX:
            raise InvalidRequest(f"topic setting {name}: expected a number of at most {INT64_MAX}")
    return kept


def _kept(name: str, value: Setting | None) -> Setting | None:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise InvalidRequest(f"topic setting {name}: expected a value")
    if name in SWITCHES:
        return _switch(name, value)
    hint = typing.get_type_hints(_Merged, include_extras=True)[name]
    try:
        plain = plain_value(name, value, hint)
    except ValueError as error:
        raise InvalidRequest(f"topic setting {name}: {error}") from None
    if plain is None:
        return NO_LIMIT if name in LIMITS else None
    assert isinstance(plain, str | int)
    return plain


def _switch(name: str, text: str) -> bool:
    """Parse a switch in any case, as in the broker's own settings. Raises InvalidRequest."""
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        reason = f"{text!r} is neither true nor false"
        raise InvalidRequest(f"topic setting {name}: {reason}") from None


def in_force(
    config: LogConfig, settings: Mapping[str, Setting | None]
) -> dict[str, Setting | None]:
    """Return the settings in force, by name, for the logs of such a topic. Raises
    InvalidRequest.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    return asdict(log_settings(config, given))


def log_settings(config: LogConfig, settings: Mapping[str, Setting]) -> LogSettings:
    """Return the log settings of a topic with these settings; settings not for logs are ignored.

    Raises InvalidRequest for an invalid value.
    """
    merged = msgspec.structs.asdict(config)
    for name, value in settings.items():
        if name in TOPIC_SETTINGS:
            merged[name] = None if value == NO_LIMIT and name in LIMITS else value
    try:
        found = msgspec.convert(merged, _Merged)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"topic setting {explain(error, _Merged)}") from None
    return LogSettings(
        segment_bytes=found.segment_bytes,
        segment_ms=found.segment_ms,
        index_interval_bytes=found.index_interval_bytes,
        durability=Durability(found.durability),
        retention_bytes=found.retention_bytes,
        retention_ms=found.retention_ms,
        keep_unacknowledged=found.keep_unacknowledged,
        delete_acknowledged=found.delete_acknowledged,
        retention_hold=found.retention_hold,
        retention_hold_bytes=found.retention_hold_bytes,
        retention_hold_ms=found.retention_hold_ms,
        cleanup_policy=CleanupPolicy(found.cleanup_policy),
        min_dirty_ppm=found.min_dirty_ppm,
        min_compaction_lag_ms=found.min_compaction_lag_ms,
        delete_retention_ms=found.delete_retention_ms,
        compaction_threshold_bytes=found.compaction_threshold_bytes or None,
        unreadable_records=UnreadableRecords(found.unreadable_records),
        uncarried_records=UncarriedRecords(found.uncarried_records),
    )
