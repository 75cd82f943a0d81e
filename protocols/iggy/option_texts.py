"""Values of topic options that are given as text, read as in Iggy's own configuration file.

Python's client sends every option as text. Each function returns the number that the text stands
for, and raises ValueError for a text that stands for none. Rules: apache/iggy, `core/common/src`,
`FromStr` of `IggyByteSize`, `IggyExpiry` and `MaxTopicSize`, which call the crates `byte-unit`
5.2.5 and `humantime` 2.4.0. Knows no option.
"""

from __future__ import annotations

import re
from typing import Final

from braidlog.protocols.iggy.messages import UNBOUNDED

# A longer text is no number; Python's own limit for digits would be met far above.
TEXT_MAX: Final = 64
U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1
# White space of Unicode. Python's `str.strip` and `\s` also take U+001C to U+001F.
SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

# At most 28 decimals, as `byte-unit` takes. Only a `B` alone is a byte: `b` and `bits` are bits.
SIZE = re.compile(
    r"(\d+)(?:\.(\d{1,28}))? *(?:([kmgtpe])(i)?)?(b(?:its?)?)?", re.ASCII | re.IGNORECASE
)
SIZE_UNITS = "kmgtpe"
NO_SIZE = frozenset({"0", "unlimited", "Unlimited", "none", "None"})

SPAN = re.compile(
    rf"[{SPACES}]*(\d[\d{SPACES}]*)(?:\.([\d{SPACES}]*\d[\d{SPACES}]*))?([A-Za-zµ]+)[{SPACES}]*",
    re.ASCII,
)
SECOND_NS: Final = 1_000_000_000
HOUR_NS: Final = 3_600 * SECOND_NS
# Nanoseconds of each unit of the crate `humantime`; a month is 30.44 days, a year 365.25.
_UNITS: dict[int, tuple[str, ...]] = {
    1: ("nanos", "nsec", "ns"),
    1_000: ("usec", "us", "µs"),
    1_000_000: ("millis", "msec", "ms"),
    SECOND_NS: ("seconds", "second", "secs", "sec", "s"),
    60 * SECOND_NS: ("minutes", "minute", "min", "mins", "m"),
    HOUR_NS: ("hours", "hour", "hr", "hrs", "h"),
    24 * HOUR_NS: ("days", "day", "d"),
    7 * 24 * HOUR_NS: ("weeks", "week", "wk", "wks", "w"),
    2_630_016 * SECOND_NS: ("months", "month", "M"),
    31_557_600 * SECOND_NS: ("years", "year", "yr", "yrs", "y"),
}
SPAN_NS = {name: ns for ns, names in _UNITS.items() for name in names}
NEVER = frozenset({"unlimited", "none", "None", "Unlimited", "never_expire"})
DEFAULT = frozenset({"default", "server_default", "Default", "Server_default", "0"})


def byte_size(text: str) -> int:
    """Bytes of `128MiB`, `1.5 GB`, `134217728`; 0 for `unlimited` and `none`.

    A small `b` is a bit: `16 kb` are 2,000 bytes. A part of a byte is rounded up.
    """
    if text in NO_SIZE:
        return 0
    match = SIZE.fullmatch(_short(text).strip(SPACES))
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 128MiB")
    whole, decimals, unit, binary, end = match.groups(default="")
    power = SIZE_UNITS.index(unit.lower()) + 1 if unit else 0
    bits = int(whole + decimals) * (1024 if binary else 1000) ** power
    if end in ("", "B"):
        bits *= 8
    return _at_most(-(-bits // (8 * 10 ** len(decimals))), U64_MAX)


def topic_size(text: str) -> int:
    """As `byte_size`; `unlimited` is all ones, `server_default` 0."""
    if text == "unlimited":
        return UNBOUNDED
    return 0 if text == "server_default" else byte_size(text)


def expiry_us(text: str) -> int:
    """Microseconds of `1h 30m`; all ones for `never_expire` and `unlimited`, 0 for `default`."""
    if text in NEVER:
        return UNBOUNDED
    if text in DEFAULT:
        return 0
    pos, total_ns = 0, 0
    while pos < len(_short(text)) or not pos:
        match = SPAN.match(text, pos)
        if match is None or match[3] not in SPAN_NS:
            raise ValueError(f"{text!r} is not a length of time such as 1h 30m")
        unit_ns = SPAN_NS[match[3]]
        total_ns += int(_digits(match[1])) * unit_ns
        if match[2] is not None:
            total_ns += _part_ns(_digits(match[2]), unit_ns)
        pos = match.end()
    _at_most(total_ns // SECOND_NS, U32_MAX)  # Iggy's own limit, in seconds.
    return total_ns // 1_000


def _part_ns(decimals: str, unit_ns: int) -> int:
    """Nanoseconds of the decimals of a number of units.

    `humantime` counts the part in seconds for hours and longer units, else in nanoseconds, with 64
    bits. The part must be a whole number of these; nanoseconds have no decimals.
    """
    step_ns = SECOND_NS if unit_ns >= HOUR_NS else 1
    scaled = _at_most(int(decimals) * (unit_ns // step_ns), U64_MAX)
    number, rest = divmod(scaled, _at_most(10 ** len(decimals), U64_MAX))
    if rest or unit_ns == 1:
        raise ValueError(f"0.{decimals} of a unit is not expected: the part is too small")
    return number * step_ns


def u32(text: str) -> int:
    """A number of 32 bits in digits."""
    if re.fullmatch(r"\+?\d+", _short(text), re.ASCII) is None:
        raise ValueError(f"{text!r} is not a number")
    return _at_most(int(text), U32_MAX)


def flag(text: str) -> int:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return int(text == "true")


def _digits(text: str) -> str:
    return re.sub(rf"[{SPACES}]", "", text)


def _short(text: str) -> str:
    if len(text) > TEXT_MAX:
        raise ValueError(f"text of {len(text)} characters, at most {TEXT_MAX} are expected")
    return text


def _at_most(number: int, largest: int) -> int:
    if number > largest:
        raise ValueError(f"{number} is above {largest}")
    return number
