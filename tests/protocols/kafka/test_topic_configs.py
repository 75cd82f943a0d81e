"""Kafka's texts for topic settings; a row with a Kafka name needs no further code."""

import enum

import pytest

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import Count, Switch, TopicSetting
from braidlog.protocols.kafka.errors import CodeRefused
from braidlog.protocols.kafka.topic_configs import shown, stored
from braidlog.protocols.kafka_settings import SETTINGS


class Time(enum.Enum):
    """Kafka's types of times."""

    CREATE = "CreateTime"
    APPEND = "LogAppendTime"


def row(name, hint):
    return TopicSetting(name, hint, None, "", kafka=name.replace("_", "."))


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (row("max_message_bytes", Count), "1000", 1000),
        (row("message_downconversion", Switch), "true", True),
        (row("message_timestamp_type", Time), "LogAppendTime", "LogAppendTime"),
        (TOPIC_SETTINGS["min_dirty_ppm"], "0.25", 250_000),
        (TOPIC_SETTINGS["cleanup_policy"], "compact,delete", "compact,delete"),
    ],
    ids=lambda part: part.name if isinstance(part, TopicSetting) else None,
)
def test_a_row_is_read_and_shown_by_its_annotation(setting, text, value):
    assert stored(setting, text) == value
    assert shown(setting, value) == text.encode()


def test_the_words_of_a_list_have_no_order():
    assert stored(TOPIC_SETTINGS["cleanup_policy"], "delete, compact") == "compact,delete"


@pytest.mark.parametrize(
    ("setting", "text", "reason"),
    [
        (row("max_message_bytes", Count), "much", "max.message.bytes=much is not such a number"),
        (row("a_switch", Switch), "1", "a.switch=1 is not served"),
        (row("a_time", Time), "Create", "a.time=Create is not served"),
        (TOPIC_SETTINGS["min_dirty_ppm"], "1.5", "ratio=1.5 is not such a number"),
        (TOPIC_SETTINGS["min_dirty_ppm"], "9e999999", "ratio=9e999999 is not such a number"),
        (TOPIC_SETTINGS["cleanup_policy"], "compact,none", "policy=compact,none is not served"),
    ],
    ids=lambda part: part.name if isinstance(part, TopicSetting) else None,
)
def test_a_text_that_is_no_value_is_refused(setting, text, reason):
    with pytest.raises(CodeRefused, match=r"^INVALID_CONFIG$") as refused:
        stored(setting, text)
    assert reason in refused.value.reason


def test_kafkas_limit_of_a_batch_is_not_the_limit_of_pulsars_messages():
    assert SETTINGS["max.message.bytes"].name == "batch_bytes_max"
    assert TOPIC_SETTINGS["message_bytes_max"].pulsar == "maxMessageSize"


def test_every_row_with_a_name_of_kafka_is_described():
    named = {row.kafka for row in TOPIC_SETTINGS.values()} - {""}
    assert set(SETTINGS) == named
