"""Log lines: JSON unless standard error is a terminal, a line per event, tracebacks inside the
line.
"""

import json
import subprocess
import sys

import pytest
import structlog

from braidlog.broker.config.logging import CAUSES_MAX, PAUSE_S, ThrottledLog
from braidlog.broker.config.tracebacks import INNER_FRAMES_MAX, OUTER_FRAMES_MAX
from tests.fake_clock import FakeClock

PROGRAM = """
import structlog
from braidlog.broker.config import logging as logs
logs.configure(level="{level}", log_format="{log_format}")
log = structlog.get_logger().bind(protocol="kafka", connection=7)
log.debug("seen")
log.info("connection_ended", reason="idle", raw=b"bytes")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("connection_failed")
import logging
logging.getLogger("library").warning("of a library")
"""
DEEP = """
import logging, structlog
from braidlog.broker.config import logging as logs
logs.configure(level="info", log_format="{log_format}")
def deep(frames, secret="of-" + "a-client"):
    if frames:
        deep(frames - 1)
    raise ExceptionGroup("many", [ValueError("x" * 1_000_000)] * 1000)
try:
    deep(900)
except ExceptionGroup:
    structlog.get_logger().exception("connection_failed")
    logging.getLogger("library").exception("of a library")
"""


def run(level="info", log_format="auto", program=PROGRAM):
    program = program.replace("{level}", level).replace("{log_format}", log_format)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout == b""
    return ended.stderr.decode()


def test_lines_are_json_if_standard_error_is_no_terminal():
    first, second, library = run().splitlines()
    event = json.loads(first)
    assert event["event"] == "connection_ended"
    assert event["level"] == "info"
    assert event["timestamp"].endswith("Z")
    assert (event["protocol"], event["connection"], event["reason"]) == ("kafka", 7, "idle")
    failure = json.loads(second)
    assert "ZeroDivisionError: division by zero" in failure["exception"]
    assert "of a library" in library


def test_debug_lines_appear_only_if_configured():
    assert '"seen"' not in run()
    assert '"seen"' in run(level="debug")


def test_text_lines_can_be_configured():
    output = run(log_format="text")
    assert "connection_ended" in output
    assert not output.startswith("{")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_tracebacks_are_bounded_and_show_no_values(log_format):
    output = run(log_format=log_format, program=DEEP)
    assert output.count("connection_failed") == output.count("of a library") == 1
    assert output.count("  File ") == 2 * (OUTER_FRAMES_MAX + INNER_FRAMES_MAX)
    assert output.count("are left out") == 4 and len(output) < 20_000
    assert "of-a-client" not in output
    if log_format == "json":
        assert "connection_failed" in json.loads(output.splitlines()[0])["event"]


def test_a_throttled_event_is_logged_at_once_then_seldom_with_its_count():
    clock = FakeClock()
    log = ThrottledLog(clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(1000):
            log.warning("refused", cause="a", reason="x")
        log.warning("refused", cause="b", reason="y")
        clock.now += PAUSE_S
        log.error("refused", cause="a", reason="z")
    assert [(line["reason"], line["count"]) for line in lines] == [("x", 1), ("y", 1), ("z", 1000)]
    assert lines[-1]["log_level"] == "error"


def test_remembered_causes_have_a_limit():
    log = ThrottledLog(FakeClock())
    with structlog.testing.capture_logs() as lines:
        for number in range(CAUSES_MAX + 1):
            log.warning("refused", cause=str(number))
        log.warning("refused", cause="0")
    assert len(lines) == CAUSES_MAX + 2
