"""Translates Kafka's configs of a topic to the broker's settings. Knows no request and no topic."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from braidlog.broker.topics.settings_table import TopicSetting
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.describe_configs import DescribeConfigsResourceResult
from braidlog.protocols.kafka_settings import SETTINGS, Setting, parse_setting, shown_setting

# What tools set by habit and the broker does not need: accepted, without effect.
WITHOUT_EFFECT: Final = frozenset(
    (
        "compression.type",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "message.downconversion.enable",
        "message.timestamp.type",
        "min.insync.replicas",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    )
)

FROM_TOPIC, FROM_DEFAULT = 1, 5  # where a setting comes from


class AdminRefused(Exception):
    """The part of a request for one topic or resource is answered with this."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_config(name: bytes | None, value: bytes | None) -> dict[str, Setting]:
    """Translate a Kafka config; empty for a config without effect. Raises AdminRefused."""
    key = (name or b"").decode(errors="replace")
    text = (value or b"").decode(errors="replace")
    if (row := SETTINGS.get(key)) is not None:
        return {row.name: stored(row, text)}
    if key not in WITHOUT_EFFECT:
        raise AdminRefused(Code.INVALID_CONFIG, f"no topic has a setting {key}")
    return {}


def config_entries(
    settings: Mapping[str, Setting | None], own: Container[str]
) -> list[DescribeConfigsResourceResult]:
    """Describe the settings in force, of which a topic has those in `own` itself."""
    return [
        DescribeConfigsResourceResult(
            name=name.encode(),
            value=shown(row, settings[row.name]),
            is_default=row.name not in own,
            config_source=FROM_TOPIC if row.name in own else FROM_DEFAULT,
            documentation=None,
        )
        for name, row in SETTINGS.items()
    ]


def stored(row: TopicSetting, text: str) -> Setting:
    """Return a setting's value from the text of Kafka's clients. Raises AdminRefused."""
    try:
        return parse_setting(row, text)
    except ValueError as error:
        raise AdminRefused(Code.INVALID_CONFIG, str(error)) from None


def shown(row: TopicSetting, value: Setting | None) -> bytes:
    """Return a setting's value as Kafka's clients write the value."""
    return b"-1" if value is None else shown_setting(row, value).encode()
