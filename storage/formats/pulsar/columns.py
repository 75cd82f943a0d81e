"""Runs of Pulsar entries as columns (FORMAT.md 8.3): metadata of all entries at once, then batches.

Field numbers are those of PulsarEntry.proto. Pieces of chunked messages, markers and encrypted
entries never arrive here: the flags of their batches send them to the plain codec.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.protobuf import BYTES, Scanned, scan
from braidlog.storage.formats.columns.records import Columns, HeaderSlices
from braidlog.storage.formats.columns.vectors import (
    ABSENT,
    ARENA_BYTES_MAX,
    Array,
    Irregular,
    RepeatedValues,
    Slices,
    arena_of,
    require,
    struct_at,
)
from braidlog.storage.formats.pulsar.entry import TIME_MS_MAX, read_metadata, unpack
from braidlog.storage.formats.pulsar.entry_runs import entries
from braidlog.storage.formats.record import HeaderKind

PREFIX = struct.Struct("<III")  # length, first offset delta, record count
U32 = np.dtype([("size", ">u4")])
U32_AT = struct.Struct(">I")
CHECKED = 0x0E01
CHECKED_SIZE_POS, PLAIN_SIZE_POS = 6, 0

# Fields of an entry's metadata.
PRODUCER, SEQUENCE, PUBLISH, PROPERTIES, KEY = 1, 2, 3, 4, 6
COMPRESSION, UNCOMPRESSED_SIZE, BATCHED, EVENT, ENCRYPTION = 8, 9, 11, 12, 13
SCHEMA, KEY_BASE64, ORDERING_KEY, DELIVER_AT, MARKER = 16, 17, 18, 19, 20
NULL_VALUE, CHUNKS, NULL_KEY = 25, 27, 30
# Fields of the metadata of a message in a batch.
M_PROPERTIES, M_KEY, M_PAYLOAD_SIZE, M_COMPACTED_OUT, M_EVENT = 1, 2, 3, 4, 5
M_KEY_BASE64, M_ORDERING_KEY, M_SEQUENCE, M_NULL_VALUE, M_NULL_KEY = 6, 7, 8, 9, 10
NAME, VALUE = 1, 2  # of a property

PAYLOAD_SIZE_TAG = M_PAYLOAD_SIZE << 3
UINT32_MAX = (1 << 32) - 1
NUMBER_BYTES_MAX = 5  # of a size

ABSENT_ROW = np.int64(-1)


@dataclass(slots=True)
class _Entries:
    """Positions of the entries of a run, with facts from their prefixes and batches."""

    starts: Array
    ends: Array
    offset: Array
    count: Array
    append_us: Array


@dataclass(slots=True)
class _BatchedMessages:
    """The messages of batched entries: the entry of each message, metadata and payload."""

    entry: Array
    place: Array
    meta_start: Array
    meta_end: Array
    value_end: Array


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Return the records of all entries. Raises Irregular; BodyError for a payload that does not
    unpack.
    """
    run = _entries(batches)
    arena = arena_of([batch.body for batch in batches])
    size_pos = _metadata_size_pos(arena, run)
    meta_start = size_pos + 4
    meta_end = meta_start + struct_at(arena, U32, size_pos)["size"]
    require(meta_end <= run.ends)
    meta = scan(
        arena,
        meta_start,
        meta_end,
        numbers=(
            *(SEQUENCE, PUBLISH, COMPRESSION, UNCOMPRESSED_SIZE, BATCHED, EVENT),
            *(KEY_BASE64, DELIVER_AT, MARKER, NULL_VALUE, CHUNKS, NULL_KEY),
        ),
        slices=(PRODUCER, KEY, ENCRYPTION, SCHEMA, ORDERING_KEY),
        repeated=(PROPERTIES,),
    )
    require(~meta.present[MARKER] & (meta.slices[ENCRYPTION].starts < 0))
    require((meta.numbers[CHUNKS] <= 1) & (meta.numbers[KEY_BASE64] == 0))
    batched = meta.present[BATCHED]
    require(batched | (run.count == 1))
    require(~batched | (meta.numbers[BATCHED] == run.count.astype(np.uint64)))
    payload = Slices(meta_end, run.ends)
    if meta.numbers[COMPRESSION].any():
        arena, payload = _unpacked(arena, meta, payload)
    if not batched.any():
        return _unbatched(arena, run, meta, payload)
    if not batched.all():
        raise Irregular  # The caller tries each batch alone, then the plain codec.
    return _batched(arena, run, meta, payload)


def _entries(batches: Sequence[Batch]) -> _Entries:
    starts: list[int] = []
    ends: list[int] = []
    offsets: list[int] = []
    counts: list[int] = []
    numbers = np.empty(len(batches), np.int64)
    unpack_at, head, place = PREFIX.unpack_from, PREFIX.size, 0
    for number, batch in enumerate(batches):
        body, base, before = batch.body, batch.base_offset, len(starts)
        pos, end = 0, len(body)
        while pos < end:  # hot
            size, delta, count = unpack_at(body, pos)
            pos += head
            starts.append(place + pos)
            pos += size
            ends.append(place + pos)
            offsets.append(base + delta)
            counts.append(count)
        if pos != end:
            raise Irregular
        place += end
        numbers[number] = len(starts) - before
    append_us = np.array([batch.header.append_us for batch in batches])
    return _Entries(
        np.array(starts),
        np.array(ends),
        np.array(offsets),
        np.array(counts),
        np.repeat(append_us, numbers),
    )


def _metadata_size_pos(arena: bytes, run: _Entries) -> Array:
    """Return the position of the metadata size: after magic and checksum, if the entry has them."""
    require(run.ends - run.starts >= 4)
    data = np.frombuffer(arena, np.uint8)
    checked = (data[run.starts] == CHECKED >> 8) & (data[run.starts + 1] == CHECKED & 0xFF)
    checked &= run.ends - run.starts >= CHECKED_SIZE_POS + 4
    return run.starts + np.where(checked, CHECKED_SIZE_POS, PLAIN_SIZE_POS)


def _unpacked(arena: bytes, meta: Scanned, payload: Slices) -> tuple[bytes, Slices]:
    """Return an arena with the unpacked payloads at the end, and the positions of all payloads.

    Uncompressed payloads are copied too, so that all positions ascend.
    """
    require(meta.numbers[UNCOMPRESSED_SIZE] <= UINT32_MAX)
    view = memoryview(arena)
    parts: list[Buffer] = [arena]
    starts: list[int] = []
    ends: list[int] = []
    left, pos = ARENA_BYTES_MAX, len(arena)
    columns = (meta.numbers[COMPRESSION], meta.numbers[UNCOMPRESSED_SIZE])
    rows = zip(
        *(column.tolist() for column in (payload.starts, payload.ends, *columns)), strict=True
    )
    for start, end, compression, size in rows:
        part: Buffer = view[start:end]
        if compression:
            part = unpack(compression, part, size, left)
        left -= len(part)
        parts.append(part)
        starts.append(pos)
        pos += len(part)
        ends.append(pos)
    return arena_of(parts), Slices(np.array(starts), np.array(ends))


def _times_us(numbers: Array, present: Array) -> Array:
    """Return the microseconds of uint64 milliseconds, ABSENT where not present."""
    capped = np.minimum(numbers, np.uint64(TIME_MS_MAX)).astype(np.int64)
    return np.where(present, capped * 1000, ABSENT)


def _deliver_at_us(meta: Scanned) -> Array | None:
    """Return the microseconds of a time that is an int64 on the wire; ABSENT if not above 0."""
    times_ms = meta.numbers[DELIVER_AT]
    is_set = times_ms.view(np.int64) > 0
    return _times_us(times_ms, is_set) if is_set.any() else None


def _or_none(column: Slices) -> Slices | None:
    return column if (column.starts >= 0).any() else None


def _shared(arena: bytes, column: Slices, at: Array) -> RepeatedValues | None:
    """Return a field shared by all messages of an entry; `at` is the entry of each message."""
    if not (column.starts >= 0).any():
        return None
    pairs = zip(column.starts.tolist(), column.ends.tolist(), strict=True)
    values = [b"" if start < 0 else arena[start:end] for start, end in pairs]
    return RepeatedValues(np.where(column.starts[at] < 0, -1, at).astype(np.int32), values)


def _keys(column: Slices, is_null: Array) -> Slices | None:
    if is_null.any():
        column = Slices(np.where(is_null != 0, ABSENT_ROW, column.starts), column.ends)
    return _or_none(column)


def _unbatched(arena: bytes, run: _Entries, meta: Scanned, payload: Slices) -> Columns:
    values = payload
    if meta.numbers[NULL_VALUE].any():
        is_null = meta.numbers[NULL_VALUE] != 0
        values = Slices(np.where(is_null, ABSENT_ROW, payload.starts), payload.ends)
    return Columns(
        arena,
        run.offset,
        run.append_us,
        publish_us=_times_us(meta.numbers[PUBLISH], meta.present[PUBLISH]),
        event_us=_times_us(meta.numbers[EVENT], meta.numbers[EVENT] != 0),
        key=_keys(meta.slices[KEY], meta.numbers[NULL_KEY]),
        value=values,
        headers=_properties(arena, *meta.repeated[PROPERTIES]),
        ordering_key=_or_none(meta.slices[ORDERING_KEY]),
        producer_name=_or_none(meta.slices[PRODUCER]),
        sequence_id=meta.numbers[SEQUENCE].view(np.int64),
        sequence_absent=~meta.present[SEQUENCE],
        schema_version=_or_none(meta.slices[SCHEMA]),
        entry=run.offset,
        batch_index=np.full(len(run.offset), -1),
        deliver_at_us=_deliver_at_us(meta),
    )


def _batched(arena: bytes, run: _Entries, meta: Scanned, payload: Slices) -> Columns:
    messages = _messages(arena, run, payload)
    single = scan(
        arena,
        messages.meta_start,
        messages.meta_end,
        numbers=(
            *(M_PAYLOAD_SIZE, M_COMPACTED_OUT, M_EVENT, M_KEY_BASE64, M_SEQUENCE),
            *(M_NULL_VALUE, M_NULL_KEY),
        ),
        slices=(M_KEY, M_ORDERING_KEY),
        repeated=(M_PROPERTIES,),
    )
    sizes = (messages.value_end - messages.meta_end).astype(np.uint64)
    require(single.present[M_PAYLOAD_SIZE] & (single.numbers[M_PAYLOAD_SIZE] == sizes))
    require(single.numbers[M_KEY_BASE64] == 0)
    is_null = single.numbers[M_NULL_VALUE] != 0
    at = messages.entry
    has_own = single.present[M_SEQUENCE]
    sequence = np.where(has_own, single.numbers[M_SEQUENCE], meta.numbers[SEQUENCE][at])
    deliver_at_us = _deliver_at_us(meta)
    columns = Columns(
        arena,
        run.offset[at] + messages.place,
        run.append_us[at],
        publish_us=_times_us(meta.numbers[PUBLISH], meta.present[PUBLISH])[at],
        event_us=_times_us(single.numbers[M_EVENT], single.numbers[M_EVENT] != 0),
        key=_keys(single.slices[M_KEY], single.numbers[M_NULL_KEY]),
        value=Slices(np.where(is_null, ABSENT_ROW, messages.meta_end), messages.value_end),
        headers=_properties(arena, *single.repeated[M_PROPERTIES]),
        ordering_key=_or_none(single.slices[M_ORDERING_KEY]),
        producer_name=_shared(arena, meta.slices[PRODUCER], at),
        sequence_id=sequence.view(np.int64),
        sequence_absent=~has_own & ~meta.present[SEQUENCE][at],
        schema_version=_shared(arena, meta.slices[SCHEMA], at),
        entry=run.offset[at],
        batch_index=messages.place,
        deliver_at_us=None if deliver_at_us is None else deliver_at_us[at],
    )
    return columns.where(single.numbers[M_COMPACTED_OUT] == 0)


def _messages(arena: bytes, run: _Entries, payload: Slices) -> _BatchedMessages:
    """Follow the chain of messages in each batch: only the metadata gives a message's end."""
    meta_starts: list[int] = []
    meta_ends: list[int] = []
    value_ends: list[int] = []
    size_at = U32_AT.unpack_from
    counts = run.count.tolist()
    begins, ends = payload.starts.tolist(), payload.ends.tolist()
    for pos, end, count in zip(begins, ends, counts, strict=True):
        if count * 6 > end - pos:
            raise Irregular
        for _ in range(count):  # hot
            meta_start = pos + 4
            if meta_start > end:
                raise Irregular
            meta_end = meta_start + size_at(arena, pos)[0]
            if meta_end > end:
                raise Irregular
            pos = meta_end + _payload_size(arena, meta_start, meta_end)
            meta_starts.append(meta_start)
            meta_ends.append(meta_end)
            value_ends.append(pos)
        if pos != end:
            raise Irregular
    numbers = np.array(counts)
    entry = np.repeat(np.arange(len(counts)), numbers)
    place = np.arange(len(entry)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    return _BatchedMessages(
        entry, place, np.array(meta_starts), np.array(meta_ends), np.array(value_ends)
    )


def _payload_size(arena: bytes, pos: int, end: int) -> int:  # hot
    """Return the first payload_size in the metadata at pos; the whole is checked later."""
    while pos < end:
        tag, size, pos = arena[pos], arena[pos + 1], pos + 2
        if size >= 0x80:
            size, pos = _number(arena, pos - 1)
        if tag == PAYLOAD_SIZE_TAG:
            return size
        if tag & 0x87 != BYTES:
            break
        pos += size  # Properties and the key usually come first.
    raise Irregular


def _number(arena: bytes, pos: int) -> tuple[int, int]:
    """Return a varint and the position after the varint."""
    number = 0
    for place in range(NUMBER_BYTES_MAX):
        byte = arena[pos + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, pos + place + 1
    raise Irregular


def _properties(arena: bytes, rows: Array, starts: Array, ends: Array) -> HeaderSlices | None:
    if not len(rows):
        return None
    fields = scan(arena, starts, ends, slices=(NAME, VALUE))
    names, values = fields.slices[NAME], fields.slices[VALUE]
    require((names.starts >= 0) & (values.starts >= 0))
    return HeaderSlices(rows, names, values, np.full(len(rows), HeaderKind.STRING))


def places_of(body: Buffer, base_offset: int) -> dict[int, tuple[int, int]]:
    """Return the entry's offset and the batch index (-1: not batched) for each offset of a body."""
    places: dict[int, tuple[int, int]] = {}
    for entry in entries(body, base_offset):
        try:
            metadata, _ = read_metadata(bytes(body[entry.start : entry.end]), check=False)
        except BodyError:
            continue  # The entry has no records.
        batched = metadata.HasField("num_messages_in_batch")
        for place in range(entry.record_count):
            places[entry.offset + place] = (entry.offset, place if batched else -1)
    return places
