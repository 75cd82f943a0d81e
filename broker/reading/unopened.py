"""Replaces records that cannot be opened or that the reader's format cannot carry.

The topic's settings `unreadable_records` and `uncarried_records` choose the replacement. Knows
formats only through the codec interface. Offsets stay unchanged, so a position moves past skipped
records. The settings do not cover damage on the disk, which is always an error.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from braidlog.storage.errors import BodyError, UnreadableBody
from braidlog.storage.formats.api import Buffer, Decoded
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.settings import UnreadableRecords

RAW_HEADER = b"braidlog.raw"  # Header whose value is the name of the stored format.
UNKNOWN_FORMAT = b"unknown"

VALUE_HEADER = b"braidlog.value"
MARK = b"\0"


class Passed(NamedTuple):
    """Offsets `[start, end)` that could not be opened and were not refused."""

    start: int
    end: int
    is_raw: bool  # True: a record of their bytes stands at the last offset; False: nothing.


class _Entry(NamedTuple):
    """An entry that could not be opened: its bytes, and the offset after the entry."""

    body: Buffer
    end: int
    format_name: bytes


def pass_unreadable(policy: UnreadableRecords, batch: Batch, decoded: Decoded) -> Passed | None:
    """Continue after an unreadable entry, as the setting says.

    None if nothing failed or the failure stays an error. `decoded` belongs to this batch; a record
    of raw bytes is added after its other records.
    """
    offset = decoded.failed_offset
    if decoded.failed is None or offset is None or policy is UnreadableRecords.REFUSE:
        return None
    entry = _entry_at(batch, offset)
    is_raw = policy is UnreadableRecords.RAW
    if is_raw:
        header = Header(RAW_HEADER, entry.format_name)
        append_us = batch.header.append_us
        # As for a chunked message: a reader that continues behind the record never sees it again.
        last = entry.end - 1
        record = Record(last, append_us, value=bytes(entry.body), headers=(header,))
        decoded.records = [*decoded.records, record]
    decoded.failed = decoded.failed_offset = None
    decoded.next_offset = entry.end
    return Passed(offset, entry.end, is_raw)


def _entry_at(batch: Batch, offset: int) -> _Entry:
    """Return the stored entry that holds the offset; the whole body if entries cannot be found."""
    body = memoryview(batch.body)
    try:
        codec = codec_for(batch.header.body_format)
    except UnreadableBody:
        return _Entry(body, batch.next_offset, UNKNOWN_FORMAT)
    name = codec.name.encode()
    try:
        starts = codec.split(body, batch.base_offset, start_offset=offset, starts_max=2)
    except BodyError:
        return _Entry(body, batch.next_offset, name)
    if not starts:
        return _Entry(body, batch.next_offset, name)
    start = starts[0][1] + codec.entry_head_bytes
    if len(starts) == 1:
        return _Entry(body[start:], batch.next_offset, name)
    end_offset, stop = starts[1]
    return _Entry(body[start:stop], end_offset, name)


def cannot_decode(batch: Batch, offset: int, error: BodyError) -> Decoded:
    """Return the result of decoding a format without a codec in this broker."""
    first = max(offset, batch.base_offset)
    return Decoded(next_offset=first, failed=error, failed_offset=first)


def marked(record: Record) -> Record:
    """Copy a record that has an absent or empty value: the new value is a zero byte.

    A last header tells absent from empty.
    """
    state = b"absent" if record.value is None else b"empty"
    header = Header(VALUE_HEADER, state, HeaderKind.STRING)
    return replace(record, value=MARK, headers=(*record.headers, header))
