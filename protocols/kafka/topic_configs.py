"""Translates Kafka's configs of a topic to the broker's settings. Knows no request and no topic."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS, TopicSetting
from braidlog.protocols.kafka.errors import Code

Setting = str | int | bool  # The value of a setting, as the broker keeps it.
PPM: Final = 1_000_000
SWITCHES: Final = {"true": True, "false": False}
# The settings that have a name of Kafka, by this name.
SETTINGS: Final = {row.kafka: row for row in TOPIC_SETTINGS.values() if row.kafka}
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


def stored(row: TopicSetting, text: str) -> Setting:
    """Return a setting's value from the text of Kafka's clients. Raises AdminRefused."""
    try:
        if row.choices:
            words = {frozenset(choice.split(",")): choice for choice in row.choices}
            return words[frozenset(word.strip() for word in text.split(","))]
        if row.is_switch:
            return SWITCHES[text.lower()]
        return _ppm(text) if row.name.endswith("_ppm") else int(text)
    except KeyError:
        raise AdminRefused(Code.INVALID_CONFIG, f"{row.kafka}={text} is not served") from None
    except ValueError:
        text = f"{row.kafka}={text} is not such a number"
        raise AdminRefused(Code.INVALID_CONFIG, text) from None


def shown(row: TopicSetting, value: Setting | None) -> bytes:
    """Return a setting's value as Kafka's clients write the value."""
    if value is None:
        return b"-1"
    if row.is_switch:
        return str(value).lower().encode()
    if row.name.endswith("_ppm"):
        return str(Decimal(value) / PPM).encode()
    return str(value).encode()


def _ppm(text: str) -> int:
    """Return a ratio in millionths. Raises ValueError for other texts, and for a finer ratio."""
    try:
        ppm = Decimal(text) * PPM
    except InvalidOperation:
        raise ValueError(text) from None
    if not (ppm.is_finite() and 0 <= ppm <= PPM and ppm == int(ppm)):
        raise ValueError(text)
    return int(ppm)
