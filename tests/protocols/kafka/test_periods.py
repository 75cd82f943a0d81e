"""Periods of time as Java's `Duration.parse` reads them. Each case was tried with Java 17."""

import pytest

from braidlog.protocols.kafka.periods import period_us

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H", HOUR),
        ("P1D", 24 * HOUR),
        ("pt1h2m3.5s", HOUR + 123_500_000),
        ("PT0S", 0),
        ("PT.5S", None),
        ("PT0,25S", 250_000),
        ("PT1.S", 1_000_000),
        ("P1DT-1H", 23 * HOUR),
        ("-PT-1H", HOUR),
        ("+PT+1M", 60_000_000),
        ("PT-0.5S", None),
        ("PT2H-1S", 2 * HOUR - 1_000_000),
        ("-P1D", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("P1Y", None),
        ("PT1D", None),
        ("P1H", None),
        ("PT1S ", None),
        ("PT1.1234567890S", None),
        ("P106751991167300D", 106751991167300 * 24 * HOUR),
        ("P106751991167301D", None),
        ("PT٣S", None),
        ("", None),
    ],
)
def test_a_period_is_read_as_by_java(text: str, expected: int | None) -> None:
    assert period_us(text) == expected
