"""What a topic's settings make of its logs."""

import pytest

from broker.config import LogConfig
from broker.errors import InvalidRequest
from broker.partitions import log_settings
from storage.metadata.names import parse_topic


def test_settings_of_the_topic_win_over_those_of_the_broker():
    config = LogConfig(segment_bytes=1 << 20, retention_ms=1000, durability="written")
    settings = log_settings(config, {"segment_bytes": 1 << 21, "keep_unacknowledged": True})
    assert settings.segment_bytes == 1 << 21
    assert settings.retention_ms == 1000
    assert settings.durability == "written"
    assert settings.keep_unacknowledged is True
    assert settings.delete_acknowledged is False


def test_minus_one_takes_a_limit_away_and_others_settings_are_passed_over():
    config = LogConfig(retention_ms=1000, retention_bytes=5)
    settings = log_settings(config, {"retention_ms": -1, "retention_bytes": -1, "schema": "x"})
    assert settings.retention_ms is None
    assert settings.retention_bytes is None


@pytest.mark.parametrize(
    "setting",
    [
        {"segment_bytes": 1},
        {"segment_bytes": "many"},
        {"segment_ms": -1},
        {"retention_ms": 0},
        {"durability": "hopeful"},
        {"keep_unacknowledged": "yes"},
    ],
)
async def test_a_value_that_cannot_be_is_refused_and_no_topic_is_made(broker, setting):
    with pytest.raises(InvalidRequest, match=next(iter(setting))):
        broker.topics.create(parse_topic("t"), 2, settings=setting)
    assert broker.topics.find(parse_topic("t")) is None
    assert broker.topics.create(parse_topic("t"), 1).partitions


async def test_altered_settings_reach_the_logs_and_refused_ones_do_not(broker):
    topic = broker.topics.create(parse_topic("t"), 2)
    broker.topics.alter_settings(topic.name, {"durability": "written"})
    assert {partition.log.settings.durability for partition in topic.partitions} == {"written"}
    with pytest.raises(InvalidRequest):
        broker.topics.alter_settings(topic.name, {"durability": "hopeful"})
    assert topic.meta.settings == {"durability": "written"}
