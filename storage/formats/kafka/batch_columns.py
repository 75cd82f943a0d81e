"""Kafka record batches, format 2, as columns (FORMAT.md, KAFKA_BATCHES). Knows bytes and numpy."""

from array import array
from collections.abc import Sequence

import numpy as np

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.protobuf import varints
from braidlog.storage.formats.columns.records import Columns, HeaderSlices
from braidlog.storage.formats.columns.vectors import (
    ABSENT,
    ARENA_BYTES_MAX,
    Array,
    Irregular,
    Slices,
    arena_of,
    require,
)
from braidlog.storage.formats.kafka.record_batches import (
    APPEND_TIME,
    CONTROL,
    TIME_MS_MAX,
    US_PER_MS,
    opened,
    refs,
    us_of,
)
from braidlog.storage.formats.kafka.records import RECORD_HEADERS_MAX, read_varint
from braidlog.storage.formats.record import HeaderKind

# Times and time differences below this can be added without an overflow.
SUM_MAX = 1 << 62

# Of each batch: base offset, last offset delta, base time in ms, time of all records in
# microseconds or ABSENT, append time in microseconds, count.
_Head = tuple[int, int, int, int, int, int]


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Return the records of all batches. Raises Irregular, BodyError, IndexError for damaged
    bytes.
    """
    parts: list[Buffer] = []
    heads: list[_Head] = []
    starts, stops = array("q"), array("q")  # A list would take five times as much.
    place, left = 0, ARENA_BYTES_MAX
    for batch in batches:
        append_us = batch.header.append_us
        for ref in refs(batch.body):
            if ref.attributes & CONTROL:
                continue
            part = opened(batch.body, ref, left)
            left -= len(part)
            _find_records(part, ref.count, place, starts, stops)
            all_us = us_of(ref.max_ms) if ref.attributes & APPEND_TIME else None
            one_time = ABSENT if all_us is None else all_us
            delta = ref.last_offset_delta
            heads.append((ref.base_offset, delta, ref.base_ms, one_time, append_us, ref.count))
            parts.append(part)
            place += len(part)
    arena = arena_of(parts)
    parts.clear()
    rows = _Rows(arena, np.array(starts), np.array(stops))
    return rows.columns(np.array(heads, np.int64).reshape(-1, 6))


def _find_records(
    part: Buffer, count: int, place: int, starts: "array[int]", stops: "array[int]"
) -> None:
    """Append the start of each record, after its length, and its end."""
    pos, end = 0, len(part)
    for _ in range(count):  # hot
        first = part[pos]
        if first < 0x80:
            size, pos = first, pos + 1
        elif (second := part[pos + 1]) < 0x80:
            size, pos = first & 0x7F | second << 7, pos + 2
        else:
            length, pos = read_varint(part, pos)
            size = length << 1
        if size & 1 or size < 0:
            raise Irregular
        starts.append(place + pos)
        pos += size >> 1
        stops.append(place + pos)
    if pos != end:
        raise Irregular


class _Rows:
    """Reads the next field of every record at a time."""

    def __init__(self, arena: bytes, starts: Array, stops: Array) -> None:
        self._arena = arena
        self._data = np.frombuffer(arena, np.uint8)
        self._pos = starts + 1  # Skips the attributes, which have no meaning.
        self._stops = stops

    def columns(self, heads: Array) -> Columns:
        """Return every field, in stored order."""
        base, last_delta, base_ms, one_time, append_us, counts = heads.T
        batch = np.repeat(np.arange(len(heads)), counts)
        every = np.arange(len(batch))
        time_delta = self._number(every)
        delta = self._number(every)
        require((delta >= 0) & (delta <= last_delta[batch]))
        require((delta[1:] > delta[:-1]) | (batch[1:] != batch[:-1]))
        columns = Columns(self._arena, base[batch] + delta, append_us[batch])
        times = _times_us(base_ms[batch], time_delta)
        columns.publish_us = np.where(one_time[batch] == ABSENT, times, one_time[batch])
        columns.key = self._sized(every)
        columns.value = self._sized(every)
        columns.headers = self._headers(every)
        require(self._pos == self._stops)
        return columns

    def _number(self, rows: Array) -> Array:
        """Return a zig-zag number of these rows."""
        zigzag, self._pos[rows] = varints(self._data, self._pos[rows], self._stops[rows])
        half = (zigzag >> np.uint64(1)).astype(np.int64)
        return half ^ -(zigzag & np.uint64(1)).astype(np.int64)

    def _sized(self, rows: Array) -> Slices:
        sizes = self._number(rows)
        began = self._pos[rows]
        require(sizes <= self._stops[rows] - began)
        ends = began + np.maximum(sizes, 0)
        self._pos[rows] = ends
        return Slices(np.where(sizes < 0, -1, began), ends)

    def _headers(self, rows: Array) -> HeaderSlices | None:
        counts = self._number(rows)
        require((counts >= 0) & (counts <= RECORD_HEADERS_MAX))
        steps: list[tuple[Array, ...]] = []
        rows, counts = rows[counts > 0], counts[counts > 0]
        while len(rows):
            name, value = self._sized(rows), self._sized(rows)
            kinds = np.full(len(rows), int(HeaderKind.STRING))
            steps.append((rows, *_empty_if_null(name), *_empty_if_null(value), kinds))
            counts = counts - 1
            rows, counts = rows[counts > 0], counts[counts > 0]
        return HeaderSlices.of_steps(steps) if steps else None


def _empty_if_null(slices: Slices) -> tuple[Array, Array]:
    """Replace null by empty: no other protocol has headers with null values."""
    return np.where(slices.starts < 0, slices.ends, slices.starts), slices.ends


def _times_us(base_ms: Array, delta_ms: Array) -> Array:
    """Return microseconds, ABSENT for Kafka's -1, which is no time."""
    require((base_ms > -SUM_MAX) & (base_ms < SUM_MAX))
    require((delta_ms > -SUM_MAX) & (delta_ms < SUM_MAX))
    times_ms = base_ms + delta_ms
    capped = np.clip(times_ms, -TIME_MS_MAX, TIME_MS_MAX) * US_PER_MS
    return np.where(times_ms == -1, ABSENT, capped)
