"""Kafka message sets, format 0, as columns (FORMAT.md 8.2). Knows bytes and numpy."""

import struct
from collections.abc import Sequence

import numpy as np

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.records import Columns
from braidlog.storage.formats.columns.vectors import (
    ARENA_BYTES_MAX,
    Array,
    Irregular,
    Slices,
    arena_of,
    chain,
    require,
    struct_at,
)
from braidlog.storage.formats.kafka.set_layout import (
    CODEC_BITS,
    ENTRY_MIN,
    KEY_POS,
    MESSAGE_MIN,
    open_wrapper,
)

# offset, size, crc, magic, attributes, key size
ENTRY = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("crc", ">u4"),
        ("magic", "i1"),
        ("attributes", "u1"),
        ("key_size", ">i4"),
    ]
)
SIZE = np.dtype([("size", ">i4")])
SIZE_AT = struct.Struct(">i")

EQUAL_MIN = 8  # From this many entries on, searching for equal sizes is cheaper than walking.


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Return the records of sets that hold either plain messages or a single compressed wrapper
    each.

    Raises:
        Irregular: any other set, including damaged sets.
    """
    parts: list[Buffer] = []
    walks: list[Array] = []
    append_us = np.empty(len(batches), np.int64)
    pos, left = 0, ARENA_BYTES_MAX
    for number, batch in enumerate(batches):
        body: Buffer = batch.body
        if len(body) > KEY_POS and body[KEY_POS - 1] & CODEC_BITS:
            body = _opened(body, left)
            left -= len(body)
        walks.append(_entries(body) + pos)
        append_us[number] = batch.header.append_us
        parts.append(body)
        pos += len(body)
    arena = arena_of(parts)
    counts = np.array([len(walk) for walk in walks])
    return _columns(arena, np.concatenate(walks), np.repeat(append_us, counts), pos)


def _opened(body: Buffer, size_max: int) -> Buffer:
    """Return the set in a wrapper that is the whole body."""
    stop = 12 + SIZE_AT.unpack_from(body, 8)[0]
    if stop != len(body):
        raise Irregular
    return open_wrapper(body, 0, stop, size_max)


def _entries(body: Buffer) -> Array:
    """Return the start of each entry of a set."""
    end = len(body)
    size_at = SIZE_AT.unpack_from
    if end < ENTRY_MIN:
        raise Irregular
    if (entries := chain(body, 12, MESSAGE_MIN, is_big=True)) is not None:
        return entries
    step = 12 + size_at(body, 8)[0]
    if step >= ENTRY_MIN and end % step == 0 and end >= EQUAL_MIN * step:
        sizes = np.ndarray((end // step,), ">i4", buffer=body, offset=8, strides=(step,))
        if (sizes == step - 12).all():
            return np.arange(0, end, step)
    starts: list[int] = []
    add, pos = starts.append, 0
    while pos < end:  # hot
        add(pos)
        size = size_at(body, pos + 8)[0]
        if size < MESSAGE_MIN:
            raise Irregular
        pos += 12 + size
    if pos != end:
        raise Irregular
    return np.array(starts)


def _columns(arena: bytes, starts: Array, append_us: Array, end: int) -> Columns:
    heads = struct_at(arena, ENTRY, starts)
    key_size = heads["key_size"].astype(np.int64)
    stops = starts + 12 + heads["size"]
    require((heads["magic"] == 0) & (heads["attributes"] & CODEC_BITS == 0) & (key_size >= -1))
    key_start = starts + 22
    value_pos = key_start + np.maximum(key_size, 0)
    require(value_pos + 4 <= stops)
    value_size = struct_at(arena, SIZE, value_pos)["size"].astype(np.int64)
    value_start = value_pos + 4
    require((value_size >= -1) & (value_start + np.maximum(value_size, 0) == stops))
    return Columns(
        arena,
        heads["offset"].astype(np.int64),
        append_us,
        key=Slices(np.where(key_size < 0, -1, key_start), value_pos),
        value=Slices(np.where(value_size < 0, -1, value_start), stops),
    )
