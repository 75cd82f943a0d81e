"""Translates Kafka's names and texts of a topic's settings, for the adapters that speak of topics
as Kafka's tools do. Knows no request and no topic.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import TopicSetting

Setting = str | int | bool  # The value of a setting, as the broker keeps it.
PPM: Final = 1_000_000
SWITCHES: Final = {"true": True, "false": False}
# The settings that have a name of Kafka, by this name.
SETTINGS: Final = {row.kafka: row for row in TOPIC_SETTINGS.values() if row.kafka}


def parse_setting(row: TopicSetting, text: str) -> Setting:
    """Return a setting's value from the text of Kafka's clients. Raises ValueError with the
    fault.
    """
    try:
        if row.choices:
            words = {frozenset(choice.split(",")): choice for choice in row.choices}
            return words[frozenset(word.strip() for word in text.split(","))]
        if row.is_switch:
            return SWITCHES[text.lower()]
        if row.is_name:
            return text.strip()
        return _ppm(text) if row.name.endswith("_ppm") else int(text)
    except KeyError:
        raise ValueError(f"{row.kafka}={text} is not served") from None
    except ValueError:
        raise ValueError(f"{row.kafka}={text} is not such a number") from None


def shown_setting(row: TopicSetting, value: Setting) -> str:
    """Return a setting's value as Kafka's clients write the value."""
    if row.is_switch:
        return str(value).lower()
    if row.name.endswith("_ppm"):
        return str(Decimal(value) / PPM)
    return str(value)


def _ppm(text: str) -> int:
    """Return a ratio in millionths. Raises ValueError for other texts, and for a finer ratio."""
    try:
        ppm = Decimal(text) * PPM
    except ArithmeticError:  # No number, or a number beyond the range of decimals.
        raise ValueError(text) from None
    if not (ppm.is_finite() and 0 <= ppm <= PPM and ppm == int(ppm)):
        raise ValueError(text)
    return int(ppm)
