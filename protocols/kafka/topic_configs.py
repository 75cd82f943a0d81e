"""Translates Kafka's configs of a topic to the broker's settings. Knows no request and no topic."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from braidlog.broker.topics.kept_settings import KAFKA_LIMITS
from braidlog.broker.topics.topic_setting import NO_LIMIT, TopicSetting
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from braidlog.protocols.kafka_settings import SETTINGS, Setting, parse_setting, shown_setting

# Kafka's values of settings that have none here.
UNSET: Final = {
    "message.timestamp.before.max.ms": b"9223372036854775807",
    "message.timestamp.after.max.ms": b"9223372036854775807",
}
# Settings for which Kafka does not take -1 as "no limit".
LIMITED: Final = frozenset(kafka for _, kafka, _ in KAFKA_LIMITS)
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # `ConfigDef.Type` of apache/kafka
# Where a setting comes from. For Kafka's clients a namespace is the default of all brokers.
FROM_TOPIC, FROM_NAMESPACE, FROM_FILE, FROM_DEFAULT = 1, 3, 4, 5
# Settings that Kafka keeps in 32 bits.
INTEGERS: Final = frozenset(
    (
        "index.interval.bytes",
        "max.message.bytes",
        "min.insync.replicas",
        "segment.bytes",
        "segment.index.bytes",
        "share.delivery.count.limit",
    )
)
# The names of settings of topics in a broker's settings.
BROKER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def read_config(name: bytes | None, value: bytes | None) -> dict[str, Setting]:
    """Translate a Kafka config. Raises CodeRefused."""
    key = (name or b"").decode(errors="replace")
    text = (value or b"").decode(errors="replace")
    if (row := SETTINGS.get(key)) is not None:
        return {row.name: stored(row, text)}
    raise CodeRefused(Code.INVALID_CONFIG, f"Unknown topic config name: {key}")


@dataclass(frozen=True, slots=True)
class Origins:
    """The settings of a topic by their origin. The first origin that has a setting decides."""

    in_force: Mapping[str, Setting | None]  # of logs
    own: Mapping[str, Setting | None]
    inherited: Mapping[str, Setting | None]  # of the namespace
    broker: Mapping[str, Setting | None]  # of logs, by the broker's configuration
    listener: Mapping[str, Setting]  # defaults that the listener's options give

    def value(self, row: TopicSetting) -> bytes:
        """Return the value in force, as Kafka's clients write the value."""
        if row.name not in self.in_force:
            return self.places(row)[0].value or b""
        value = self.in_force[row.name]
        return shown(row, self.listener.get(row.name) if value is None else value)

    def places(self, row: TopicSetting) -> list[DescribeConfigsSynonym]:
        """Return the values of a setting, with their origins, the deciding value first."""
        broker_name = BROKER_NAMES.get(row.kafka, row.kafka)
        values = [
            (row.kafka, source, settings[row.name])
            for source, settings in ((FROM_TOPIC, self.own), (FROM_NAMESPACE, self.inherited))
            if row.name in settings
        ]
        default = self.listener.get(row.name, default_of(row))
        if row.name in self.broker and self.broker[row.name] != default:
            values.append((broker_name, FROM_FILE, self.broker[row.name]))
        values.append((broker_name, FROM_DEFAULT, default))
        return [
            DescribeConfigsSynonym(name=name.encode(), value=shown(row, value), source=source)
            for name, source, value in values
        ]


def config_entries(origins: Origins) -> list[DescribeConfigsResourceResult]:
    """Describe the settings in force."""
    entries = []
    for name, row in SETTINGS.items():
        places = origins.places(row)
        entries.append(
            DescribeConfigsResourceResult(
                name=name.encode(),
                value=origins.value(row),
                config_type=config_type(row),
                is_default=places[0].source == FROM_DEFAULT,
                config_source=places[0].source,
                synonyms=places,
                documentation=row.effect.encode(),
            )
        )
    return entries


def default_of(row: TopicSetting) -> Setting | None:
    """Return the value of a setting that nobody has set."""
    return row.default.value if isinstance(row.default, enum.Enum) else row.default


def config_type(row: TopicSetting) -> int:
    """Return Kafka's number of the type of a setting."""
    if row.is_switch:
        return BOOLEAN
    if row.choices:
        return LIST if row.is_list else STRING
    if row.is_name:
        return STRING
    if row.kafka in INTEGERS:
        return INT
    return DOUBLE if row.name.endswith("_ppm") else LONG


def stored(row: TopicSetting, text: str) -> Setting:
    """Return a setting's value from the text of Kafka's clients. Raises CodeRefused."""
    try:
        value = parse_setting(row, text)
    except ValueError as error:
        raise CodeRefused(Code.INVALID_CONFIG, str(error)) from None
    if value == NO_LIMIT and row.kafka in LIMITED:
        raise CodeRefused(Code.INVALID_CONFIG, f"{row.kafka} is {value}, expected 0 or more")
    return value


def shown(row: TopicSetting, value: Setting | None) -> bytes:
    """Return a setting's value as Kafka's clients write the value."""
    unset = b"" if row.is_name else UNSET.get(row.kafka, b"-1")
    return unset if value is None else shown_setting(row, value).encode()
