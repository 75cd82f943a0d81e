"""The body format that holds every field of a record: HTTP writes this format, and tests compare
other codecs with it.

Knows no protocol. All records of a body have the append time of the batch header. The layout is in
FORMAT.md, section 8.1.
"""

import struct
from collections.abc import Iterator, Sequence

from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import (
    BatchFlag,
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
)
from braidlog.storage.formats.base import Codec, WantedRecords
from braidlog.storage.formats.record import Chunk, Header, Record

RECORD_HEAD = struct.Struct("<IIHH")  # bytes that follow the size, offset delta, fields, reserved
SIZE = struct.Struct("<I")
TIME = struct.Struct("<q")
SEQUENCE = struct.Struct("<Q")
CHUNK = struct.Struct("<iiqIi")  # id, count, total bytes, uncompressed bytes, compression
HEADER = struct.Struct("<B3x")  # kind; a name and a value follow

# Bits of `fields`: the fields of a record, in stored order.
PUBLISH, EVENT, SEQUENCE_ID, MESSAGE_ID, KEY, VALUE = 1, 2, 4, 8, 16, 32
ORDERING_KEY, PRODUCER_NAME, SCHEMA_VERSION, CHUNKED, HEADERS = 64, 128, 256, 512, 1024
DELIVER_AT = 2048
FIELDS = 4095

UINT64_MAX = (1 << 64) - 1


class PlainCodec(Codec):
    """Body format 1. See the module."""

    name = "plain"
    format = int(BodyFormat.PLAIN)
    column_decoder = "braidlog.storage.formats.plain.columns:columns_of"

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the records; find their first and last publish time, and any delay."""
        decoded = self.decode(body, 0, 0)
        if decoded.failed is not None:
            raise decoded.failed
        times = [r.publish_us for r in decoded.records if r.publish_us is not None]
        is_delayed = any(record.deliver_at_us is not None for record in decoded.records)
        flags = int(BatchFlag.DELAYED) if is_delayed else 0
        if not times:
            return BodyInfo(len(decoded.records), flags=flags)
        return BodyInfo(len(decoded.records), times[0], max(times), flags)

    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Yield (offset, pos) of each record."""
        pos = 0
        while pos < len(body):
            delta, _, stop = _head(body, pos)
            if base_offset + delta >= start_offset:
                yield base_offset + delta, pos
            pos = stop

    def decode_into(
        self, decoded: Decoded, data: bytes, append_us: int, wanted: WantedRecords
    ) -> None:
        """Decode records unchanged, all of them appended at append_us."""
        base_offset, pos = decoded.next_offset, 0
        while pos < len(data) and len(decoded.records) < wanted.records_max:
            delta, fields, stop = _head(data, pos)
            offset = base_offset + delta
            if offset >= wanted.start_offset:
                record = _read(_BodyReader(data, pos + RECORD_HEAD.size, stop), fields)
                record.offset, record.append_us = offset, append_us
                decoded.records.append(record)
            decoded.next_offset = offset + 1
            pos = stop

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Encode all fields but the append time, which belongs to the batch."""
        parts = []
        for record in records:
            fields, packed = _pack(record)
            size = RECORD_HEAD.size - SIZE.size + len(packed)
            parts.append(RECORD_HEAD.pack(size, record.offset - base_offset, fields, 0))
            parts.append(packed)
        return b"".join(parts)


PLAIN = PlainCodec()


class _BodyReader:
    """Bounds-checked reads from a record."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end

    def take(self, size: int) -> bytes:
        start, self.pos = self.pos, self.pos + size
        if self.pos > self.end:
            raise CorruptBody("field is longer than its record")
        return self.data[start : self.pos]

    def sized(self) -> bytes:
        return self.take(SIZE.unpack(self.take(SIZE.size))[0])

    def number(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self.take(layout.size))[0]
        return number


def _head(data: Buffer, pos: int) -> tuple[int, int, int]:
    """Return offset delta, fields and end of the record at pos."""
    if len(data) - pos < RECORD_HEAD.size:
        raise CorruptBody("record is cut short")
    size, delta, fields, reserved = RECORD_HEAD.unpack_from(data, pos)
    stop = pos + SIZE.size + size
    if stop < pos + RECORD_HEAD.size or stop > len(data):
        raise CorruptBody(f"record of {size} bytes does not fit its body")
    if reserved or fields & ~FIELDS:
        raise CorruptBody("record is of another version")
    return delta, fields, stop


def _read(reader: _BodyReader, fields: int) -> Record:
    record = Record(
        0,
        0,
        publish_us=reader.number(TIME) if fields & PUBLISH else None,
        event_us=reader.number(TIME) if fields & EVENT else None,
        sequence_id=reader.number(SEQUENCE) if fields & SEQUENCE_ID else None,
        message_id=int.from_bytes(reader.take(16), "little") if fields & MESSAGE_ID else 0,
        key=reader.sized() if fields & KEY else None,
        value=reader.sized() if fields & VALUE else None,
        ordering_key=reader.sized() if fields & ORDERING_KEY else None,
        producer_name=reader.sized() if fields & PRODUCER_NAME else None,
        schema_version=reader.sized() if fields & SCHEMA_VERSION else None,
        chunk=_read_chunk(reader) if fields & CHUNKED else None,
        headers=_read_headers(reader) if fields & HEADERS else (),
        deliver_at_us=reader.number(TIME) if fields & DELIVER_AT else None,
    )
    if reader.pos != reader.end:
        raise CorruptBody("record holds more than it says")
    return record


def _read_chunk(reader: _BodyReader) -> Chunk:
    uuid = reader.sized()
    chunk_id, count, total, uncompressed, compression = CHUNK.unpack(reader.take(CHUNK.size))
    return Chunk(uuid, chunk_id, count, total, compression, uncompressed)


def _read_headers(reader: _BodyReader) -> list[Header]:
    headers = []
    for _ in range(reader.number(SIZE)):
        kind = reader.number(HEADER)
        headers.append(Header(reader.sized(), reader.sized(), kind))
    return headers


def _pack(record: Record) -> tuple[int, bytes]:
    """Return the field bits of a record, and the bytes of these fields."""
    fields = 0  # hot: see make bench
    parts: list[bytes] = []
    if record.publish_us is not None:
        fields |= PUBLISH
        parts.append(TIME.pack(record.publish_us))
    if record.event_us is not None:
        fields |= EVENT
        parts.append(TIME.pack(record.event_us))
    if record.sequence_id is not None:
        fields |= SEQUENCE_ID
        parts.append(SEQUENCE.pack(record.sequence_id & UINT64_MAX))
    if record.message_id:
        fields |= MESSAGE_ID
        parts.append(record.message_id.to_bytes(16, "little"))
    if record.key is not None:
        fields |= KEY
        parts += (SIZE.pack(len(record.key)), record.key)
    if record.value is not None:
        fields |= VALUE
        parts += (SIZE.pack(len(record.value)), record.value)
    if record.ordering_key is not None:
        fields |= ORDERING_KEY
        parts += (SIZE.pack(len(record.ordering_key)), record.ordering_key)
    if record.producer_name is not None:
        fields |= PRODUCER_NAME
        parts += (SIZE.pack(len(record.producer_name)), record.producer_name)
    if record.schema_version is not None:
        fields |= SCHEMA_VERSION
        parts += (SIZE.pack(len(record.schema_version)), record.schema_version)
    if record.chunk is not None:
        fields |= CHUNKED
        parts += _pack_chunk(record.chunk)
    if record.headers:
        fields |= HEADERS
        parts.append(SIZE.pack(len(record.headers)))
        for header in record.headers:
            name, value = header.name, header.value
            parts += (HEADER.pack(header.kind), SIZE.pack(len(name)), name)
            parts += (SIZE.pack(len(value)), value)
    if record.deliver_at_us is not None:
        fields |= DELIVER_AT
        parts.append(TIME.pack(record.deliver_at_us))
    return fields, b"".join(parts)


def _pack_chunk(chunk: Chunk) -> tuple[bytes, bytes, bytes]:
    packed = CHUNK.pack(
        chunk.chunk_id,
        chunk.chunk_count,
        chunk.total_bytes,
        chunk.uncompressed_bytes,
        chunk.compression,
    )
    return SIZE.pack(len(chunk.uuid)), chunk.uuid, packed
