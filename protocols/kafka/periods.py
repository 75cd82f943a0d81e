"""Reads periods of time as Java's `Duration.parse` does: `P1DT2H`, `PT0.5S`. Knows no setting."""

from __future__ import annotations

import re
from typing import Final

PERIOD: Final = re.compile(
    r"([+-]?)P(?:([+-]?[0-9]+)D)?"
    r"(T(?:([+-]?[0-9]+)H)?(?:([+-]?[0-9]+)M)?(?:([+-]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
US_PER_S: Final = 1_000_000
LONGEST_S: Final = 2**63 - 1  # of Java's Duration
SECONDS_OF: Final = (86_400, 3_600, 60, 1)  # of a day, an hour, a minute, a second


def period_us(text: str) -> int | None:
    """Return the microseconds of a period; None if the text is no period, or a negative period."""
    match = PERIOD.fullmatch(text)
    if match is None:
        return None
    sign, days, time, hours, minutes, seconds, fraction = match.groups()
    parts = (days, hours, minutes, seconds)
    if all(part is None for part in parts) or (time is not None and len(time) == 1):
        return None
    whole = sum(int(part or 0) * factor for part, factor in zip(parts, SECONDS_OF, strict=True))
    rest = int((fraction or "").ljust(9, "0")) // 1000
    if seconds is not None and seconds.startswith("-"):
        rest = -rest
    total = (whole * US_PER_S + rest) * (-1 if sign == "-" else 1)
    return total if 0 <= total <= LONGEST_S * US_PER_S else None
