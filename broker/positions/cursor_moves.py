"""Computes how a commit, an ack or a seek changes a cursor.

The rules are in docs/positions.md. Changes no cursor itself; knows no topic, no listener, no disk.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from braidlog.storage.metadata.cursors import KafkaCommit, Moved, StoredCursor
from braidlog.storage.metadata.ranges import RANGES_MAX, RangeSet

OFFSET_MAX: Final = (1 << 63) - 1  # Maximum of an int64: the bound of Kafka, Iggy and Pulsar.

CursorKey = tuple[int, bytes, int]  # The topic's id, the subscription's name, the partition.


class CursorEvent(enum.Enum):
    """Kind of change of a cursor."""

    ACKED = "acked"  # More is acknowledged than before, by an ack or a forward commit.
    SOUGHT = "sought"  # Reset: later records are delivered again, even if acknowledged.
    DELETED = "deleted"  # Ended: back to "never set", or the subscription or topic was deleted.


def committed(
    key: CursorKey, cursor: StoredCursor | None, position: int, kafka: KafkaCommit | None
) -> tuple[Moved, CursorEvent | None]:
    """Return the cursor after a commit to `position`.

    A cursor behind `position` acknowledges all offsets below `position`. A cursor ahead, or never
    set, is reset. Otherwise only the commit that Kafka reads back changes.
    """
    position = bounded(position)
    if cursor is None:
        return sought(key, position, kafka), CursorEvent.SOUGHT
    if position > cursor.position:
        return Moved(*key, past(cursor, position), position, kafka), CursorEvent.ACKED
    # Acks above Kafka's own number may have moved the cursor forward. Kafka's next commits up to
    # the cursor are no step back: the offsets that they pass are acknowledged already.
    if position < cursor.position and not _follows(cursor.kafka, kafka):
        return sought(key, position, kafka), CursorEvent.SOUGHT
    return Moved(*key, cursor.position, cursor.floor, kafka or cursor.kafka), None


def sought(key: CursorKey, position: int, kafka: KafkaCommit | None = None) -> Moved:
    """Return the cursor reset to `position`; acknowledgements above are forgotten."""
    position = bounded(position)
    return Moved(*key, position, position, kafka, cleared=True)


def acknowledged(
    key: CursorKey, cursor: StoredCursor, position: int, ranges: RangeSet | None = None
) -> Moved:
    """Return the cursor after acks that move the position and acknowledge `ranges` as well."""
    kafka = cursor.kafka if position == cursor.position else None
    return Moved(*key, position, cursor.floor, kafka, ranges=ranges)


def bounded(position: int) -> int:
    """Return the nearest position that can be stored."""
    return min(max(position, 0), OFFSET_MAX)


def past(cursor: StoredCursor, position: int) -> int:
    """Return the new position after everything below `position` is acknowledged."""
    return position if cursor.acked is None else cursor.acked.next_gap(position)


def accept_ranges(
    cursor: StoredCursor, ranges: Iterable[tuple[int, int]], room_in_all: int = RANGES_MAX
) -> tuple[RangeSet, int]:
    """Return the ranges that are new and have room in this cursor and in all cursors.

    The second value is the number of ranges without room.
    """
    acked = cursor.acked or RangeSet()
    room = max(min(RANGES_MAX - len(acked), room_in_all), 0)
    fresh = RangeSet()
    refused = 0
    for first, end in ranges:
        start = max(first, cursor.position)
        if start >= end:
            continue
        joins = acked.touches(start, end)
        if joins and acked.contains(start, end):
            continue
        # A range that the position passes or that joins another range needs no room.
        is_apart = start > cursor.position and not joins
        if is_apart and not fresh.touches(start, end):
            if room == 0:
                refused += 1
                continue
            room -= 1
        fresh.add(start, min(end, OFFSET_MAX))
    return fresh, refused


def closed(cursor: StoredCursor, fresh: RangeSet) -> int:
    """Return the new position after `fresh` is acknowledged as well."""
    position = cursor.position
    while True:
        reached = past(cursor, fresh.next_gap(position))
        if reached == position:
            return position
        position = reached


def _follows(last: KafkaCommit | None, kafka: KafkaCommit | None) -> bool:
    """Return True if Kafka commits the offset of its last commit, or a later offset."""
    return last is not None and kafka is not None and last.offset <= kafka.offset
