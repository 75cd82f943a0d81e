"""The text of messages on a terminal, and the templates of users."""

import base64

import pytest

from braidlog.broker.cli.dump import CELL_MAX
from braidlog.broker.cli.failures import EXIT_USAGE, AdminError
from braidlog.broker.cli.message_text import Template, cell, table_line, time_text

MESSAGE = {
    "partition": 1,
    "offset": 7,
    "key": base64.b64encode(b"\xff").decode(),
    "key_encoding": "base64",
    "value": "v\x1b",
    "publish_us": 5,
    "event_us": 6,
    "headers": [{"name": "a", "value": "b"}, {"name": "a", "value": "Yw==", "encoding": "base64"}],
}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "-"),
        (b"", ""),
        ("käse".encode(), "käse"),
        (b"a\x1b[2J\n", "a\\x1b[2J\\n"),
        (b"\xff", "b'\\xff'"),
        (b"x" * CELL_MAX, "x" * CELL_MAX),
        (b"x" * (CELL_MAX + 1), "x" * CELL_MAX + f"... ({CELL_MAX + 1} bytes)"),
    ],
)
def test_bytes_are_escaped_and_cut(data, text):
    assert cell(data, CELL_MAX) == text


@pytest.mark.parametrize("time_us", [1 << 62, -(1 << 62)])
def test_a_time_outside_the_calendar_is_a_number(time_us):
    assert time_text(time_us) == str(time_us)


def test_a_time_is_in_utc():
    assert time_text(1_764_000_000_123_456) == "2025-11-24T16:00:00.123456"


def test_a_template_gives_the_bytes_of_each_part():
    template = Template("%t %p %o %k %v %h %T %E %%\\n\\t\\x00\\\\ü")
    expected = b"orders 1 7 \xff v\x1b a=b,a=c 5 6 %\n\t\0\\" + "ü".encode()
    assert template.bytes_of("orders", MESSAGE) == expected


def test_absent_parts_are_empty():
    assert Template("[%k%v%h%E]").bytes_of("t", {"partition": 0, "value": None}) == b"[]"


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "a\\", "\\x0"])
def test_an_unknown_part_is_a_usage_error(text):
    with pytest.raises(AdminError, match="--format") as caught:
        Template(text)
    assert caught.value.exit_code == EXIT_USAGE


def test_a_line_for_people_has_no_control_characters():
    line = table_line(MESSAGE, headers_only=False)
    assert line.isprintable()
    assert line.split() == ["1", "7", "1970-01-01T00:00:00.000005", "b'\\xff'", "v\\x1b"]
    assert table_line(MESSAGE, headers_only=True).endswith("a=b,a=c")
