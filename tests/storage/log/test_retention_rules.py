import pytest

from braidlog.storage.log.retention_rules import (
    SegmentFacts,
    asks_for_positions,
    drops_anything,
    new_log_start,
)
from braidlog.storage.log.settings import LogSettings

SECOND_US = 1_000_000
NOW_US = 1000 * SECOND_US

# Four segments of 100 records and 1000 bytes, last written 400, 300, 200 and 100 seconds ago.
SEGMENTS = [
    SegmentFacts(100 * n, 100 * (n + 1), 1000, NOW_US - (400 - 100 * n) * SECOND_US)
    for n in range(4)
]

TABLE = [
    # settings, lowest position of all subscriptions, log start
    ({}, None, 0),
    ({}, 400, 0),
    ({"retention_bytes": 4000}, None, 0),
    ({"retention_bytes": 3001}, None, 0),
    ({"retention_bytes": 3000}, None, 100),
    ({"retention_bytes": 2500}, None, 100),
    ({"retention_bytes": 0}, None, 300),
    ({"retention_ms": 400_000}, None, 0),
    ({"retention_ms": 399_999}, None, 100),
    ({"retention_ms": 150_000}, None, 300),
    ({"retention_ms": 1}, None, 300),
    ({"retention_ms": 350_000, "retention_bytes": 2000}, None, 200),
    ({"retention_bytes": 0, "keep_unacknowledged": True}, 150, 100),
    ({"retention_bytes": 0, "keep_unacknowledged": True}, 200, 200),
    ({"retention_bytes": 0, "keep_unacknowledged": True}, 0, 0),
    ({"retention_bytes": 0, "keep_unacknowledged": True}, None, 300),
    ({"retention_bytes": 3000, "keep_unacknowledged": True}, 400, 100),
    ({"delete_acknowledged": True}, None, 0),
    ({"delete_acknowledged": True}, 99, 0),
    ({"delete_acknowledged": True}, 100, 100),
    ({"delete_acknowledged": True}, 299, 200),
    ({"delete_acknowledged": True}, 5000, 300),
    ({"delete_acknowledged": True, "retention_ms": 250_000}, 100, 200),
    ({"delete_acknowledged": True, "keep_unacknowledged": True, "retention_ms": 1}, 250, 200),
]


@pytest.mark.parametrize(("settings", "acknowledged", "start"), TABLE)
def test_the_first_kept_segment(settings, acknowledged, start):
    assert new_log_start(SEGMENTS, LogSettings(**settings), NOW_US, acknowledged) == start


def test_the_last_segment_is_always_kept():
    settings = LogSettings(retention_bytes=0, retention_ms=0, delete_acknowledged=True)
    assert new_log_start(SEGMENTS[:1], settings, NOW_US * 2, 10_000) == 0


@pytest.mark.parametrize(("settings", "acknowledged", "start"), TABLE)
def test_skipped_queries_would_not_change_the_decision(settings, acknowledged, start):
    settings_kept = LogSettings(**settings)
    if not drops_anything(settings_kept):
        assert start == 0
    if not asks_for_positions(settings_kept):
        assert new_log_start(SEGMENTS, settings_kept, NOW_US, 150) == start


HOLD = {"retention_bytes": 0, "retention_hold": "export:lake"}


@pytest.mark.parametrize(
    ("settings", "held", "start"),
    [
        ({}, 0, 0),
        ({}, 150, 100),
        ({}, 200, 200),
        ({}, None, 300),
        ({"retention_hold_bytes": 4000}, 0, 0),
        ({"retention_hold_bytes": 3000}, 0, 100),
        ({"retention_hold_bytes": 3000}, 250, 200),
        ({"retention_hold_ms": 400_000}, 0, 0),
        ({"retention_hold_ms": 250_000}, 0, 200),
        ({"delete_acknowledged": True}, 0, 0),
    ],
)
def test_a_hold_keeps_unread_records_up_to_its_cap(settings, held, start):
    log_settings = LogSettings(**HOLD, **settings)
    assert new_log_start(SEGMENTS, log_settings, NOW_US, 400, held) == start
