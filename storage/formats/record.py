"""The record that every protocol maps to and from. Knows no protocol and no file.

All times are int64 microseconds since 1970. A key or value is absent (None), empty or bytes: three
different things. Text of any protocol is bytes here.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from braidlog.storage.large import LARGE_BYTES_MIN


class HeaderKind(enum.IntEnum):
    """Type of a header value: the numbers are Apache Iggy's, number values are little-endian."""

    RAW = 1
    STRING = 2
    BOOL = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    INT128 = 8
    UINT8 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    UINT128 = 13
    FLOAT32 = 14
    FLOAT64 = 15


@dataclass(slots=True)
class Header:
    """A header (Pulsar property, Iggy user header); names may repeat within a record."""

    name: bytes
    value: bytes
    kind: int = HeaderKind.STRING


@dataclass(slots=True)
class Chunk:
    """The record's piece of a chunked message (Pulsar's chunk metadata).

    A compressed message is cut after compression, so a piece cannot be unpacked alone:
    `compression` is Pulsar's number of the codec (0 for none) and `uncompressed_bytes` the size of
    the whole message.
    """

    uuid: bytes
    chunk_id: int
    chunk_count: int
    total_bytes: int
    compression: int = 0
    uncompressed_bytes: int = 0


class Record(msgspec.Struct):
    """A message. Built per record in loops: a dataclass takes twice the time."""

    offset: int
    append_us: int
    publish_us: int | None = None
    event_us: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    ordering_key: bytes | None = None
    producer_name: bytes | None = None
    sequence_id: int | None = None
    message_id: int = 0
    schema_version: bytes | None = None
    chunk: Chunk | None = None
    deliver_at_us: int | None = None  # Not before this time (Pulsar's delayed delivery).


def large_end(records: Sequence[Record]) -> tuple[Record, bytes] | None:
    """Return the last record and its value, if the value is large.

    A piece of a body ends with its first large record. Encoders write such a value without further
    copies.
    """
    value = records[-1].value if records else None
    return None if value is None or len(value) < LARGE_BYTES_MIN else (records[-1], value)
