"""What readers of other formats get in the place of records that cannot be opened, or that their
format cannot carry, by the topic's settings `unreadable_records` and `uncarried_records`. Knows
formats only through the codec interface.

Offsets stay as they are, so a position moves over what is skipped. These settings do not cover
damage on the disk: that is always an error.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from braidlog.storage.errors import BodyError, UnreadableBody
from braidlog.storage.formats.api import Buffer, Decoded
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.batch import Batch
from braidlog.storage.log.settings import UnreadableRecords

RAW_HEADER = b"braidlog.raw"  # Its value is the name of the stored format.
UNKNOWN_FORMAT = b"unknown"

VALUE_HEADER = b"braidlog.value"
MARK = b"\0"


class Passed(NamedTuple):
    """Offsets `[start, end)` that could not be opened, and were not refused."""

    start: int
    end: int
    is_raw: bool  # One record of their bytes is given, at the last offset; else nothing.


class _Entry(NamedTuple):
    """What could not be opened: its bytes, and the offset after it."""

    body: Buffer
    end: int
    format_name: bytes


def settle(policy: UnreadableRecords, batch: Batch, decoded: Decoded) -> Passed | None:
    """Go on after what could not be opened, as the setting says; None if nothing failed, or if it
    stays an error.

    `decoded` is of this batch; a record of raw bytes is added after its others.
    """
    offset = decoded.failed_offset
    if decoded.failed is None or offset is None or policy is UnreadableRecords.REFUSE:
        return None
    found = _entry_at(batch, offset)
    is_raw = policy is UnreadableRecords.RAW
    if is_raw:
        header = Header(RAW_HEADER, found.format_name)
        append_us = batch.header.append_us
        # As a chunked message: whoever goes on behind it does not come to it again.
        last = found.end - 1
        record = Record(last, append_us, value=bytes(found.body), headers=(header,))
        decoded.records = [*decoded.records, record]
    decoded.failed = decoded.failed_offset = None
    decoded.next_offset = found.end
    return Passed(offset, found.end, is_raw)


def _entry_at(batch: Batch, offset: int) -> _Entry:
    """The stored entry that holds the offset; the whole body if its entries cannot be found."""
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
    start = starts[0][1] + getattr(codec, "entry_head_bytes", 0)
    if len(starts) == 1:
        return _Entry(body[start:], batch.next_offset, name)
    end_offset, stop = starts[1]
    return _Entry(body[start:stop], end_offset, name)


def cannot_decode(batch: Batch, offset: int, error: BodyError) -> Decoded:
    """The result of decoding a format that no codec here knows."""
    first = max(offset, batch.base_offset)
    return Decoded(next_offset=first, failed=error, failed_offset=first)


def marked(record: Record) -> Record:
    """A copy of a record with an absent or empty value: its value is one zero byte, and a last
    header says which it was.
    """
    said = b"absent" if record.value is None else b"empty"
    header = Header(VALUE_HEADER, said, HeaderKind.STRING)
    return replace(record, value=MARK, headers=(*record.headers, header))
