"""Iggy messages of the later dialects (crates 0.7 to 0.11), stored in the poll form of crates 0.9
and 0.10.

They hold fields that the older form (`iggy.py`) cannot: the client's own time, typed header keys,
empty payloads. A body is the same small head with the partitioning key, then records of a 64-byte
header, payload and headers. `iggy_forms.py` converts these records to the other later forms. Knows
no command, stream or consumer. Layouts: apache/iggy, core/common/src/types/message/ (crate 0.9).
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence

import xxhash

from braidlog.storage.errors import CorruptBody, RecordTooLarge
from braidlog.storage.formats.api import (
    BodyFormat,
    BodyInfo,
    Buffer,
    Decoded,
    Prepared,
)
from braidlog.storage.formats.base import WantedRecords
from braidlog.storage.formats.headers import is_text
from braidlog.storage.formats.iggy.classic import (
    HEADER_BYTES_MAX,
    NO_ID,
    PAYLOAD_BYTES_MAX,
    TEXT_BYTES_MAX,
    PolledCodec,
    fresh_ids,
    pack_key,
    packed_headers,
    read_key,
)
from braidlog.storage.formats.iggy.quick import Form, SendLimits, stored_send
from braidlog.storage.formats.record import Header, HeaderKind, Record

# checksum, id, offset, append time, client's time, bytes of headers, bytes of payload, reserved.
# Payload and headers follow.
HEAD = struct.Struct("<Q16sQQQIIQ")
CHECKED_POS = 8  # The checksum, XXH3-64, covers all bytes from here on.
STAMP = struct.Struct("<QQ")  # offset, append time
STAMP_POS = 24
SIZES = struct.Struct("<II")  # of headers, of payload
SIZES_POS = 48
HEADER_ENTRY = struct.Struct("<BI")  # kind and length, before a header's key and before its value
U64 = struct.Struct("<Q")
# Plain numbers: comparing enum members takes longer than all other work on a header.
FIRST_KIND, LAST_KIND = int(HeaderKind.RAW), int(HeaderKind.FLOAT64)
STRING_KIND = int(HeaderKind.STRING)
TIME_MAX_US = (1 << 63) - 1  # Largest time of the log; a client may send a greater time.

SEND_LIMITS = SendLimits(PAYLOAD_BYTES_MAX, HEADER_BYTES_MAX)

checksum_of = xxhash.xxh3_64_intdigest


class BrokenRule(CorruptBody):
    """A message breaks a rule with its own error number in Iggy; `rule` is the name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class IggyTypedCodec(PolledCodec):
    """Body format 5. See the module."""

    name = "iggy_typed"
    format = int(BodyFormat.IGGY_TYPED)
    column_decoder = "braidlog.storage.formats.iggy.typed_columns:columns_of"

    def places(self, view: memoryview, pos: int) -> Iterator[tuple[int, int, int]]:
        """Yield the places of records; see `PolledCodec.places`."""
        end, offset_at = len(view), U64.unpack_from
        while pos < end:  # hot: see make bench
            _, stop = record_end(view, pos, end)
            yield offset_at(view, pos + STAMP_POS)[0], pos, stop
            pos = stop

    def inspect(self, body: Buffer) -> BodyInfo:
        """Count the records. Client times are their publish times."""
        view = memoryview(body)
        pos, _ = read_key(view)
        times = Times()
        count, end = 0, len(view)
        while pos < end:
            headers_pos, stop = record_end(view, pos, end)
            read_headers(view[headers_pos:stop])
            times.add(U64.unpack_from(view, pos + 40)[0])
            count, pos = count + 1, stop
        return times.info(count)

    def decode_into(
        self, decoded: Decoded, data: bytes, append_us: int, wanted: WantedRecords
    ) -> None:
        """Decode records; their key is the SEND's partitioning key."""
        pos, key = read_key(data)
        _decode_records(data, pos, key, wanted, decoded)

    def encode(self, records: Sequence[Record], base_offset: int) -> bytes:
        """Encode records in poll layout. Keys become headers: foreign records of a batch differ in
        key.
        """
        parts = [pack_key(None)]
        for record in records:  # hot: see make bench
            value = record.value or b""
            headers = b""
            if record.headers or record.key is not None:
                headers = packed_headers(record, pack_header)
            sent_us = record.append_us if record.publish_us is None else record.publish_us
            checked = HEAD.pack(
                0,
                record.message_id.to_bytes(16, "little") if record.message_id else NO_ID,
                record.offset,
                record.append_us,
                max(sent_us, 0),
                len(headers),
                len(value),
                0,
            )
            message = b"".join((checked[CHECKED_POS:], value, headers))
            parts += (U64.pack(checksum_of(message)), message)
        return b"".join(parts)

    def carries(self, record: Record) -> bool:
        """Return True for a value: an absent value would become an empty value."""
        return record.value is not None


IGGY_TYPED = IggyTypedCodec()


class Times:
    """The first and the latest client time in a body."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._latest: int | None = None

    def add(self, sent_us: int) -> None:
        """Add a message's time; 0, or a time beyond the log's range, counts as no time."""
        if not 0 < sent_us <= TIME_MAX_US:
            return
        if self._first is None or self._latest is None:
            self._first = self._latest = sent_us
        elif sent_us > self._latest:
            self._latest = sent_us

    def info(self, record_count: int) -> BodyInfo:
        """Return the facts for the batch header."""
        return BodyInfo(record_count, self._first, self._latest)


def body_from_typed(
    messages: Buffer,
    base_offset: int,
    append_us: int,
    *,
    key: bytes | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Prepared:
    """Check the messages of a SEND (crate 0.9 and 0.10) and build the body.

    A message without an id gets a random UUID (version 4), as from Iggy's server.

    Raises:
        BrokenRule: an offset or time that only the server may set.
        CorruptBody: no message, an empty payload, or invalid lengths, names or kinds.
        RecordTooLarge: payloads or headers exceed Iggy's limit for a SEND.
    """
    head = pack_key(key)
    stamps = (base_offset, append_us, 0)
    stored = stored_send(messages, Form.TYPED, head, stamps, SEND_LIMITS, random_bytes)
    if stored is not None:
        return Prepared(stored.body, stored.info, BodyFormat.IGGY_TYPED)
    body = bytearray(head)
    body += messages
    view = memoryview(body)
    info = stamp_one_by_one(view, len(head), base_offset, append_us, random_bytes)
    return Prepared(view, info, BodyFormat.IGGY_TYPED)


def stamp_one_by_one(
    body: memoryview,
    first: int,
    base_offset: int,
    append_us: int,
    random_bytes: Callable[[int], bytes],
) -> BodyInfo:
    """Convert the messages from `first` to the end to stored records, in place.

    Raises as `body_from_typed`. Tests compare the fast path with this.
    """
    check = SendCheck()
    ids = fresh_ids(random_bytes)
    pos, end, offset = first, len(body), base_offset
    digest, sizes_at, stamp = checksum_of, HEAD.unpack_from, STAMP.pack_into
    while pos < end:  # hot: see make bench
        if end - pos < HEAD.size:
            raise CorruptBody("message is cut short")
        _, message_id, sent_offset, time_us, sent_us, headers, payload, _ = sizes_at(body, pos)
        payload_pos = pos + HEAD.size
        stop = payload_pos + payload + headers
        if stop > end:
            raise CorruptBody("message is longer than its request")
        check.message(sent_offset, time_us, sent_us, payload)
        if headers:
            check.headers(body[stop - headers : stop])
        if message_id == NO_ID:
            body[pos + CHECKED_POS : pos + STAMP_POS] = next(ids)
        stamp(body, pos + STAMP_POS, offset, append_us)
        U64.pack_into(body, pos, digest(body[pos + CHECKED_POS : stop]))
        offset += 1
        pos = stop
    return check.finished()


class SendCheck:
    """Iggy's rules for the messages of a SEND, added up message by message."""

    def __init__(self, *, empty_payloads: bool = False) -> None:
        self._empty_payloads = empty_payloads
        self._count = self._payload_bytes = self._header_bytes = 0
        self._times = Times()

    def message(self, offset: int, time_us: int, sent_us: int, payload_bytes: int) -> None:
        """Check and count a further message. Raises BrokenRule, CorruptBody."""
        if offset:
            raise BrokenRule("offset", "a message to send has no offset")
        if time_us:
            raise BrokenRule("timestamp", "a message to send has no time of the server's")
        if not payload_bytes and not self._empty_payloads:
            raise CorruptBody("payload of 0 bytes")
        self._count += 1
        self._payload_bytes += payload_bytes
        self._times.add(sent_us)

    def headers(self, block: memoryview) -> None:
        """Check the headers of a message. Raises CorruptBody."""
        self._header_bytes += check_headers(block)

    def finished(self) -> BodyInfo:
        """Return the facts for the batch header. Raises CorruptBody, RecordTooLarge."""
        if not self._count:
            raise CorruptBody("request without a message")
        if self._payload_bytes > PAYLOAD_BYTES_MAX:
            raise RecordTooLarge(self._payload_bytes, PAYLOAD_BYTES_MAX)
        if self._header_bytes > HEADER_BYTES_MAX:
            raise RecordTooLarge(self._header_bytes, HEADER_BYTES_MAX)
        return self._times.info(self._count)


def record_end(view: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Return the start of the headers, and the end, of the record at `pos`. Raises CorruptBody."""
    if end - pos < HEAD.size:
        raise CorruptBody("record is cut short")
    headers, payload = SIZES.unpack_from(view, pos + SIZES_POS)
    stop = pos + HEAD.size + payload + headers
    if stop > end:
        raise CorruptBody("record is longer than its body")
    return stop - headers, stop


def read_headers(block: Buffer) -> list[Header]:
    """Return headers whose keys have kinds, without those kinds. Raises CorruptBody."""
    return [Header(name, value, kind) for _, name, kind, value in header_entries(block)]


def header_entries(block: Buffer) -> Iterator[tuple[int, bytes, int, bytes]]:
    """Yield kind of the key, key, kind of the value, value of each header. Raises CorruptBody."""
    pos, end = 0, len(block)
    try:
        while pos < end:
            key_kind, size = HEADER_ENTRY.unpack_from(block, pos)
            key_end = pos + HEADER_ENTRY.size + size
            kind, value_size = HEADER_ENTRY.unpack_from(block, key_end)
            value_pos = key_end + HEADER_ENTRY.size
            stop = value_pos + value_size
            if stop > end:
                raise CorruptBody("header is longer than its block")
            key = bytes(block[pos + HEADER_ENTRY.size : key_end])
            yield key_kind, key, kind, bytes(block[value_pos:stop])
            pos = stop
    except struct.error as error:
        raise CorruptBody("header is cut short") from error


def check_headers(block: Buffer) -> int:
    """Return the bytes of all header values in a block, checked by the rules of Iggy's server.

    Raises:
        CorruptBody: a key or value that is not 1 to 255 bytes, a text key that is not UTF-8, an
            unknown kind, or lengths that do not fill the block.
    """
    data = bytes(block)
    total, pos, end, entry = 0, 0, len(data), HEADER_ENTRY.unpack_from
    try:
        while pos < end:  # hot: see make bench
            key_kind, size = entry(data, pos)
            key_end = pos + HEADER_ENTRY.size + size
            key = data[pos + HEADER_ENTRY.size : key_end]
            kind, value_size = entry(data, key_end)
            pos = key_end + HEADER_ENTRY.size + value_size
            if not 1 <= size <= TEXT_BYTES_MAX or not 1 <= value_size <= TEXT_BYTES_MAX:
                raise CorruptBody(f"header key of {size} bytes, value of {value_size}")
            if not (FIRST_KIND <= key_kind <= LAST_KIND and FIRST_KIND <= kind <= LAST_KIND):
                raise CorruptBody(f"header kinds {key_kind} and {kind}")
            if key_kind == STRING_KIND and not key.isascii() and not is_text(key):
                raise CorruptBody("header key is not UTF-8")
            total += value_size
    except struct.error as error:
        raise CorruptBody("header is cut short") from error
    if pos > end:
        raise CorruptBody("header is longer than its block")
    return total


def pack_header(name: bytes, value: bytes, kind: int) -> bytes:
    """Return an encoded header."""
    return b"".join(
        (
            HEADER_ENTRY.pack(STRING_KIND, len(name)),
            name,
            HEADER_ENTRY.pack(kind, len(value)),
            value,
        )
    )


def _decode_records(
    data: bytes,
    pos: int,
    key: bytes | None,
    wanted: WantedRecords,
    decoded: Decoded,
) -> None:
    records, start_offset, records_max = decoded.records, wanted.start_offset, wanted.records_max
    end = len(data)
    while pos < end and len(records) < records_max:  # hot: see make bench
        headers_pos, stop = record_end(data, pos, end)
        _, message_id, offset, append_us, sent_us, _, _, _ = HEAD.unpack_from(data, pos)
        if offset >= start_offset:
            records.append(
                Record(
                    offset,
                    append_us,
                    sent_us if 0 < sent_us <= TIME_MAX_US else None,
                    None,
                    key,
                    data[pos + HEAD.size : headers_pos],
                    read_headers(data[headers_pos:stop]) if headers_pos < stop else (),
                    None,
                    None,
                    None,
                    int.from_bytes(message_id, "little"),
                )
            )
        decoded.next_offset = offset + 1
        pos = stop
