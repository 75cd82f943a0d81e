"""Pulsar's primitive types: JSON values and their bytes, both ways, and refusals."""

import struct

import pytest

from braidlog.protocols.http.values.primitives import PRIMITIVES, BadValue

DAY_MS, NOON = 86_400_000, 43_200_000_000_000
FLOAT_MAX = 3.4028235e38  # With the fewest digits.

# (type, value, bytes) in both directions.
PAIRS = [
    ("STRING", "für", "für".encode()),
    ("BYTES", "AP8=", b"\x00\xff"),
    ("BOOLEAN", True, b"\x01"),
    ("BOOLEAN", False, b"\x00"),
    ("INT8", -128, b"\x80"),
    ("INT16", -2, b"\xff\xfe"),
    ("INT32", 1, b"\0\0\0\1"),
    ("INT64", -(1 << 63), b"\x80" + bytes(7)),
    ("FLOAT", 0.1, struct.pack(">f", 0.1)),
    ("FLOAT", FLOAT_MAX, b"\x7f\x7f\xff\xff"),
    # With eight digits, the number would be another float.
    ("FLOAT", -110.589386, b"\xc2\xdd-\xc4"),
    ("DOUBLE", 0.1, struct.pack(">d", 0.1)),
    ("DOUBLE", "NaN", struct.pack(">d", float("nan"))),
    ("FLOAT", "-Infinity", struct.pack(">f", float("-inf"))),
    ("INSTANT", "1970-01-02T12:00:00.5Z", struct.pack(">qi", 129_600, 500_000_000)),
    ("LOCAL_DATE", "1969-12-31", struct.pack(">q", -1)),
    ("LOCAL_TIME", "12:00:00", struct.pack(">q", NOON)),
    ("LOCAL_DATE_TIME", "1970-01-03T12:00:00", struct.pack(">qq", 2, NOON)),
]

# (type, value, bytes) that are written so, and read as another value.
WRITTEN = [
    ("INT32", "12", b"\0\0\0\x0c"),
    ("DATE", "1970-01-02", struct.pack(">q", DAY_MS)),
    ("TIME", "12:00:00.001", struct.pack(">q", DAY_MS // 2 + 1)),
    ("TIMESTAMP", "1970-01-02T01:30:00+01:30", struct.pack(">q", DAY_MS)),
    ("TIMESTAMP", "1970-01-01 23:00:00-0100", struct.pack(">q", DAY_MS)),
    ("TIMESTAMP", 7, struct.pack(">q", 7)),
    ("INSTANT", "1970-01-02", struct.pack(">qi", 86_400, 0)),
]

NO_VALUES = [
    ("STRING", 1, "expected a string"),
    ("BYTES", 1, "expected base64 text"),
    ("BYTES", "?", "not base64"),
    ("BOOLEAN", 1, "expected true or false"),
    ("INT8", 128, "outside of 8 bits"),
    ("INT8", True, "expected a whole number"),
    ("FLOAT", "much", "expected a number"),
    ("FLOAT", 1e39, "too large"),
    ("DOUBLE", 10**400, "too large"),
    ("INSTANT", 1, "expected ISO 8601 text"),
    ("INSTANT", "1970-13-01T00:00", "not a date"),
    ("LOCAL_DATE", 1, "expected a date"),
    ("LOCAL_TIME", 1, "expected a time of day"),
    ("LOCAL_TIME", "noon", "not a time of day"),
    ("LOCAL_TIME", "24:00", "not a time of day"),
    ("LOCAL_DATE_TIME", "1970-01-01", "expected a time like"),
]

NO_BYTES = [
    ("STRING", b"\xff", "not UTF-8"),
    ("BOOLEAN", b"", "one byte"),
    ("INT32", b"\0", "expected 4 bytes, not 1"),
    ("DOUBLE", b"\0", "expected 8 bytes, not 1"),
    ("INSTANT", bytes(11), "expected 12 bytes"),
    ("INSTANT", struct.pack(">qi", 0, -1), "nanoseconds of more than a second"),
    ("LOCAL_DATE", bytes(7), "expected 8 bytes"),
    ("LOCAL_DATE", struct.pack(">q", 1 << 62), "years 1 to 9999"),
    ("LOCAL_TIME", struct.pack(">q", 86_400_000_000_000), "more than a day"),
    ("LOCAL_DATE_TIME", bytes(15), "expected 16 bytes"),
]


@pytest.mark.parametrize(("name", "value", "data"), PAIRS)
def test_a_value_and_its_bytes(name, value, data):
    assert PRIMITIVES[name].write(value) == data
    assert PRIMITIVES[name].read(data) == value


@pytest.mark.parametrize(("name", "value", "data"), WRITTEN)
def test_other_texts_of_a_value(name, value, data):
    assert PRIMITIVES[name].write(value) == data


@pytest.mark.parametrize(("name", "value", "reason"), NO_VALUES)
def test_invalid_values_are_refused(name, value, reason):
    with pytest.raises(BadValue, match=reason):
        PRIMITIVES[name].write(value)


@pytest.mark.parametrize(("name", "data", "reason"), NO_BYTES)
def test_invalid_bytes_are_refused(name, data, reason):
    with pytest.raises(BadValue, match=reason):
        PRIMITIVES[name].read(data)
