"""Parser of many protobuf messages of the same type: each numpy step reads a field of every
message.

Layout: Protocol Buffers, "Encoding". Knows no message type. Special cases of the protobuf library
(another wire type than expected, groups, varints that are too long, cut messages) are Irregular
here.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from braidlog.storage.formats.columns.vectors import Array, Irregular, Slices, require

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10
TAG_BYTES_MAX = 2  # All wanted fields, and most others, need no more.


@dataclass(slots=True)
class Scanned:
    """Results of a scan: numbers and slices for each message; the last value of a field wins.

    `present` marks messages that have a number; an absent slice has a negative start. `repeated`
    has (message, start, end) in the order of the messages, then of their fields.
    """

    numbers: dict[int, Array] = field(default_factory=dict)
    present: dict[int, Array] = field(default_factory=dict)
    slices: dict[int, Slices] = field(default_factory=dict)
    repeated: dict[int, tuple[Array, Array, Array]] = field(default_factory=dict)


def scan(
    arena: bytes,
    starts: Array,
    ends: Array,
    *,
    numbers: Collection[int] = (),
    slices: Collection[int] = (),
    repeated: Collection[int] = (),
) -> Scanned:
    """Return the wanted fields, by number, of the messages [start, end) of the arena.

    Numbers are uint64 as on the wire. Raises Irregular.
    """
    data = np.frombuffer(arena, np.uint8)
    count = len(starts)
    scanned = Scanned()
    for number in numbers:
        scanned.numbers[number] = np.zeros(count, np.uint64)
        scanned.present[number] = np.zeros(count, bool)
    for number in slices:
        scanned.slices[number] = Slices(np.full(count, -1), np.full(count, -1))
    lists: dict[int, list[tuple[Array, Array, Array]]] = {number: [] for number in repeated}
    rows = np.flatnonzero(starts < ends)
    pos = starts[rows].astype(np.int64)
    while len(rows):
        tags, after = varints(data, pos, ends[rows])
        require(after - pos <= TAG_BYTES_MAX)
        pos = after
        wires, tags = tags & np.uint64(7), (tags >> np.uint64(3)).astype(np.int64)
        require(tags > 0)
        began, pos, values = _step(data, pos, ends[rows], wires)
        require(pos <= ends[rows])
        for tag in np.unique(tags).tolist():
            here = tags == tag
            at = rows[here]
            if tag in scanned.numbers:
                require(wires[here] == VARINT)
                scanned.numbers[tag][at], scanned.present[tag][at] = values[here], True
            elif tag in scanned.slices:
                require(wires[here] == BYTES)
                scanned.slices[tag].starts[at] = began[here]
                scanned.slices[tag].ends[at] = pos[here]
            elif tag in lists:
                require(wires[here] == BYTES)
                lists[tag].append((at, began[here], pos[here]))
        going_on = pos < ends[rows]
        rows, pos = rows[going_on], pos[going_on]
    for number, steps in lists.items():
        scanned.repeated[number] = _in_order(steps)
    return scanned


def varints(data: Array, pos: Array, ends: Array) -> tuple[Array, Array]:
    """Return the varint at each position, as uint64, and the positions after them. Raises
    Irregular.
    """
    require(pos < ends)
    byte = data[pos]
    values = (byte & 0x7F).astype(np.uint64)
    after = pos + 1
    open_ = np.flatnonzero(byte & 0x80)
    shift = 7
    while len(open_):
        # The tenth byte has one bit left; a longer varint is invalid.
        if shift >= 7 * VARINT_BYTES_MAX:
            raise Irregular
        at = after[open_]
        require(at < ends[open_])
        byte = data[at]
        if shift == 63:
            require(byte <= 1)
        values[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[open_] = at + 1
        open_ = open_[byte & 0x80 != 0]
        shift += 7
    return values, after


def _step(data: Array, pos: Array, ends: Array, wires: Array) -> tuple[Array, Array, Array]:
    """Return the begin and end of each field's content, and the number of a number field."""
    values = np.zeros(len(pos), np.uint64)
    began, after = pos, pos.copy()
    sized = np.flatnonzero((wires == VARINT) | (wires == BYTES))
    values[sized], after[sized] = varints(data, pos[sized], ends[sized])
    blobs = np.flatnonzero(wires == BYTES)
    if len(blobs):
        began = np.where(wires == BYTES, after, pos)
        require(values[blobs] <= ends[blobs].astype(np.uint64))
        after[blobs] += values[blobs].astype(np.int64)
    after[wires == FIXED64] += 8
    after[wires == FIXED32] += 4
    require((wires <= BYTES) | (wires == FIXED32))
    return began, after, values


def _in_order(steps: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    if not steps:
        none = np.array([], np.int64)
        return none, none, none
    rows, starts, ends = (np.concatenate(column) for column in zip(*steps, strict=True))
    order = np.argsort(rows, kind="stable")
    return rows[order], starts[order], ends[order]
