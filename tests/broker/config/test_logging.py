"""Log lines: JSON where nobody looks, one line an event, tracebacks inside it."""

import json
import subprocess
import sys

PROGRAM = """
import structlog
from broker.config import logging as logs
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


def run(level="info", log_format="auto"):
    program = PROGRAM.format(level=level, log_format=log_format)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout == b""
    return ended.stderr.decode()


def test_lines_are_json_where_standard_error_is_no_terminal():
    first, second, library = run().splitlines()
    event = json.loads(first)
    assert event["event"] == "connection_ended"
    assert event["level"] == "info"
    assert event["timestamp"].endswith("Z")
    assert (event["protocol"], event["connection"], event["reason"]) == ("kafka", 7, "idle")
    failure = json.loads(second)
    assert "ZeroDivisionError: division by zero" in failure["exception"]
    assert "of a library" in library


def test_debug_lines_come_only_when_asked_for():
    assert '"seen"' not in run()
    assert '"seen"' in run(level="debug")


def test_text_can_be_asked_for():
    output = run(log_format="text")
    assert "connection_ended" in output
    assert not output.startswith("{")
