"""Sizes and times as people write them."""

import pytest

from braidlog.broker.config.units import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("128MiB", 128 << 20),
        ("128 mib", 128 << 20),
        ("2G", 2 << 30),
        ("10GB", 10**10),
        ("1.5k", 1536),
        ("7b", 7),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "10 parsecs", "1MiBs", "MiB", "1e3"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [
        ("250", "ms", 0.25),
        ("250ms", "s", 0.25),
        ("25", "s", 25),
        ("10m", "ms", 600),
        ("12h", "s", 43_200),
        ("7d", "ms", 604_800),
        ("0.5s", "ms", 0.5),
    ],
)
def test_times(text, unit, seconds):
    assert parse_seconds(text, unit=unit) == seconds


@pytest.mark.parametrize("text", ["", "soon", "7 years", "-3s"])
def test_invalid_times_are_refused(text):
    with pytest.raises(ValueError, match="time"):
        parse_seconds(text, unit="s")
