"""Conversion between the stored form and other message forms of Iggy's later dialects.

Crates 0.7 and 0.8 have a 56-byte header and header keys without kinds; crate 0.11 sends batches
with a header of their own. The stored form is that of `typed.py`. Pure: bytes in, bytes out.
Layouts: apache/iggy, core/common/src/types/message/ (0.7, 0.8), core/binary_protocol (0.11).
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import SEQUENCE_MAX, BodyFormat, BodyInfo, Buffer, Prepared
from braidlog.storage.formats.iggy.classic import (
    NO_ID,
    fresh_ids,
    headers_of,
    pack_key,
)
from braidlog.storage.formats.iggy.quick import Form, frame_batches, stored_send
from braidlog.storage.formats.iggy.typed import (
    CHECKED_POS,
    HEAD,
    SEND_LIMITS,
    TIME_MAX_US,
    U64,
    BrokenRule,
    SendCheck,
    checksum_of,
    header_entries,
    pack_header,
    record_end,
)
from braidlog.storage.formats.record import HeaderKind

UNTYPED_HEAD = struct.Struct("<Q16sQQQII")  # As `iggy_typed.HEAD`, without its reserved field.
UNTYPED_ENTRY = struct.Struct("<BI")  # Kind and length of a value, after its key.
U32 = struct.Struct("<I")

# partition, base offset, append time, earliest client time, bytes of the batch, checksum, messages;
# zeros up to BATCH_HEAD_BYTES.
BATCH_HEAD = struct.Struct("<QQQQQQI")
BATCH_HEAD_BYTES = 256
# The producer of a batch of crate 0.12: a flag, id, epoch, sequence of the first message.
PRODUCER = struct.Struct("<B3sQHHI")
PRODUCER_CHECKED = struct.Struct("<BQHI")  # Its part in the checksum of the batch.
HAS_PRODUCER = 1
PRODUCER_ID_MAX, EPOCH_MAX = 2**63 - 1, 2**15 - 1
BATCH_RESERVED = bytes(BATCH_HEAD_BYTES - BATCH_HEAD.size)
# A batch's checksum covers these fields, then the checksums of frames.
BATCH_CHECKED = struct.Struct("<QQQQQI")
# checksum, id, offset delta, time delta, bytes of headers, bytes of payload, reserved.
FRAME_HEAD = struct.Struct("<Q16sIIIIQ")
DELTA_MAX = (1 << 32) - 1
ONE_BATCH_MAX = 10_000  # Messages. Building a batch of this size takes some milliseconds.
ONE_BATCH_BYTES_MAX = 1280 * 1024  # Or a single larger message.


def crc32_wide(message: Buffer) -> int:
    """Return the checksum of crate 0.7: zlib's CRC-32 in eight bytes."""
    return zlib.crc32(message)


def body_from_untyped(
    messages: Buffer,
    base_offset: int,
    append_us: int,
    *,
    key: bytes | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Prepared:
    """Build a body from the messages of a SEND of crate 0.7 or 0.8; see
    `iggy_typed.body_from_typed`.
    """
    view = memoryview(messages)
    parts: list[Buffer] = [pack_key(key)]
    check = SendCheck()
    ids = fresh_ids(random_bytes)
    pos, end, offset = 0, len(view), base_offset
    while pos < end:
        if end - pos < UNTYPED_HEAD.size:
            raise CorruptBody("message is cut short")
        _, message_id, sent_offset, time_us, sent_us, headers_bytes, payload_bytes = (
            UNTYPED_HEAD.unpack_from(view, pos)
        )
        headers_pos = pos + UNTYPED_HEAD.size + payload_bytes
        stop = headers_pos + headers_bytes
        if stop > end:
            raise CorruptBody("message is longer than its request")
        check.message(sent_offset, time_us, sent_us, payload_bytes)
        headers = typed_headers(view[headers_pos:stop]) if headers_bytes else b""
        if headers:
            check.headers(memoryview(headers))
        parts.extend(
            _record(
                next(ids) if message_id == NO_ID else message_id,
                (offset, append_us, sent_us),
                view[pos + UNTYPED_HEAD.size : headers_pos],
                headers,
            )
        )
        offset += 1
        pos = stop
    return Prepared(b"".join(parts), check.finished(), BodyFormat.IGGY_TYPED)


def untyped(records: memoryview, digest: Callable[[Buffer], int]) -> bytes:
    """Return stored records in the poll form of crates 0.7 (`crc32_wide`) and 0.8
    (`checksum_of`).
    """
    parts: list[Buffer] = []
    pos, end = 0, len(records)
    while pos < end:  # hot: see make bench
        headers_pos, stop = record_end(records, pos, end)
        _, message_id, offset, append_us, sent_us, headers_bytes, payload_bytes, _ = (
            HEAD.unpack_from(records, pos)
        )
        headers = untyped_headers(records[headers_pos:stop]) if headers_bytes else b""
        head = UNTYPED_HEAD.pack(
            0, message_id, offset, append_us, sent_us, len(headers), payload_bytes
        )
        payload = records[pos + HEAD.size : headers_pos]
        checked = b"".join((head[CHECKED_POS:], payload, headers))
        parts += (U64.pack(digest(checked)), checked)
        pos = stop
    return b"".join(parts)


def typed_headers(block: Buffer) -> bytes:
    """Convert headers whose keys have no kind to headers with text keys. Raises CorruptBody."""
    return b"".join(
        pack_header(header.name, header.value, header.kind) for header in headers_of(block)
    )


def untyped_headers(block: Buffer) -> bytes:
    """Return headers without the kinds of their keys; omit headers whose keys are not text."""
    parts: list[Buffer] = []
    for key_kind, key, kind, value in header_entries(block):
        if key_kind == HeaderKind.STRING:
            parts += (U32.pack(len(key)), key, UNTYPED_ENTRY.pack(kind, len(value)), value)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class BatchProducer:
    """The idempotent producer of a batch; `sequence` is that of the first message."""

    producer_id: int
    epoch: int
    sequence: int

    @property
    def checked(self) -> bytes:
        """Return the bytes that the checksum of the batch covers."""
        return PRODUCER_CHECKED.pack(HAS_PRODUCER, self.producer_id, self.epoch, self.sequence)

    def last_sequence(self, count: int) -> int:
        """Return the sequence of the last of `count` messages."""
        return (self.sequence + count - 1) & SEQUENCE_MAX


def producer_of(batch: Buffer) -> BatchProducer | None:
    """Return the producer of a batch of crate 0.12, None for a batch without a producer.

    Raises CorruptBody.
    """
    section = memoryview(batch)[BATCH_HEAD.size : BATCH_HEAD.size + PRODUCER.size]
    if len(section) < PRODUCER.size:
        raise CorruptBody("batch is cut short")
    flags, zero, producer_id, epoch, more, sequence = PRODUCER.unpack(section)
    if not flags:
        if any(section):
            raise CorruptBody("a batch without a producer has an id, an epoch or a sequence")
        return None
    is_known = flags == HAS_PRODUCER and not any(zero) and not more
    if not is_known or producer_id > PRODUCER_ID_MAX or epoch > EPOCH_MAX:
        raise CorruptBody(f"producer {producer_id} with flags {flags} and epoch {epoch}")
    if sequence > SEQUENCE_MAX:
        raise CorruptBody(f"sequence {sequence} exceeds {SEQUENCE_MAX}")
    return BatchProducer(producer_id, epoch, sequence)


def body_from_batch(
    batch: Buffer,
    count: int,
    base_offset: int,
    append_us: int,
    *,
    key: bytes | None = None,
    producer: BatchProducer | None = None,
) -> Prepared:
    """Check the batch of `count` messages in a SEND of crate 0.11 or 0.12, and build the body.

    `producer` is that of the batch: crate 0.11 has none. Empty payloads and ids of 0 stay, as in
    Iggy.

    Raises:
        BrokenRule: a checksum is wrong, or the client set a field that only the server may set.
        CorruptBody, RecordTooLarge: as `iggy_typed.body_from_typed`.
    """
    view, head = memoryview(batch), pack_key(key)
    sent_us = _check_batch(view, count, has_producer=producer is not None)
    section = b"" if producer is None else producer.checked
    stored = None
    if sent_us <= TIME_MAX_US:
        stamps = (base_offset, append_us, sent_us)
        frames = view[BATCH_HEAD_BYTES:]
        stored = stored_send(frames, Form.FRAME, head, stamps, SEND_LIMITS, None)
    if stored is not None and stored.info.record_count == count:
        checked = b"".join((view[:40], view[48:52], section, stored.checksums))
        if checksum_of(checked) == BATCH_HEAD.unpack_from(view)[5]:
            return Prepared(stored.body, stored.info, BodyFormat.IGGY_TYPED)
    body, info = body_one_by_one(view, head, base_offset, append_us, sent_us, section)
    return Prepared(body, info, BodyFormat.IGGY_TYPED)


def body_one_by_one(
    view: memoryview,
    head: bytes,
    base_offset: int,
    append_us: int,
    sent_us: int,
    section: bytes = b"",
) -> tuple[bytes, BodyInfo]:
    """Return the body of a batch whose own head is sound, with `head` before its records.

    `sent_us` is the batch's time, `section` the checked bytes of its producer. Raises as
    `body_from_batch`. Tests compare the fast path with this.
    """
    count = BATCH_HEAD.unpack_from(view)[6]
    parts: list[Buffer] = [head]
    check = SendCheck(empty_payloads=True)
    checked = bytearray(view[:40])  # Partition, offsets, times and length, as received.
    checked += view[48:52]
    checked += section
    pos, end, number = BATCH_HEAD_BYTES, len(view), 0
    while pos < end:  # hot: see make bench
        if end - pos < FRAME_HEAD.size:
            raise CorruptBody("message is cut short")
        checksum, message_id, delta, time_delta, headers_bytes, payload_bytes, reserved = (
            FRAME_HEAD.unpack_from(view, pos)
        )
        payload_pos = pos + FRAME_HEAD.size
        headers_pos = payload_pos + payload_bytes
        stop = headers_pos + headers_bytes
        if stop > end:
            raise CorruptBody("message is longer than its batch")
        if checksum != checksum_of(view[pos + CHECKED_POS : stop]):
            raise BrokenRule("message_checksum", f"checksum of message {number}")
        if delta != number or reserved:
            raise CorruptBody(f"offset {delta} of message {number}")
        check.message(0, 0, sent_us + time_delta, payload_bytes)
        headers = view[headers_pos:stop]
        if headers_bytes:
            check.headers(headers)
        stamps = (base_offset + number, append_us, sent_us + time_delta)
        parts.extend(_record(message_id, stamps, view[payload_pos:headers_pos], headers))
        checked += view[pos : pos + CHECKED_POS]
        number += 1
        pos = stop
    if number != count:
        raise CorruptBody(f"{number} messages in a batch of {count}")
    if checksum_of(checked) != BATCH_HEAD.unpack_from(view)[5]:
        raise BrokenRule("batch_checksum", "checksum of the batch")
    return b"".join(parts), check.finished()


def fresh_memory(size: int) -> memoryview:
    """Return writable memory of that size."""
    return memoryview(bytearray(size))


def batches(
    records: memoryview, partition: int, memory: Callable[[int], memoryview] = fresh_memory
) -> Iterator[Buffer]:
    """Yield stored records in the poll form of crate 0.11: a batch for each run of equal append
    times; one or more batches at a time, in writable memory from `memory`. Raises CorruptBody.
    """
    pos, end = 0, len(records)
    limits = ONE_BATCH_MAX, ONE_BATCH_BYTES_MAX
    while pos < end:
        room = memory(min(BATCH_HEAD_BYTES + end - pos, ONE_BATCH_BYTES_MAX))
        written = frame_batches(records, pos, partition, limits, room)
        if written is None:  # No extension, a record that is wrong, or larger than a batch.
            yield from batches_one_by_one(records[pos:], partition)
            return
        size, pos = written
        yield room[:size]


def batch_head(known: tuple[int, int, int, int, int], count: int, checksums: Buffer) -> bytes:
    """Return the head of a batch of `count` messages, without the zeros at the end.

    `known` are the first fields.
    """
    checked = b"".join((BATCH_CHECKED.pack(*known, count), checksums))
    return BATCH_HEAD.pack(*known, checksum_of(checked), count)


def batches_one_by_one(records: memoryview, partition: int) -> Iterator[bytes]:
    """Yield the same as `batches`, message by message. Tests compare the fast path with this."""
    run = _BatchMessages(partition)
    pos, end = 0, len(records)
    while pos < end:  # hot: see make bench
        _, stop = record_end(records, pos, end)
        _, message_id, offset, append_us, sent_us, headers_bytes, payload_bytes, _ = (
            HEAD.unpack_from(records, pos)
        )
        sizes = (headers_bytes, payload_bytes)
        if not run.takes(offset, append_us, sent_us, FRAME_HEAD.size + sum(sizes)):
            yield run.packed()
            run = _BatchMessages(partition)
        run.add((offset, append_us, sent_us), message_id, sizes, records[pos + HEAD.size : stop])
        pos = stop
    if run.messages:
        yield run.packed()


@dataclass(slots=True)
class _BatchMessages:
    """Messages of a batch."""

    partition: int
    base_offset: int = 0
    append_us: int = 0
    first_us: int = 0
    latest_us: int = 0
    size: int = BATCH_HEAD_BYTES
    messages: list[tuple[int, int, bytes, tuple[int, int], Buffer]] = field(default_factory=list)

    def takes(self, offset: int, append_us: int, sent_us: int, size: int) -> bool:
        """Return True if a message of `size` bytes in a batch fits into this batch."""
        if not self.messages:
            return True
        spread = max(self.latest_us, sent_us) - min(self.first_us, sent_us)
        near = offset - self.base_offset <= DELTA_MAX and spread <= DELTA_MAX
        few = len(self.messages) < ONE_BATCH_MAX and self.size + size <= ONE_BATCH_BYTES_MAX
        return near and few and append_us == self.append_us

    def add(
        self, stamps: tuple[int, int, int], message_id: bytes, sizes: tuple[int, int], rest: Buffer
    ) -> None:
        """Append a message that `takes` allows."""
        offset, append_us, sent_us = stamps
        if not self.messages:
            self.base_offset, self.append_us = offset, append_us
            self.first_us = self.latest_us = sent_us
        elif sent_us < self.first_us:
            self.first_us = sent_us
        elif sent_us > self.latest_us:
            self.latest_us = sent_us
        self.size += FRAME_HEAD.size + len(rest)
        self.messages.append((offset, sent_us, message_id, sizes, rest))

    def packed(self) -> bytes:
        """Return the bytes of the batch."""
        parts: list[Buffer] = []
        checksums: list[bytes] = []
        for offset, sent_us, message_id, (headers_bytes, payload_bytes), rest in self.messages:
            head = FRAME_HEAD.pack(
                0,
                message_id,
                offset - self.base_offset,
                sent_us - self.first_us,
                headers_bytes,
                payload_bytes,
                0,
            )
            checked = b"".join((head[CHECKED_POS:], rest))
            checksum = U64.pack(checksum_of(checked))
            checksums.append(checksum)
            parts += (checksum, checked)
        count = len(self.messages)
        known = (self.partition, self.base_offset, self.append_us, self.first_us, self.size)
        head = batch_head(known, count, b"".join(checksums))
        return b"".join((head.ljust(BATCH_HEAD_BYTES, b"\0"), *parts))


def _check_batch(view: memoryview, count: int, *, has_producer: bool) -> int:
    """Check a batch's head; return its earliest client time. Raises BrokenRule, CorruptBody."""
    if len(view) < BATCH_HEAD_BYTES:
        raise CorruptBody("batch is cut short")
    partition, offset, append_us, sent_us, size, _, messages = BATCH_HEAD.unpack_from(view)
    if size != len(view) or messages != count:
        raise CorruptBody(f"batch of {size} bytes and {messages} messages")
    if partition or offset:
        raise BrokenRule("offset", "a batch to send has no partition and offset")
    if append_us:
        raise BrokenRule("timestamp", "a batch to send has no time of the server's")
    skipped = PRODUCER.size if has_producer else 0
    if view[BATCH_HEAD.size + skipped : BATCH_HEAD_BYTES] != BATCH_RESERVED[skipped:]:
        raise CorruptBody("reserved bytes of a batch are not zero")
    return int(sent_us)


def _record(
    message_id: bytes, stamps: tuple[int, int, int], payload: Buffer, headers: Buffer
) -> tuple[bytes, bytes]:
    """Return a stored record: checksum, then the rest. `stamps`: offset, append time, client time.

    A client time above the u64 range becomes the greatest u64.
    """
    offset, append_us, sent_us = stamps
    if sent_us >> 64:
        sent_us = (1 << 64) - 1
    head = HEAD.pack(0, message_id, offset, append_us, sent_us, len(headers), len(payload), 0)
    checked = b"".join((head[CHECKED_POS:], payload, headers))
    return U64.pack(checksum_of(checked)), checked
