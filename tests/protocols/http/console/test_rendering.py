"""Texts of values: numbers, times, and characters that cannot be seen."""

import pytest

from braidlog.protocols.http.console.rendering import duration, size, visible, when


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\u202eb", "a\\u202eb"), ("\x1b[2J", "\\u001b[2J"), ("ä\n\tß", "ä\n\tß"), ("\r", "\\u000d")],
)
def test_invisible_characters_become_visible(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**60, "1024.0 PiB")]
)
def test_sizes_have_units(number, shown):
    assert size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, ""), (0.25, "0.2 s"), (61, "1 min 1 s"), (90_000, "1 d 1 h")]
)
def test_durations_have_two_units(seconds, shown):
    assert duration(seconds) == shown


def test_any_number_is_a_time():
    assert when(1_764_000_000_123_456) == "2025-11-24 16:00:00.123"
    assert when(None) == ""
    assert when(2**63 - 1) == "9223372036854775807 µs"
