"""Translates Kafka's configs of a topic to the broker's settings. Knows no request and no topic."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from braidlog.broker.topics.settings_table import TopicSetting
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.describe_configs import DescribeConfigsResourceResult
from braidlog.protocols.kafka_settings import SETTINGS, Setting, parse_setting, shown_setting

# Kafka's values of settings that have none here.
UNSET: Final = {
    "message.timestamp.before.max.ms": b"9223372036854775807",
    "message.timestamp.after.max.ms": b"9223372036854775807",
}
BOOLEAN, STRING, LONG, DOUBLE, LIST = 1, 2, 5, 6, 7  # `ConfigDef.Type` of apache/kafka
FROM_TOPIC, FROM_DEFAULT = 1, 5  # where a setting comes from


class AdminRefused(Exception):
    """The part of a request for one topic or resource is answered with this."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_config(name: bytes | None, value: bytes | None) -> dict[str, Setting]:
    """Translate a Kafka config. Raises AdminRefused."""
    key = (name or b"").decode(errors="replace")
    text = (value or b"").decode(errors="replace")
    if (row := SETTINGS.get(key)) is not None:
        return {row.name: stored(row, text)}
    raise AdminRefused(Code.INVALID_CONFIG, f"no topic has a setting {key}")


def config_entries(
    settings: Mapping[str, Setting | None], own: Mapping[str, Setting | None]
) -> list[DescribeConfigsResourceResult]:
    """Describe the settings in force; `own` are those of the topic itself, and the only place of
    settings that logs do not have.
    """
    return [
        DescribeConfigsResourceResult(
            name=name.encode(),
            value=shown(row, _value(row, settings, own)),
            config_type=_type(row),
            is_default=row.name not in own,
            config_source=FROM_TOPIC if row.name in own else FROM_DEFAULT,
            documentation=None,
        )
        for name, row in SETTINGS.items()
    ]


def _value(
    row: TopicSetting, settings: Mapping[str, Setting | None], own: Mapping[str, Setting | None]
) -> Setting | None:
    if row.name in settings:
        return settings[row.name]
    default = row.default.value if isinstance(row.default, enum.Enum) else row.default
    return own.get(row.name, default)


def _type(row: TopicSetting) -> int:
    """Return Kafka's number of the type of a setting."""
    if row.is_switch:
        return BOOLEAN
    if row.choices:
        return LIST if row.is_list else STRING
    return DOUBLE if row.name.endswith("_ppm") else LONG


def stored(row: TopicSetting, text: str) -> Setting:
    """Return a setting's value from the text of Kafka's clients. Raises AdminRefused."""
    try:
        return parse_setting(row, text)
    except ValueError as error:
        raise AdminRefused(Code.INVALID_CONFIG, str(error)) from None


def shown(row: TopicSetting, value: Setting | None) -> bytes:
    """Return a setting's value as Kafka's clients write the value."""
    return UNSET.get(row.kafka, b"-1") if value is None else shown_setting(row, value).encode()
