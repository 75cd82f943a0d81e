"""Rules for the rows of a topic's settings, and the forms of their values."""

import pytest

from braidlog.broker.config.settings import LogConfig
from braidlog.broker.topics.settings import in_force, log_settings
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS, QuotaPolicy
from braidlog.broker.topics.topic_setting import NO_LIMIT, Count, Limit, Name, Switch, TopicSetting
from braidlog.storage.log.settings import LogSettings


def test_the_defaults_of_the_rows_are_those_of_logs():
    assert log_settings(LogConfig(), {}) == LogSettings()


@pytest.mark.parametrize("protocol", ["kafka", "iggy"])
def test_a_name_of_kafka_or_iggy_stands_for_one_setting(protocol):
    names = [name for row in TOPIC_SETTINGS.values() if (name := getattr(row, protocol))]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("row", TOPIC_SETTINGS.values(), ids=TOPIC_SETTINGS)
def test_every_choice_switch_and_limit_is_accepted_as_text(row):
    texts = row.choices or (("true", "false") if row.is_switch else ())
    texts += ("none",) if row.is_limit else ()
    for text in texts:
        in_force(LogConfig(), {row.name: row.parse(text)})


@pytest.mark.parametrize(
    ("name", "hint", "text", "stored"),
    [
        ("new_bytes", Count, "2KiB", 2048),
        ("new_ms", Limit, "2s", 2000),
        ("new_ms", Limit, "none", NO_LIMIT),
        ("new_switch", Switch, "TRUE", True),
        ("new_choice", QuotaPolicy, "producer_exception", "producer_exception"),
        ("new_group", Name, "none", None),
    ],
)
def test_a_new_row_has_the_form_of_its_annotation(name, hint, text, stored):
    assert TopicSetting(name, hint, None, "").parse(text) == stored


@pytest.mark.parametrize("name", [n for n, row in TOPIC_SETTINGS.items() if row.zero_is_none])
def test_zero_means_no_limit_if_the_row_says_so(name):
    assert in_force(LogConfig(), {name: 0}).get(name) is None
