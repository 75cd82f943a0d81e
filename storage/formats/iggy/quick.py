"""Handles many Iggy messages at once with the C extension: turns the messages of a SEND into stored
records, and stored records into another form.

A result of None means: use the functions of `iggy.py`, `iggy_typed.py` and `iggy_forms.py` that go
message by message. Either there is no extension, or something is unusual or wrong: they report it.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from braidlog.storage.formats.api import BodyInfo, Buffer
from braidlog.storage.formats.base import Converted, Stored, Wanted
from braidlog.storage.formats.quick import SPEEDUPS

# The most that a record grows by in another form: a message of a set has 26 bytes besides key and
# value, a record of the later form 64 and a header of 22 for the key. Headers, whose names get a
# kind, grow by a tenth at most.
GROWTH_BYTES, HEADERS_GROWTH = 64, 10
ID_BYTES = 16


class Form(enum.IntEnum):
    """How messages are laid out; the numbers are those of `enum form` in `speedups.c`."""

    SENT = 0  # by the classic dialects
    CLASSIC = 1  # body format 4
    TYPED = 2  # body format 5, and what crates 0.9 and 0.10 send
    FRAME = 3  # of a batch of crate 0.11
    KAFKA_SET = 4  # of format 0


@dataclass(slots=True, frozen=True)
class Limits:
    """Limits of one SEND: bytes of all payloads, and of all header values."""

    payload_bytes: int
    header_bytes: int


@dataclass(slots=True, frozen=True)
class StoredSend:
    """What is stored of a SEND; `checksums` are those that its frames came with."""

    body: bytearray
    info: BodyInfo
    checksums: bytearray


def stored_send(
    messages: Buffer,
    form: Form,
    head: bytes,
    stamps: tuple[int, int, int],
    limits: Limits,
    random_bytes: Callable[[int], bytes] | None,
) -> StoredSend | None:
    """`head` and the body of a SEND after it. `stamps`: base offset, append time, and the time that
    the time deltas of frames start from. Without `random_bytes`, ids of 0 stay.
    """
    base_offset, append_us, earliest_us = stamps
    found = SPEEDUPS.iggy_check(messages, form, earliest_us) if SPEEDUPS is not None else None
    if SPEEDUPS is None or found is None:
        return None
    count, missing, payload_bytes, header_bytes, size, first_us, latest_us = found
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


def made_over(
    records: Buffer, source: Form, target: Form, stored: Stored, wanted: Wanted
) -> Converted | None:
    """The wanted stored records, or messages of a Kafka set, in another stored form."""
    if SPEEDUPS is None:
        return None
    room = len(records) + len(records) // HEADERS_GROWTH + GROWTH_BYTES * stored.record_count
    body = bytearray(min(wanted.bytes_max, room))
    times = (0, 0)
    if source is Form.KAFKA_SET:
        times = (stored.append_us, stored.append_us)
    limits = (wanted.records_max, wanted.start_offset)
    _, end, *found = SPEEDUPS.iggy_write(
        records, source, 0, target, body, 0, *limits, 0, *times, b"", bytearray()
    )
    del body[end:]
    return Converted(body, *found)


@dataclass(slots=True, frozen=True)
class Run:
    """One batch of frames, with room for its head in front. `end` is where its records end in the
    input.
    """

    batch: bytearray
    checksums: bytearray
    count: int
    base_offset: int
    append_us: int
    earliest_us: int
    end: int


def run_at(records: Buffer, pos: int, count_max: int, head_bytes: int) -> Run | None:
    """Stored records from `pos` on, as many as one batch may hold."""
    if SPEEDUPS is None:
        return None
    count, base, append_us, earliest_us, size = SPEEDUPS.iggy_run(records, pos, count_max)
    if not count:
        return None
    batch, checksums = bytearray(head_bytes + size), bytearray(8 * count)
    place, less = (Form.FRAME, batch, head_bytes), (-base, 0, -earliest_us)
    end, *_ = SPEEDUPS.iggy_write(records, Form.TYPED, pos, *place, count, 0, *less, b"", checksums)
    return Run(batch, checksums, count, base, append_us, earliest_us, end)


def uuids(count: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """Random UUIDs of version 4, sixteen bytes each."""
    block = bytearray(random_bytes(ID_BYTES * count))
    block[6::16] = block[6::16].translate(_VERSION_4)
    block[8::16] = block[8::16].translate(_VARIANT_1)
    return bytes(block)


_VERSION_4 = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VARIANT_1 = bytes(byte & 0x3F | 0x80 for byte in range(256))
