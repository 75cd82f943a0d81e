"""Iggy messages of the classic dialects (crates 0.0.60 to 0.6), stored in the layout of a poll.

A body is a small head, then the polled records. The head has the partitioning key of the SEND: Iggy
clients do not see this key, for other protocols it is the key of the records. Knows no command,
stream or consumer. Layouts: apache/iggy, iggy/src/messages/ and binary/ at 670a8baba.
"""

import abc
import os
import struct
from collections.abc import Callable, Iterator, Sequence

from braidlog.storage.errors import CorruptBody, RecordTooLarge
from braidlog.storage.formats.api import (
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
    Prepared,
)
from braidlog.storage.formats.base import Codec, Converted, Stored, WantedRecords
from braidlog.storage.formats.compression import crc32
from braidlog.storage.formats.headers import is_text
from braidlog.storage.formats.iggy.quick import (
    ID_BYTES,
    Form,
    SendLimits,
    reencoded,
    stored_send,
    uuids,
)
from braidlog.storage.formats.record import Header, HeaderKind, Record

BODY_HEAD = struct.Struct("<HH")  # partitioning key's length (0: none), reserved
# offset, state, timestamp, id, CRC-32 of the payload; a headers block and the payload follow.
RECORD_HEAD = struct.Struct("<QBQ16sI")
STAMP = struct.Struct("<QBQ")  # offset, state, timestamp
SEND_HEAD = struct.Struct("<16sI")  # id, headers length
U32 = struct.Struct("<I")

RECORD_MIN = RECORD_HEAD.size + 8  # both lengths
AVAILABLE = 1  # the only state that Iggy's server ever sets
NO_ID = bytes(16)

# Iggy's own limits on a SEND: payloads together, header values together (iggy/src/messages/
# send_messages.rs, MAX_PAYLOAD_SIZE and MAX_HEADERS_SIZE), and on each name and value.
PAYLOAD_BYTES_MAX = 10_485_760
HEADER_BYTES_MAX = 102_400
TEXT_BYTES_MAX = 255

# Header with the key of a record of another protocol, for Iggy readers.
KEY_HEADER = b"braidlog.key"

IDS_AT_A_TIME = 64

FORMS = {
    int(BodyFormat.KAFKA): Form.KAFKA_SET,
    int(BodyFormat.IGGY): Form.CLASSIC,
    int(BodyFormat.IGGY_TYPED): Form.TYPED,
}


def body_from_send(
    messages: Buffer,
    base_offset: int,
    append_us: int,
    *,
    key: bytes | None = None,
    payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Prepared:
    """Check the messages of a SEND and build the body, with offsets, time and checksums.

    A message without an id gets a random UUID (version 4), as from Iggy's server. `key` is the
    partitioning key, None for the other kinds of partitioning.

    Raises:
        CorruptBody: no message, an empty payload, or invalid lengths, names or kinds.
        RecordTooLarge: payloads or header values exceed Iggy's limit for a SEND.
    """
    view, head = memoryview(messages), pack_key(key)
    limits, stamps = SendLimits(payload_bytes_max, HEADER_BYTES_MAX), (base_offset, append_us, 0)
    stored = stored_send(view, Form.SENT, head, stamps, limits, random_bytes)
    if stored is not None:
        return Prepared(stored.body, BodyInfo(stored.info.record_count), BodyFormat.IGGY)
    parts: list[Buffer] = [head]
    read, length_at, pack, crc_of = SEND_HEAD.unpack_from, U32.unpack_from, RECORD_HEAD.pack, crc32
    ids = fresh_ids(random_bytes)
    pos, end, offset, payload_bytes, header_bytes = 0, len(view), base_offset, 0, 0
    while pos < end:  # hot: see make bench
        if end - pos < SEND_HEAD.size:
            raise CorruptBody("message is cut short")
        message_id, headers_size = read(view, pos)
        payload_pos = pos + 24 + headers_size
        if payload_pos > end:
            raise CorruptBody("headers are longer than their request")
        size = length_at(view, payload_pos - 4)[0]
        stop = payload_pos + size
        if not size or stop > end:
            raise CorruptBody(f"payload of {size} bytes in a request of {end}")
        payload_bytes += size
        if headers_size:
            header_bytes += check_headers(view[pos + 20 : payload_pos - 4])
        if message_id == NO_ID:
            message_id = next(ids)
        checksum = crc_of(view[payload_pos:stop])
        parts.append(pack(offset, AVAILABLE, append_us, message_id, checksum))
        parts.append(view[pos + 16 : stop])
        offset += 1
        pos = stop
    if offset == base_offset:
        raise CorruptBody("request without a message")
    if payload_bytes > payload_bytes_max:
        raise RecordTooLarge(payload_bytes, payload_bytes_max)
    if header_bytes > HEADER_BYTES_MAX:
        raise RecordTooLarge(header_bytes, HEADER_BYTES_MAX)
    return Prepared(b"".join(parts), BodyInfo(offset - base_offset), BodyFormat.IGGY)


class PolledCodec(Codec):
    """Shared part of both forms: the head with the partitioning key, which Iggy clients do not
    see.
    """

    keyless = (int(BodyFormat.IGGY), int(BodyFormat.IGGY_TYPED))

    @abc.abstractmethod
    def places(self, view: memoryview, pos: int) -> Iterator[tuple[int, int, int]]:
        """Yield offset, start and end of each record from `pos` on. Raises CorruptBody."""

    def starts(
        self, body: Buffer, base_offset: int, start_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Yield (offset, pos) of each record."""
        view = memoryview(body)
        for offset, pos, _ in self.places(view, read_key(view)[0]):
            if offset >= start_offset:
                yield offset, pos

    def readable(self, body: Buffer) -> memoryview:
        """Return the polled records, without the head."""
        return memoryview(body)[read_key(body)[0] :]

    def converted(self, stored: Stored, wanted: WantedRecords) -> Converted | None:
        """Convert the two Iggy forms and Kafka's sets of format 0; see `Codec.converted`."""
        source = FORMS.get(stored.body_format)
        if source is None:
            return None
        records = memoryview(stored.body)
        if source is not Form.KAFKA_SET:
            records = records[read_key(records)[0] :]
        return reencoded(records, source, FORMS[self.format], stored, wanted)

    def polled(self, records: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield offset and bytes of each polled record. Our own codec made the records: they are
        sound.
        """
        for offset, pos, stop in self.places(records, 0):
            yield offset, records[pos:stop]


class IggyCodec(PolledCodec):
    """Body format 4. See the module."""

    name = "iggy"
    format = int(BodyFormat.IGGY)
    column_decoder = "braidlog.storage.formats.iggy.classic_columns:columns_of"

    def places(self, view: memoryview, pos: int) -> Iterator[tuple[int, int, int]]:
        """Yield the places of records; see `PolledCodec.places`."""
        end, offset_at = len(view), STAMP.unpack_from
        while pos < end:  # hot: see make bench
            _, stop = _record_end(view, pos, end)
            yield offset_at(view, pos)[0], pos, stop
            pos = stop

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the records. Classic Iggy messages carry no client time."""
        view = memoryview(body)
        pos, _ = read_key(view)
        count, end = 0, len(view)
        while pos < end:
            payload_pos, stop = _record_end(view, pos, end)
            headers_of(view[pos + RECORD_HEAD.size + 4 : payload_pos - 4])
            count, pos = count + 1, stop
        return BodyInfo(count)

    def decode_into(
        self, decoded: Decoded, data: bytes, append_us: int, wanted: WantedRecords
    ) -> None:
        """Decode records; their key is the SEND's partitioning key, their time the append time."""
        pos, key = read_key(data)
        _decode_records(data, pos, key, wanted, decoded)

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Encode records in poll layout. Keys become headers: foreign records of a batch differ in
        key.
        """
        parts = [pack_key(None)]
        for record in records:  # hot: see make bench
            value = record.value or b""
            message_id = record.message_id.to_bytes(16, "little") if record.message_id else NO_ID
            headers = b""
            if record.headers or record.key is not None:
                headers = packed_headers(record, _pack_header)
            parts += (
                RECORD_HEAD.pack(
                    record.offset, AVAILABLE, record.append_us, message_id, crc32(value)
                ),
                U32.pack(len(headers)),
                headers,
                U32.pack(len(value)),
                value,
            )
        return b"".join(parts)

    def carries(self, record: Record) -> bool:
        """Return True for a payload: clients of the classic dialects stop reading at an empty
        payload.
        """
        return bool(record.value)


IGGY = IggyCodec()


def pack_key(key: bytes | None) -> bytes:
    """Return the head of a body: the partitioning key of all its records, 1 to 255 bytes, or
    none.
    """
    return BODY_HEAD.pack(len(key), 0) + key if key else BODY_HEAD.pack(0, 0)


def read_key(body: Buffer) -> tuple[int, bytes | None]:
    """Return the position of the first record, and the partitioning key. Raises CorruptBody."""
    if len(body) < BODY_HEAD.size:
        raise CorruptBody("body is cut short")
    size, reserved = BODY_HEAD.unpack_from(body)
    pos = BODY_HEAD.size + size
    if reserved or pos > len(body):
        raise CorruptBody("head of the body is not of this version")
    return pos, bytes(body[BODY_HEAD.size : pos]) if size else None


def check_headers(block: memoryview) -> int:
    """Return the bytes of all header values in a block, checked by the rules of Iggy's server.

    Raises:
        CorruptBody: a name or value that is not 1 to 255 bytes, a name that is not UTF-8, an
            unknown kind, or lengths that do not fill the block.
    """
    total = 0
    for header in headers_of(block):
        if not 1 <= len(header.name) <= TEXT_BYTES_MAX or not is_text(header.name):
            raise CorruptBody("header name is not 1 to 255 bytes of UTF-8")
        if not 1 <= len(header.value) <= TEXT_BYTES_MAX:
            raise CorruptBody(f"header value of {len(header.value)} bytes")
        if not HeaderKind.RAW <= header.kind <= HeaderKind.FLOAT64:
            raise CorruptBody(f"header kind {header.kind}")
        total += len(header.value)
    return total


def _record_end(view: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Return the payload start and the end of the record at pos."""
    if end - pos < RECORD_MIN:
        raise CorruptBody("record is cut short")
    payload_pos = pos + RECORD_MIN + U32.unpack_from(view, pos + 37)[0]
    if payload_pos > end:
        raise CorruptBody("headers are longer than their body")
    stop = payload_pos + U32.unpack_from(view, payload_pos - 4)[0]
    if stop > end:
        raise CorruptBody("payload is longer than its body")
    return payload_pos, stop


def _decode_records(
    data: bytes,
    pos: int,
    key: bytes | None,
    wanted: WantedRecords,
    decoded: Decoded,
) -> None:
    head, length_at = RECORD_HEAD.unpack_from, U32.unpack_from
    records, start_offset, records_max = decoded.records, wanted.start_offset, wanted.records_max
    end = len(data)
    while pos < end and len(records) < records_max:  # hot: see make bench
        if end - pos < RECORD_MIN:
            raise CorruptBody("record is cut short")
        offset, _, time_us, message_id, _ = head(data, pos)
        headers_size = length_at(data, pos + 37)[0]
        payload_pos = pos + 45 + headers_size
        if payload_pos > end:
            raise CorruptBody("headers are longer than their body")
        stop = payload_pos + length_at(data, payload_pos - 4)[0]
        if stop > end:
            raise CorruptBody("payload is longer than its body")
        if offset >= start_offset:
            records.append(
                Record(
                    offset,
                    time_us,
                    None,
                    None,
                    key,
                    data[payload_pos:stop],
                    headers_of(data[pos + 41 : payload_pos - 4]) if headers_size else (),
                    None,
                    None,
                    None,
                    int.from_bytes(message_id, "little"),
                )
            )
        decoded.next_offset = offset + 1
        pos = stop


def headers_of(block: Buffer) -> list[Header]:
    """Return the headers of a block without its length (apache/iggy iggy/src/models/header.rs)."""
    headers = []
    pos, end = 0, len(block)
    try:
        while pos < end:
            name_end = pos + 4 + U32.unpack_from(block, pos)[0]
            kind = block[name_end]
            value_pos = name_end + 5
            value_end = value_pos + U32.unpack_from(block, name_end + 1)[0]
            if value_end > end:
                raise CorruptBody("header is longer than its block")
            name, value = bytes(block[pos + 4 : name_end]), bytes(block[value_pos:value_end])
            headers.append(Header(name, value, kind))
            pos = value_end
    except (struct.error, IndexError) as error:
        raise CorruptBody("header is cut short") from error
    return headers


def packed_headers(record: Record, pack: Callable[[bytes, bytes, int], bytes]) -> bytes:
    """Return the headers that Iggy can hold, including a header for the record's key.

    `pack` encodes a header from name, value and kind.
    """
    held = [(header.name, header.value, header.kind) for header in record.headers]
    if record.key is not None:
        # Last: clients keep headers in a map, so the key wins over a header of the same name.
        held.append((KEY_HEADER, record.key, HeaderKind.RAW))
    parts = []
    for name, value, kind in held:
        # Omit headers that Iggy cannot represent: Iggy clients would refuse the whole poll.
        if not (1 <= len(name) <= TEXT_BYTES_MAX and 1 <= len(value) <= TEXT_BYTES_MAX):
            continue
        if not is_text(name):
            continue
        if kind == HeaderKind.STRING and not is_text(value):
            kind = HeaderKind.RAW
        parts.append(pack(name, value, kind))
    return b"".join(parts)


def _pack_header(name: bytes, value: bytes, kind: int) -> bytes:
    return b"".join((U32.pack(len(name)), name, bytes((kind,)), U32.pack(len(value)), value))


def fresh_ids(random_bytes: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield random UUIDs of version 4, made in blocks: single UUIDs cost more than the append."""
    while True:
        block = uuids(IDS_AT_A_TIME, random_bytes)
        for pos in range(0, len(block), ID_BYTES):
            yield block[pos : pos + ID_BYTES]
