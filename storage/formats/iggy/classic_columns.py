"""Iggy messages in the layout of the classic dialects, as columns (FORMAT.md 8.4)."""

import struct
from collections.abc import Callable, Sequence

import numpy as np

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.records import Columns, HeaderSlices
from braidlog.storage.formats.columns.vectors import (
    Array,
    Irregular,
    RepeatedValues,
    Slices,
    arena_of,
    require,
    struct_at,
)
from braidlog.storage.formats.iggy.classic import RECORD_MIN, read_key

# offset, state, timestamp, id
HEAD = np.dtype(
    [
        ("offset", "<i8"),
        ("state", "u1"),
        ("time_us", "<i8"),
    ]
)
ID = np.dtype([("id", "u1", (16,))])
U32 = np.dtype([("size", "<u4")])
U32_AT = struct.Struct("<I")

ID_POS, HEADERS_SIZE_POS, HEADERS_POS = 17, 37, 41
EQUAL_MIN = 8


Walk = Callable[[Buffer, int], Array]
Layout = Callable[[bytes, Array, int], Columns]


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Return the records of all bodies. Raises Irregular for malformed bytes."""
    return keyed_columns(batches, _records, _columns)


def keyed_columns(batches: Sequence[Batch], walk: Walk, layout: Layout) -> Columns:
    """Return the records of bodies that begin with a partitioning key.

    `walk` finds the records after the key, `layout` reads their fields.
    """
    walks: list[Array] = []
    keys: list[bytes] = []
    codes = np.full(len(batches), -1, np.int32)
    pos = 0
    for number, batch in enumerate(batches):
        first, key = read_key(batch.body)
        if key is not None:
            codes[number] = len(keys)
            keys.append(key)
        walks.append(walk(batch.body, first) + pos)
        pos += len(batch.body)
    arena = arena_of([batch.body for batch in batches])
    counts = np.array([len(walk) for walk in walks])
    columns = layout(arena, np.concatenate(walks), pos)
    if keys:
        columns.key = RepeatedValues(np.repeat(codes, counts), keys)
    return columns


def equal_records(body: Buffer, pos: int, step: int, sizes_pos: int) -> Array | None:
    """Return the start of each record, if all have `step` bytes and both sizes of the first
    record.
    """
    count, rest = divmod(len(body) - pos, step)
    if rest or count < EQUAL_MIN:
        return None
    sizes = np.ndarray((count, 2), "<u4", body, pos + sizes_pos, (step, 4))
    return np.arange(pos, len(body), step) if (sizes == sizes[0]).all() else None


def _records(body: Buffer, pos: int) -> Array:
    """Return the start of each record."""
    end = len(body)
    length_at = U32_AT.unpack_from
    if end - pos >= RECORD_MIN and not length_at(body, pos + HEADERS_SIZE_POS)[0]:
        step = RECORD_MIN + length_at(body, pos + HEADERS_POS)[0]
        if (equal := equal_records(body, pos, step, HEADERS_SIZE_POS)) is not None:
            return equal
    starts: list[int] = []
    add = starts.append
    while pos < end:  # hot
        add(pos)
        payload_pos = pos + RECORD_MIN + length_at(body, pos + HEADERS_SIZE_POS)[0]
        pos = payload_pos + length_at(body, payload_pos - 4)[0]
    if pos != end:
        raise Irregular
    return np.array(starts, np.int64)


def _columns(arena: bytes, starts: Array, end: int) -> Columns:
    heads = struct_at(arena, HEAD, starts)
    headers_end = starts + HEADERS_POS + struct_at(arena, U32, starts + HEADERS_SIZE_POS)["size"]
    require(headers_end + 4 <= end)
    value_start = headers_end + 4
    value_end = value_start + struct_at(arena, U32, headers_end)["size"]
    return Columns(
        arena,
        heads["offset"].astype(np.int64),
        heads["time_us"].astype(np.int64),
        value=Slices(value_start, value_end),
        headers=headers_of(arena, starts + HEADERS_POS, headers_end),
        message_id=struct_at(arena, ID, starts + ID_POS)["id"],
    )


def headers_of(
    arena: bytes, starts: Array, ends: Array, key_kind_bytes: int = 0
) -> HeaderSlices | None:
    """Return the user headers of each row's block; each step reads a header of every row.

    Layout: a kind of the key in some dialects, key length u32, key, kind u8, value length u32,
    value (apache/iggy iggy/src/models/header.rs). Raises Irregular if lengths do not fill a block.
    """
    rows = np.flatnonzero(starts < ends)
    if not len(rows):
        return None
    pos, steps = starts[rows].astype(np.int64), []
    while len(rows):
        stops = ends[rows]
        pos = pos + key_kind_bytes
        require(pos + 9 <= stops)
        name_start = pos + 4
        name_end = name_start + struct_at(arena, U32, pos)["size"]
        require(name_end + 5 <= stops)
        kinds = np.frombuffer(arena, np.uint8)[name_end]
        value_start = name_end + 5
        value_end = value_start + struct_at(arena, U32, name_end + 1)["size"]
        require(value_end <= stops)
        steps.append((rows, name_start, name_end, value_start, value_end, kinds))
        going_on = value_end < stops
        rows, pos = rows[going_on], value_end[going_on]
    return HeaderSlices.of_steps(steps)
