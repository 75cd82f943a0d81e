"""The output format of `braidlog log dump`."""

import pytest

from braidlog.broker.cli.dump import CELL_MAX, cell, offsets_text, time_text


@pytest.mark.parametrize(
    ("offset", "next_offset", "text"),
    [
        (5, None, "from offset 5 on"),
        (5, 5, "from offset 5 on"),
        (5, 6, "offset 5"),
        (5, 9, "offsets 5 to 8"),
    ],
)
def test_offsets_are_inclusive_ranges(offset, next_offset, text):
    assert offsets_text(offset, next_offset) == text


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
    assert cell(data) == text


@pytest.mark.parametrize("time_us", [1 << 62, -(1 << 62)])
def test_a_time_outside_the_calendar_is_a_number(time_us):
    assert time_text(time_us) == str(time_us)


def test_a_time_is_in_utc():
    assert time_text(1_764_000_000_123_456) == "2025-11-24T16:00:00.123456"
