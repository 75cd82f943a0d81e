"""Connections of all listeners count against a common limit, and the log has few
lines about this.
"""

import resource

import structlog

from braidlog.broker.config.logging import ThrottledLog
from braidlog.broker.limits import CONNECTIONS_MAX
from braidlog.broker.metrics import Metrics
from braidlog.broker.server.admission import Admission, connections_max
from braidlog.storage.log.descriptors import idle_handles_max


def test_connections_have_a_limit_and_a_leave_frees_a_place():
    metrics = Metrics()
    admission = Admission(metrics, ThrottledLog(), limit=lambda: 3)
    with structlog.testing.capture_logs() as lines:
        assert [admission.admit("kafka", "kafka") for _ in range(2)] == [True, True]
        assert [admission.admit("http", "web") for _ in range(5)] == [True] + 4 * [False]
        admission.leave("kafka")
        assert admission.admit("http", "web")
    (line,) = lines
    assert (line["event"], line["listener"]) == ("connection_refused", "web")
    assert metrics.number("braidlog_open_connections", "http").value == 2
    assert metrics.number("braidlog_open_connections", "kafka").value == 1
    assert metrics.number("braidlog_connections", "kafka").value == 2


def test_connections_leave_files_for_the_log():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for files in (64, 256, 1024):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
            assert 0 < connections_max() <= CONNECTIONS_MAX
            assert connections_max() + idle_handles_max() <= files // 4 * 3
            assert idle_handles_max() == files // 4
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_ten_thousand_connections_leave_room_for_the_files_of_a_thousand_partitions(monkeypatch):
    for files, handles in ((2048, 512), (12_000, 1500), (16_384, 2048), (1 << 20, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert idle_handles_max() == handles
        if files >= 12_000:
            assert connections_max() == CONNECTIONS_MAX
