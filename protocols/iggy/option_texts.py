"""Values of topic options that are given as text, read as in Iggy's own configuration file.

Python's client sends every option as text. Each function returns the number that the text stands
for, and raises ValueError for a text that stands for none. Rules: apache/iggy, `core/common/src`,
`FromStr` of `IggyByteSize`, `IggyExpiry` and `MaxTopicSize`. Knows no option.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

from braidlog.protocols.iggy.messages import UNBOUNDED

# A longer text is no number; Python's own limit for digits would be met far above.
TEXT_MAX: Final = 64
U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1

SIZE = re.compile(r"(\d+(?:\.\d*)?) *(?:([kmgtpe])(i?)b?|b)?", re.ASCII | re.IGNORECASE)
SIZE_UNITS = "kmgtpe"
NO_SIZE = frozenset({"0", "unlimited", "Unlimited", "none", "None"})

SPAN = re.compile(r"\s*(\d[\d\s]*)([A-Za-zµ]+)\s*", re.ASCII)
# Nanoseconds of each unit of the crate `humantime`; a month is 30.44 days, a year 365.25.
_UNITS: dict[int, tuple[str, ...]] = {
    1: ("nanos", "nsec", "ns"),
    1_000: ("usec", "us", "µs"),
    1_000_000: ("millis", "msec", "ms"),
    1_000_000_000: ("seconds", "second", "secs", "sec", "s"),
    60 * 1_000_000_000: ("minutes", "minute", "min", "mins", "m"),
    3_600 * 1_000_000_000: ("hours", "hour", "hr", "hrs", "h"),
    86_400 * 1_000_000_000: ("days", "day", "d"),
    7 * 86_400 * 1_000_000_000: ("weeks", "week", "wk", "wks", "w"),
    2_630_016 * 1_000_000_000: ("months", "month", "M"),
    31_557_600 * 1_000_000_000: ("years", "year", "yr", "yrs", "y"),
}
SPAN_NS = {name: ns for ns, names in _UNITS.items() for name in names}
NEVER = frozenset({"unlimited", "none", "None", "Unlimited", "never_expire"})
DEFAULT = frozenset({"default", "server_default", "Default", "Server_default"})


def byte_size(text: str) -> int:
    """Bytes of `128MiB`, `1.5 GB`, `134217728`; 0 for `unlimited` and `none`."""
    if text in NO_SIZE:
        return 0
    match = SIZE.fullmatch(_short(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 128MiB")
    number, unit, binary = match.groups()
    power = SIZE_UNITS.index(unit.lower()) + 1 if unit else 0
    base = 1024 if binary else 1000
    return _at_most(int((Decimal(number) * base**power).to_integral_value(ROUND_CEILING)), U64_MAX)


def topic_size(text: str) -> int:
    """As `byte_size`; `unlimited` is all ones, `server_default` 0."""
    if text == "unlimited":
        return UNBOUNDED
    return 0 if text == "server_default" else byte_size(text)


def expiry_us(text: str) -> int:
    """Microseconds of `1h 30m`; all ones for `never_expire` and `unlimited`, 0 for `default`."""
    if text in NEVER:
        return UNBOUNDED
    if text in DEFAULT or set(_short(text)) == {"0"}:
        return 0
    pos, total_ns = 0, 0
    while pos < len(_short(text)) or not pos:
        match = SPAN.match(text, pos)
        if match is None or match[2] not in SPAN_NS:
            raise ValueError(f"{text!r} is not a length of time such as 1h 30m")
        total_ns += int("".join(match[1].split())) * SPAN_NS[match[2]]
        pos = match.end()
    _at_most(total_ns // 1_000_000_000, U32_MAX)  # Iggy's own limit, in seconds.
    return total_ns // 1_000


def u32(text: str) -> int:
    """A number of 32 bits in digits."""
    if re.fullmatch(r"\+?\d+", _short(text), re.ASCII) is None:
        raise ValueError(f"{text!r} is not a number")
    return _at_most(int(text), U32_MAX)


def flag(text: str) -> int:
    """1 for `true`, 0 for `false`."""
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return int(text == "true")


def _short(text: str) -> str:
    if len(text) > TEXT_MAX:
        raise ValueError(f"text of {len(text)} characters, at most {TEXT_MAX} are expected")
    return text


def _at_most(number: int, largest: int) -> int:
    if number > largest:
        raise ValueError(f"{number} is above {largest}")
    return number
