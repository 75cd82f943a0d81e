"""The settings of a broker by Kafka's names, for DescribeConfigs. Knows no request.

All are read-only: they are in the broker's configuration file. Settings of Kafka without a meaning
here are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.protocols.kafka.assignors import ASSIGNORS
from braidlog.protocols.kafka.classic_group import GROUP_MEMBERS_MAX
from braidlog.protocols.kafka.classic_groups import SESSION_MS_MAX, SESSION_MS_MIN
from braidlog.protocols.kafka.group_configs import GROUP_SETTINGS, INT_MAX
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.share_group import ASSIGNOR as SHARE_ASSIGNOR
from braidlog.protocols.kafka.topic_configs import (
    BOOLEAN,
    BROKER_NAMES,
    FROM_DEFAULT,
    FROM_FILE,
    INT,
    LIST,
    LONG,
    STRING,
    Origins,
    config_type,
)
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from braidlog.protocols.kafka_settings import SETTINGS

if TYPE_CHECKING:
    from braidlog.protocols.kafka.context import KafkaContext

# Defaults for topics that the listener's own options decide.
OF_LISTENER: Final = frozenset(("max.message.bytes",))
OF_FILE: Final = frozenset(("node.id", "broker.id"))
MS_PER_S: Final = 1000


def broker_entries(context: KafkaContext) -> list[DescribeConfigsResourceResult]:
    """Describe the settings of this broker and listener."""
    entries = _of_topics(context) + _of_listener(context) + _of_groups()
    for entry in entries:
        entry.read_only = True
        entry.is_default = entry.config_source == FROM_DEFAULT
        entry.synonyms = [
            DescribeConfigsSynonym(name=entry.name, value=entry.value, source=entry.config_source)
        ]
    return sorted(entries, key=lambda entry: entry.name or b"")


def _of_topics(context: KafkaContext) -> list[DescribeConfigsResourceResult]:
    """Describe the settings that topics have without their own."""
    origins = Origins({}, {}, {}, msgspec.structs.asdict(context.broker.config.log), {})
    entries = []
    for name, row in SETTINGS.items():
        if name in BROKER_NAMES and name not in OF_LISTENER:
            place = origins.places(row)[0]
            entry = _entry(BROKER_NAMES[name], place.value, config_type(row), place.source)
            entry.documentation = row.effect.encode()
            entries.append(entry)
    return entries


def _of_listener(context: KafkaContext) -> list[DescribeConfigsResourceResult]:
    """Describe the settings of the broker and of its listener alone."""
    config, options, usual = context.broker.config, context.options, KafkaOptions()
    of_options = (
        ("auto.create.topics.enable", "auto_create", BOOLEAN, 1),
        ("message.max.bytes", "batch_bytes_max", INT, 1),
        ("socket.request.max.bytes", "frame_bytes_max", INT, 1),
        ("fetch.max.bytes", "fetch_bytes_max", INT, 1),
        ("offset.metadata.max.bytes", "offset_metadata_chars_max", INT, 1),
        ("group.initial.rebalance.delay.ms", "group_initial_delay_ms", INT, 1),
        ("group.consumer.migration.policy", "group_migration", STRING, 1),
        ("connections.max.idle.ms", "idle_timeout_s", LONG, MS_PER_S),
    )
    entries = []
    for name, field, kind, factor in of_options:
        value = getattr(options, field)
        source = FROM_DEFAULT if value == getattr(usual, field) else FROM_FILE
        text = str(value).lower() if kind in (BOOLEAN, STRING) else str(int(value * factor))
        entries.append(_entry(name, text.encode(), kind, source))
    fixed = (
        ("node.id", context.broker.placement.node_id, INT),
        ("broker.id", context.broker.placement.node_id, INT),
        ("num.partitions", context.broker.topics.defaults.num_partitions, INT),
        ("default.replication.factor", 1, INT),
        ("delete.topic.enable", True, BOOLEAN),
        ("log.retention.check.interval.ms", config.log.retention_check_ms, LONG),
        ("log.cleaner.backoff.ms", config.log.compaction_check_ms, LONG),
        ("group.min.session.timeout.ms", SESSION_MS_MIN, INT),
        ("group.max.session.timeout.ms", SESSION_MS_MAX, INT),
        ("group.max.size", GROUP_MEMBERS_MAX, INT),
        ("group.consumer.max.size", GROUP_MEMBERS_MAX, INT),
        ("group.consumer.assignors", b",".join(ASSIGNORS).decode(), LIST),
        ("group.share.assignors", SHARE_ASSIGNOR.decode(), LIST),
        ("group.share.max.size", GROUP_MEMBERS_MAX, INT),
        ("group.coordinator.rebalance.protocols", "classic,consumer", LIST),
    )
    return entries + [
        _entry(
            name, str(value).lower().encode(), kind, FROM_FILE if name in OF_FILE else FROM_DEFAULT
        )
        for name, value, kind in fixed
    ]


def _of_groups() -> list[DescribeConfigsResourceResult]:
    """Describe the settings that groups have without their own, and the bounds of these."""
    entries = []
    for row in GROUP_SETTINGS.values():
        if not row.broker_name:
            continue
        values = {row.broker_name: row.default}
        if row.greatest < INT_MAX:
            values[row.bound_name("max")] = str(row.greatest)
            if row.has_least:
                values[row.bound_name("min")] = str(row.least)
        entries += [
            _entry(name, value.encode(), INT, FROM_DEFAULT) for name, value in values.items()
        ]
    return entries


def _entry(name: str, value: bytes | None, kind: int, source: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name.encode(),
        value=value,
        config_type=kind,
        config_source=source,
        documentation=None,
    )
