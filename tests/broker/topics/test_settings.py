"""Effects of a topic's settings on its logs, and their forms for users."""

import dataclasses

import pytest

from braidlog.broker.config.settings import LogConfig
from braidlog.broker.errors import InvalidRequest
from braidlog.broker.topics.settings import (
    in_force,
    log_settings,
    rated_subscriptions,
    read_settings,
)
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import NO_LIMIT


def test_settings_of_the_topic_win_over_those_of_the_broker():
    config = LogConfig(segment_bytes=1 << 20, retention_ms=1000, durability="written")
    settings = log_settings(config, {"segment_bytes": 1 << 21, "keep_unacknowledged": True})
    assert settings.segment_bytes == 1 << 21
    assert settings.retention_ms == 1000
    assert settings.durability == "written"
    assert settings.keep_unacknowledged is True
    assert settings.delete_acknowledged is False


def test_minus_1_removes_a_limit_and_foreign_settings_are_ignored():
    config = LogConfig(retention_ms=1000, retention_bytes=5)
    settings = log_settings(config, {"retention_ms": -1, "retention_bytes": -1, "schema": "x"})
    assert settings.retention_ms is None
    assert settings.retention_bytes is None


def test_sizes_and_times_may_have_units_and_none_is_no_limit():
    texts = {"retention_bytes": "1GiB", "segment_ms": "1h", "durability": "written"}
    assert read_settings(texts) == {
        "retention_bytes": 1 << 30,
        "segment_ms": 3_600_000,
        "durability": "written",
    }
    assert read_settings({"retention_ms": "none"}) == {"retention_ms": NO_LIMIT}
    assert read_settings({"retention_ms": None, "segment_bytes": 5}) == {
        "retention_ms": None,
        "segment_bytes": 5,
    }


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"retention_bites": 1}, "retention_bites"),
        ({"retention_bytes": "much"}, "retention_bytes: 'much' is not a size"),
        ({"retention_ms": "7 fortnights"}, "retention_ms: '7 fortnights' is not a length of time"),
        ({"retention_ms": " "}, "retention_ms: expected a value"),
        ({"deduplication": "maybe"}, "deduplication: 'maybe' is neither true nor false"),
    ],
)
def test_an_invalid_text_is_refused_with_the_settings_name(texts, reason):
    with pytest.raises(InvalidRequest, match=reason):
        read_settings(texts)


def test_a_setting_of_a_single_subscription_is_read_as_that_of_all():
    name = "subscription_dispatch_rate_bytes:a:b"
    assert read_settings({name: "2MiB"}) == {name: 2 << 20}
    assert rated_subscriptions([name, "deduplication", "topic_property:x"]) == ["a:b"]
    for unknown in ("subscription_dispatch_rate_bytes:", "dispatch_rate_bytes:a", "x:a"):
        with pytest.raises(InvalidRequest, match=unknown):
            read_settings({unknown: "5"})
    with pytest.raises(InvalidRequest, match="subscription_dispatch_rate_bytes"):
        log_settings(LogConfig(), {name: -5})


def test_booleans_are_accepted_in_json_and_python_form():
    texts = {"keep_unacknowledged": "true", "delete_acknowledged": "False"}
    assert read_settings(texts) == {"keep_unacknowledged": True, "delete_acknowledged": False}


def test_none_resets_a_setting_without_limit():
    values = read_settings({"retention_hold": "none"})
    assert values == {"retention_hold": None}
    assert in_force(LogConfig(), values)["retention_hold"] is None


def test_every_topic_setting_is_accepted():
    values = {"durability": "written", "keep_unacknowledged": True, "delete_acknowledged": True}
    values |= {"schema_compatibility": "forward", "deduplication": True}
    policies = ("backlog_bytes_policy", "backlog_age_policy")
    values |= dict.fromkeys(policies, "producer_exception")
    values |= {"cleanup_policy": "compact,delete", "min_dirty_ppm": 5}
    values |= {"unreadable_records": "skip", "uncarried_records": "mark"}
    units = {"bytes": "2MiB", "ms": "2d", "s": "2d", "hold": "2d"}
    for name, row in TOPIC_SETTINGS.items():
        usual = True if row.is_switch else row.choices[0] if row.choices else "5"
        if name not in values and (usual != "5" or name.rpartition("_")[2] not in units):
            values[name] = usual
    texts = {name: values.get(name, units.get(name.rpartition("_")[2])) for name in TOPIC_SETTINGS}
    stored = read_settings(texts)
    settings = log_settings(LogConfig(), stored)
    backlog = {"message_ttl_s", "backlog_bytes", "backlog_age_s", *policies}
    of_logs = stored.keys() & {field.name for field in dataclasses.fields(settings)} - backlog
    assert {name: getattr(settings, name) for name in of_logs} == {n: stored[n] for n in of_logs}


def test_none_is_refused_for_required_limits():
    with pytest.raises(InvalidRequest, match="segment_bytes"):
        read_settings({"segment_bytes": "none"})


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**30, f"{10**30}"])
def test_a_number_that_cannot_be_stored_is_refused_by_its_name(value):
    with pytest.raises(InvalidRequest, match="topic setting retention_ms: expected a number"):
        read_settings({"retention_ms": value})


def test_an_unknown_setting_is_answered_with_near_names():
    with pytest.raises(InvalidRequest, match=r"'retention', did you mean (.* or )?retention_ms\b"):
        read_settings({"retention": "7d"})
    with pytest.raises(InvalidRequest, match=r"'colour'; there are: auto_"):
        read_settings({"colour": 1})
