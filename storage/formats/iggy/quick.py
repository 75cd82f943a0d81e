"""Handles many Iggy messages at once with the C extension: converts the messages of a SEND to
stored records, and stored records to another form.

A result of None means: use the functions of `classic.py`, `typed.py` and `forms.py` that go message
by message. Either the extension is missing, or the input is unusual or wrong: those functions
report errors.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from braidlog.storage.formats.api import BodyInfo, Buffer
from braidlog.storage.formats.base import Converted, Stored, WantedRecords
from braidlog.storage.formats.quick import SPEEDUPS

# Largest growth of a record in another form: a message of a set has 26 bytes besides key and value,
# a record of the later form 64 and a header of 22 for the key. Headers, whose names get a kind,
# grow by a tenth at most.
GROWTH_BYTES, HEADERS_GROWTH = 64, 10
ID_BYTES = 16


class Form(enum.IntEnum):
    """Layout of messages; the numbers are those of `enum form` in `speedups.c`."""

    SENT = 0  # form of a SEND of the classic dialects
    CLASSIC = 1  # body format 4
    TYPED = 2  # body format 5, and the SEND form of crates 0.9 and 0.10
    FRAME = 3  # of a batch of crate 0.11
    KAFKA_SET = 4  # of format 0


@dataclass(slots=True, frozen=True)
class SendLimits:
    """Limits of a SEND: bytes of all payloads, and of all header values."""

    payload_bytes: int
    header_bytes: int


@dataclass(slots=True, frozen=True)
class StoredSend:
    """The stored part of a SEND; `checksums` are those of the received frames."""

    body: bytearray
    info: BodyInfo
    checksums: bytearray


def stored_send(
    messages: Buffer,
    form: Form,
    head: bytes,
    stamps: tuple[int, int, int],
    limits: SendLimits,
    random_bytes: Callable[[int], bytes] | None,
) -> StoredSend | None:
    """Return `head` followed by the body of a SEND.

    `stamps`: base offset, append time, and the base of the time deltas of frames. Without
    `random_bytes`, ids of 0 stay.
    """
    base_offset, append_us, earliest_us = stamps
    scanned = SPEEDUPS.iggy_check(messages, form, earliest_us) if SPEEDUPS is not None else None
    if SPEEDUPS is None or scanned is None:
        return None
    count, missing, payload_bytes, header_bytes, size, first_us, latest_us = scanned
    if payload_bytes > limits.payload_bytes or header_bytes > limits.header_bytes:
        return None
    ids = uuids(missing, random_bytes) if missing and random_bytes is not None else b""
    body = bytearray(len(head) + size)
    body[: len(head)] = head
    checksums = bytearray(8 * count if form is Form.FRAME else 0)
    target = Form.CLASSIC if form is Form.SENT else Form.TYPED
    times = (append_us, earliest_us)
    place = (target, body, len(head))
    SPEEDUPS.iggy_write(messages, form, 0, *place, count, 0, base_offset, *times, ids, checksums)
    return StoredSend(body, BodyInfo(count, first_us or None, latest_us or None), checksums)


def reencoded(
    records: Buffer, source: Form, target: Form, stored: Stored, wanted: WantedRecords
) -> Converted | None:
    """Convert the wanted stored records, or messages of a Kafka set, to another stored form."""
    if SPEEDUPS is None:
        return None
    room = len(records) + len(records) // HEADERS_GROWTH + GROWTH_BYTES * stored.record_count
    body = bytearray(min(wanted.bytes_max, room))
    times = (0, 0)
    if source is Form.KAFKA_SET:
        times = (stored.append_us, stored.append_us)
    limits = (wanted.records_max, wanted.start_offset)
    _, end, *counts = SPEEDUPS.iggy_write(
        records, source, 0, target, body, 0, *limits, 0, *times, b"", bytearray()
    )
    del body[end:]
    return Converted(body, *counts)


def frame_batches(
    records: Buffer, pos: int, partition: int, limits: tuple[int, int], room: memoryview
) -> tuple[int, int] | None:
    """Write stored records from `pos` on as batches of frames; return the written bytes, and the
    end of the written records.

    `limits` are the records and the bytes of a batch.
    """
    if SPEEDUPS is None:
        return None
    written, end = SPEEDUPS.iggy_batches(records, pos, partition, *limits, room)
    return (written, end) if written else None


def uuids(count: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return random UUIDs of version 4, sixteen bytes each."""
    block = bytearray(random_bytes(ID_BYTES * count))
    block[6::16] = block[6::16].translate(_VERSION_4)
    block[8::16] = block[8::16].translate(_VARIANT_1)
    return bytes(block)


_VERSION_4 = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VARIANT_1 = bytes(byte & 0x3F | 0x80 for byte in range(256))
