"""Iggy messages of the later dialects as columns (FORMAT.md 8.7)."""

from collections.abc import Sequence

import numpy as np

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.records import Columns
from braidlog.storage.formats.columns.vectors import (
    ABSENT,
    Array,
    Irregular,
    Slices,
    require,
    struct_at,
)
from braidlog.storage.formats.iggy.classic_columns import equal_records, headers_of, keyed_columns
from braidlog.storage.formats.iggy.typed import HEAD, SIZES, SIZES_POS

ID = np.dtype([("id", "u1", (16,))])
TIMES = np.dtype([("offset", "<i8"), ("time_us", "<i8"), ("sent_us", "<i8")])
LENGTHS = np.dtype([("headers", "<u4"), ("payload", "<u4")])

ID_POS, TIMES_POS = 8, 24


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Return the records of all bodies. Raises Irregular for malformed bytes."""
    return keyed_columns(batches, _records, _columns)


def _records(body: Buffer, pos: int) -> Array:
    """Return the start of each record."""
    end, sizes_at = len(body), SIZES.unpack_from
    if end - pos >= HEAD.size:
        step = HEAD.size + sum(sizes_at(body, pos + SIZES_POS))
        if (equal := equal_records(body, pos, step, SIZES_POS)) is not None:
            return equal
    starts: list[int] = []
    add = starts.append
    while pos < end:  # hot
        add(pos)
        headers, payload = sizes_at(body, pos + SIZES_POS)
        pos += HEAD.size + headers + payload
    if pos != end:
        raise Irregular
    return np.array(starts, np.int64)


def _columns(arena: bytes, starts: Array, end: int) -> Columns:
    require(starts + HEAD.size <= end)
    times = struct_at(arena, TIMES, starts + TIMES_POS)
    lengths = struct_at(arena, LENGTHS, starts + SIZES_POS)
    value_start = starts + HEAD.size
    value_end = value_start + lengths["payload"]
    headers_end = value_end + lengths["headers"]
    sent_us = times["sent_us"]  # A time beyond the log's range is negative here.
    return Columns(
        arena,
        times["offset"].astype(np.int64),
        times["time_us"].astype(np.int64),
        publish_us=np.where(sent_us > 0, sent_us, ABSENT),
        value=Slices(value_start, value_end),
        headers=headers_of(arena, value_end, headers_end, key_kind_bytes=1),
        message_id=struct_at(arena, ID, starts + ID_POS)["id"],
    )
