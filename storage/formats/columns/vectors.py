"""Bytes, numbers and texts at many positions of a buffer, as numpy and Arrow arrays.

Knows no format. All positions are in an `arena`, a bytes object that ends with PADDING zero bytes,
so that a read of a few bytes at any position stays inside.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.quick import SPEEDUPS

Array = np.ndarray[Any, Any]

PADDING = 32
# Unpacked size of bodies at a time. The data is briefly in memory three times: unpacked, joined,
# and as Arrow's. A larger batch goes through its plain codec, in pages.
ARENA_BYTES_MAX = 32 << 20
ABSENT = -(1 << 63)  # An absent time or number, as in FORMAT.md.

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint8)


class Irregular(Exception):
    """These batches hold something that only the plain codec can handle; no record is lost."""


@dataclass(slots=True)
class Slices:
    """The bytes [start, end) of the arena for each row; a negative start means absent."""

    starts: Array
    ends: Array

    def to_arrow(self, arena: bytes) -> pa.Array:
        """Copy once, in C++."""
        return gather(arena, self.starts, self.ends)

    def where(self, keep: Array) -> "Slices":
        """Return the rows that `keep` selects."""
        return Slices(self.starts[keep], self.ends[keep])


@dataclass(slots=True)
class RepeatedValues:
    """A few values, and for each row the number of its value; -1 means absent."""

    codes: Array
    values: Sequence[bytes]

    def to_arrow(self, arena: bytes) -> pa.Array:
        """Return the values, repeated."""
        codes = pa.array(self.codes, pa.int32(), mask=self.codes < 0)
        return pa.array(list(self.values), pa.binary()).take(codes)

    def where(self, keep: Array) -> "RepeatedValues":
        """Return the rows that `keep` selects."""
        return RepeatedValues(self.codes[keep], self.values)


Bytes = Slices | RepeatedValues


def arena_of(parts: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """Join the parts in order, then the padding."""
    return b"".join((*parts, bytes(PADDING)))


def struct_at(arena: bytes, layout: np.dtype[Any], places: Array) -> Array:
    """Return a structure for each position. Positions must lie within the arena, padding
    excluded.
    """
    assert layout.itemsize <= PADDING
    count = len(arena) - layout.itemsize + 1
    return np.ndarray((count,), layout, buffer=arena, strides=(1,))[places]


def chain(body: Buffer, head: int, least: int, *, is_big: bool) -> Array | None:
    """Return the start of each entry of a body, by the C extension; None if Python must search.

    An entry is `head` bytes, the last four of them a size of at least `least`, then that many
    bytes.
    """
    if SPEEDUPS is None:
        return None
    chain_bytes = SPEEDUPS.chain(body, head, least, is_big)
    return None if chain_bytes is None else np.frombuffer(chain_bytes, np.int64)


def gather(arena: bytes, starts: Array, ends: Array) -> pa.Array:
    """Return the slices as a binary array.

    If the slices ascend, as in every walk over a body, the whole arena is the data of an array of
    slices and gaps, and taking every second element copies each byte once.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    absent = starts < 0
    any_absent = bool(absent.any())
    if any_absent and absent.all():
        return pa.nulls(count, pa.binary())
    cuts = np.empty(2 * count, np.int64)
    cuts[0::2], cuts[1::2] = starts, ends
    if any_absent:
        cuts[0::2][absent] = cuts[1::2][absent] = 0
        np.maximum.accumulate(cuts, out=cuts)
    elif count > 1 and (cuts[1:] < cuts[:-1]).any():
        return _gather_unordered(arena, starts, ends)
    if any_absent and (cuts[0::2][~absent] != starts[~absent]).any():
        return _gather_unordered(arena, starts, ends)
    whole = pa.Array.from_buffers(
        pa.binary(),
        2 * count - 1,
        [None, pa.py_buffer(cuts.astype(np.int32)), pa.py_buffer(arena)],
    )
    every_other = np.arange(0, 2 * count, 2, dtype=np.int32)
    return whole.take(pa.array(every_other, mask=absent if any_absent else None))


def _gather_unordered(arena: bytes, starts: Array, ends: Array) -> pa.Array:
    order = np.argsort(starts, kind="stable")
    sorted_starts, sorted_ends = starts[order], ends[order]
    if (sorted_starts[1:] < sorted_ends[:-1])[sorted_starts[:-1] >= 0].any():
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return pa.array([None if a < 0 else arena[a:b] for a, b in pairs], pa.binary())
    back = np.empty(len(order), np.int32)
    back[order] = np.arange(len(order), dtype=np.int32)
    return gather(arena, sorted_starts, sorted_ends).take(pa.array(back))


def texts(values: pa.Array) -> pa.Array:
    r"""Convert names, which are bytes in the log, to text; bytes that are not UTF-8 become \xNN."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else text_of(v) for v in values.to_pylist()], pa.string()
        )


def text_of(value: bytes) -> str:
    """Convert a name to text, in the same way."""
    return value.decode(errors="backslashreplace")


def longs(values: Array | None, count: int, type_: pa.DataType) -> pa.Array:
    """Return times or numbers, null for ABSENT (all null for None)."""
    if values is None:
        return pa.nulls(count, type_)
    absent = values == ABSENT
    return pa.array(values, pa.int64(), mask=absent if absent.any() else None).cast(type_)


def hex_texts(ids: Array) -> pa.Array:
    """Return rows of 16 little-endian bytes as 32 hexadecimal digits, null for a row of zeros."""
    count = len(ids)
    digits = _HEX.reshape(256, 2)[ids[:, ::-1]].tobytes()
    ends = np.arange(0, 32 * (count + 1), 32, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(digits)]
    whole = pa.Array.from_buffers(pa.string(), count, buffers)
    absent = ~ids.any(axis=1)
    if not absent.any():
        return whole
    return whole.take(pa.array(np.arange(count, dtype=np.int32), mask=absent))


def require(condition: Array) -> None:
    """Raise Irregular unless every element is true."""
    if not np.all(condition):
        raise Irregular
