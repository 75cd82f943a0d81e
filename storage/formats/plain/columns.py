"""Bodies that hold every field of a record, as columns (FORMAT.md 8.1)."""

import struct
from collections.abc import Sequence

import numpy as np

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.records import Columns, HeaderSlices
from braidlog.storage.formats.columns.vectors import (
    ABSENT,
    Array,
    Irregular,
    Slices,
    arena_of,
    chain,
    require,
    struct_at,
)
from braidlog.storage.formats.plain import codec as plain

HEAD = np.dtype([("size", "<u4"), ("delta", "<u4"), ("fields", "<u2"), ("reserved", "<u2")])
U32 = np.dtype([("size", "<u4")])
I64 = np.dtype([("number", "<i8")])
ID = np.dtype([("id", "u1", (16,))])
U32_AT = struct.Struct("<I")


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Return the records of all bodies. Raises Irregular; also for pieces of chunked messages."""
    walks: list[Array] = []
    pos = 0
    for batch in batches:
        walks.append(_records(batch.body) + pos)
        pos += len(batch.body)
    arena = arena_of([batch.body for batch in batches])
    counts = np.array([len(walk) for walk in walks])
    base = np.repeat([batch.base_offset for batch in batches], counts)
    append_us = np.repeat([batch.header.append_us for batch in batches], counts)
    return _ColumnReader(arena, np.concatenate(walks)).columns(base, append_us)


def _records(body: Buffer) -> Array:
    if (places := chain(body, 4, 0, is_big=False)) is not None:
        return places
    starts: list[int] = []
    add, size_at, pos, end = starts.append, U32_AT.unpack_from, 0, len(body)
    while pos < end:  # hot
        add(pos)
        pos += 4 + size_at(body, pos)[0]
    if pos != end:
        raise Irregular
    return np.array(starts, np.int64)


class _ColumnReader:
    """Reads an optional field of every row at a time, in stored order."""

    def __init__(self, arena: bytes, starts: Array) -> None:
        self._arena = arena
        heads = struct_at(arena, HEAD, starts)
        self._fields = heads["fields"].astype(np.int64)
        require((heads["reserved"] == 0) & (self._fields & ~plain.FIELDS == 0))
        require(self._fields & plain.CHUNKED == 0)
        self._delta = heads["delta"].astype(np.int64)
        self._pos = starts + HEAD.itemsize
        self._stops = starts + 4 + heads["size"]
        require(self._pos <= self._stops)

    def columns(self, base: Array, append_us: Array) -> Columns:
        """Return every field, read in the order of FORMAT.md."""
        columns = Columns(self._arena, base + self._delta, append_us)
        columns.publish_us = self._number(plain.PUBLISH)[0]
        columns.event_us = self._number(plain.EVENT)[0]
        columns.sequence_id, present = self._number(plain.SEQUENCE_ID)
        columns.sequence_absent = ~present
        columns.message_id = self._id()
        columns.key = self._sized(plain.KEY)
        columns.value = self._sized(plain.VALUE)
        columns.ordering_key = self._sized(plain.ORDERING_KEY)
        columns.producer_name = self._sized(plain.PRODUCER_NAME)
        columns.schema_version = self._sized(plain.SCHEMA_VERSION)
        columns.headers = self._headers()
        columns.deliver_at_us = self._number(plain.DELIVER_AT)[0]
        require(self._pos == self._stops)
        return columns

    def _take(self, rows: Array, sizes: Array | int) -> Array:
        """Advance these rows by `sizes` bytes; return their former positions."""
        began = self._pos[rows]
        self._pos[rows] = began + sizes
        require(self._pos[rows] <= self._stops[rows])
        return began

    def _rows(self, bit: int) -> tuple[Array, Array]:
        present = self._fields & bit != 0
        return present, np.flatnonzero(present)

    def _number(self, bit: int) -> tuple[Array, Array]:
        present, rows = self._rows(bit)
        numbers = np.full(len(present), ABSENT, np.int64)
        numbers[rows] = struct_at(self._arena, I64, self._take(rows, 8))["number"]
        return numbers, present

    def _id(self) -> Array | None:
        present, rows = self._rows(plain.MESSAGE_ID)
        if not len(rows):
            return None
        ids = np.zeros((len(present), 16), np.uint8)
        ids[rows] = struct_at(self._arena, ID, self._take(rows, 16))["id"]
        return ids

    def _sized(self, bit: int) -> Slices | None:
        present, rows = self._rows(bit)
        if not len(rows):
            return None
        starts, ends = np.full(len(present), -1), np.full(len(present), -1)
        starts[rows], ends[rows] = self._slices(rows)
        return Slices(starts, ends)

    def _slices(self, rows: Array) -> tuple[Array, Array]:
        sizes = struct_at(self._arena, U32, self._take(rows, 4))["size"].astype(np.int64)
        began = self._take(rows, sizes)
        return began, began + sizes

    def _headers(self) -> HeaderSlices | None:
        _, rows = self._rows(plain.HEADERS)
        if not len(rows):
            return None
        counts = struct_at(self._arena, U32, self._take(rows, 4))["size"].astype(np.int64)
        require(counts <= self._stops[rows] - self._pos[rows])
        steps: list[tuple[Array, ...]] = []
        going_on = counts > 0
        rows, counts = rows[going_on], counts[going_on]
        while len(rows):
            kinds = np.frombuffer(self._arena, np.uint8)[self._take(rows, 4)]
            steps.append((rows, *self._slices(rows), *self._slices(rows), kinds))
            counts = counts - 1
            rows, counts = rows[counts > 0], counts[counts > 0]
        return HeaderSlices.of_steps(steps) if steps else None
