"""Values of Pulsar's primitive schema types, as JSON and as stored bytes (rest.md's table 4.3).

Numbers are big-endian, as Pulsar's clients write them. Knows no schema definition.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

MS = 1000
NANOS = 1_000_000_000
DAY_NANOS = 86_400 * NANOS
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NAMED_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

I64 = struct.Struct(">q")
INSTANT = struct.Struct(">qi")  # seconds, nanoseconds
DATE_TIME = struct.Struct(">qq")  # day since the epoch, nanosecond of the day
FLOAT, DOUBLE = struct.Struct(">f"), struct.Struct(">d")

DECIMAL = re.compile(r"-?[0-9]{1,20}")
CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")

Json = object  # Input or output of msgspec's JSON.


class BadValue(ValueError):
    """A value, or stored bytes, that do not fit their schema."""


@dataclass(slots=True, frozen=True)
class Primitive:
    """Writer and reader of a type; both raise BadValue."""

    write: Callable[[Json], bytes]
    read: Callable[[bytes], Json]


def _write_string(value: Json) -> bytes:
    if not isinstance(value, str):
        raise BadValue("expected a string")
    return value.encode()


def _read_string(data: bytes) -> Json:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadValue("not UTF-8") from None


def _write_bytes(value: Json) -> bytes:
    if not isinstance(value, str):
        raise BadValue("expected base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadValue("not base64") from None


def _read_bytes(data: bytes) -> Json:
    return base64.b64encode(data).decode("ascii")


def _write_bool(value: Json) -> bytes:
    if not isinstance(value, bool):
        raise BadValue("expected true or false")
    return b"\x01" if value else b"\x00"


def _read_bool(data: bytes) -> Json:
    if len(data) != 1:
        raise BadValue("a boolean has one byte")
    return data != b"\x00"


def whole_number(value: Json) -> int:
    """Return the number of a JSON integer or of its decimal text. Raises BadValue."""
    if isinstance(value, str) and DECIMAL.fullmatch(value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadValue("expected a whole number")
    return value


def _integer(size: int) -> Primitive:
    limit = 1 << (8 * size - 1)

    def write(value: Json) -> bytes:
        number = whole_number(value)
        if not -limit <= number < limit:
            raise BadValue(f"{number} is outside of {8 * size} bits")
        return number.to_bytes(size, "big", signed=True)

    def read(data: bytes) -> Json:
        if len(data) != size:
            raise BadValue(f"expected {size} bytes, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)

    return Primitive(write, read)


def _floating(layout: struct.Struct) -> Primitive:
    def write(value: Json) -> bytes:
        if isinstance(value, str) and value in NAMED_FLOATS:
            return layout.pack(NAMED_FLOATS[value])
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadValue("expected a number")
        try:
            return layout.pack(value)
        except (OverflowError, struct.error):
            raise BadValue(f"{value} is too large") from None

    def read(data: bytes) -> Json:
        if len(data) != layout.size:
            raise BadValue(f"expected {layout.size} bytes, not {len(data)}")
        number: float = layout.unpack(data)[0]
        if math.isnan(number):
            return "NaN"
        if math.isinf(number):
            return "Infinity" if number > 0 else "-Infinity"
        return number if layout is DOUBLE else _shortest(number, data)

    return Primitive(write, read)


def _shortest(number: float, packed: bytes) -> float:
    """Return the 64-bit float with the fewest digits that packs to the same 32 bits."""
    shorter = (float(f"{number:.{digits}g}") for digits in range(6, 10))  # Nine suffice.
    return next(candidate for candidate in shorter if FLOAT.pack(candidate) == packed)


def _days(text: str) -> int:
    try:
        return dt.date.fromisoformat(text).toordinal() - EPOCH_DAY
    except ValueError:
        raise BadValue(f"{text!r} is not a date") from None


def _day_nanos(text: str) -> int:
    match = CLOCK.fullmatch(text)
    if match is None:
        raise BadValue(f"{text!r} is not a time of day")
    hours, minutes, seconds = (int(match[place] or 0) for place in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise BadValue(f"{text!r} is not a time of day")
    nanos = int((match[4] or "").ljust(9, "0"))
    return ((hours * 60 + minutes) * 60 + seconds) * NANOS + nanos


def _text_of_days(days: int) -> str:
    try:
        return dt.date.fromordinal(days + EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        raise BadValue("the date is outside of years 1 to 9999") from None


def _text_of_nanos(nanos: int) -> str:
    if not 0 <= nanos < DAY_NANOS:
        raise BadValue("more than a day")
    seconds, rest = divmod(nanos, NANOS)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:09}".rstrip("0") if rest else text


def _instant(text: str) -> tuple[int, int]:
    """Return seconds since 1970 and nanoseconds of an ISO 8601 text; UTC without a zone."""
    date, _, clock = text.replace(" ", "T", 1).partition("T")
    zone = re.search(r"(Z|[+-]\d\d:?\d\d)$", clock)
    shift = 0
    if zone is not None:
        clock = clock[: zone.start()]
        if zone[0] != "Z":
            digits = zone[0][1:].replace(":", "")
            shift = (int(digits[:2]) * 60 + int(digits[2:])) * 60
            shift = -shift if zone[0][0] == "-" else shift
    seconds, nanos = divmod(_day_nanos(clock) if clock else 0, NANOS)
    return _days(date) * 86_400 + seconds - shift, nanos


def _write_millis(value: Json) -> bytes:
    """Return the bytes of DATE, TIME and TIMESTAMP: a number of milliseconds, or ISO 8601 text."""
    if isinstance(value, str) and not DECIMAL.fullmatch(value):
        if CLOCK.fullmatch(value):
            return I64.pack(_day_nanos(value) // 1_000_000)
        seconds, nanos = _instant(value)
        return I64.pack(seconds * MS + nanos // 1_000_000)
    return INT64.write(value)


def _write_instant(value: Json) -> bytes:
    if not isinstance(value, str):
        raise BadValue("expected ISO 8601 text")
    return INSTANT.pack(*_instant(value))


def _read_instant(data: bytes) -> Json:
    if len(data) != INSTANT.size:
        raise BadValue("expected 12 bytes")
    seconds, nanos = INSTANT.unpack(data)
    days, second = divmod(seconds, 86_400)
    if not 0 <= nanos < NANOS:
        raise BadValue("nanoseconds of more than a second")
    return f"{_text_of_days(days)}T{_text_of_nanos(second * NANOS + nanos)}Z"


def _write_date(value: Json) -> bytes:
    if not isinstance(value, str):
        raise BadValue("expected a date like 2026-11-21")
    return I64.pack(_days(value))


def _read_date(data: bytes) -> Json:
    return _text_of_days(_i64(data))


def _write_time(value: Json) -> bytes:
    if not isinstance(value, str):
        raise BadValue("expected a time of day like 13:45:00.5")
    return I64.pack(_day_nanos(value))


def _read_time(data: bytes) -> Json:
    return _text_of_nanos(_i64(data))


def _write_date_time(value: Json) -> bytes:
    if not isinstance(value, str) or "T" not in value:
        raise BadValue("expected a time like 2026-11-21T13:45:00")
    date, _, clock = value.partition("T")
    return DATE_TIME.pack(_days(date), _day_nanos(clock))


def _read_date_time(data: bytes) -> Json:
    if len(data) != DATE_TIME.size:
        raise BadValue("expected 16 bytes")
    days, nanos = DATE_TIME.unpack(data)
    return f"{_text_of_days(days)}T{_text_of_nanos(nanos)}"


def _i64(data: bytes) -> int:
    if len(data) != I64.size:
        raise BadValue("expected 8 bytes")
    number: int = I64.unpack(data)[0]
    return number


INT64 = _integer(8)
_MILLIS = Primitive(_write_millis, INT64.read)

PRIMITIVES: dict[str, Primitive] = {
    "STRING": Primitive(_write_string, _read_string),
    "BYTES": Primitive(_write_bytes, _read_bytes),
    "BOOLEAN": Primitive(_write_bool, _read_bool),
    "INT8": _integer(1),
    "INT16": _integer(2),
    "INT32": _integer(4),
    "INT64": INT64,
    "FLOAT": _floating(FLOAT),
    "DOUBLE": _floating(DOUBLE),
    "DATE": _MILLIS,
    "TIME": _MILLIS,
    "TIMESTAMP": _MILLIS,
    "INSTANT": Primitive(_write_instant, _read_instant),
    "LOCAL_DATE": Primitive(_write_date, _read_date),
    "LOCAL_TIME": Primitive(_write_time, _read_time),
    "LOCAL_DATE_TIME": Primitive(_write_date_time, _read_date_time),
}
