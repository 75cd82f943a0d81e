"""Works out how a commit, an ack or a seek changes one cursor.

The rules are in docs/positions.md. Changes nothing itself; knows no topic, no listener, no disk.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from braidlog.storage.metadata.cursors import KafkaCommit, Moved, StoredCursor
from braidlog.storage.metadata.ranges import RANGES_MAX, RangeSet

OFFSET_MAX: Final = (1 << 63) - 1  # What an int64 holds: Kafka's, Iggy's and Pulsar's own bound.

CursorKey = tuple[int, bytes, int]  # The topic's id, the subscription's name, the partition.


class CursorEvent(enum.Enum):
    """How a cursor was changed."""

    ACKED = "acked"  # More is acknowledged than before, by an ack or a forward commit.
    SOUGHT = "sought"  # Reset: what follows is delivered again, even if it was acknowledged.
    DELETED = "deleted"  # Ended: back to "never set", or the subscription or topic was deleted.


def committed(
    key: CursorKey, cursor: StoredCursor | None, position: int, kafka: KafkaCommit | None
) -> tuple[Moved, CursorEvent | None]:
    """A commit to `position`: if the cursor is behind, all below is acknowledged; if it is ahead,
    or was never set, it is reset; else only what Kafka reads back changes.
    """
    position = bounded(position)
    if cursor is None:
        return sought(key, position, kafka), CursorEvent.SOUGHT
    if position > cursor.position:
        return Moved(*key, past(cursor, position), position, kafka), CursorEvent.ACKED
    # Acks above Kafka's own number may have moved the cursor on. Its next commits up to there are
    # no step back: what they pass is acknowledged already.
    if position < cursor.position and not _follows(cursor.kafka, kafka):
        return sought(key, position, kafka), CursorEvent.SOUGHT
    return Moved(*key, cursor.position, cursor.floor, kafka or cursor.kafka), None


def sought(key: CursorKey, position: int, kafka: KafkaCommit | None = None) -> Moved:
    """The cursor reset to `position`: what was acknowledged above it is forgotten."""
    position = bounded(position)
    return Moved(*key, position, position, kafka, cleared=True)


def acknowledged(
    key: CursorKey, cursor: StoredCursor, position: int, ranges: RangeSet | None = None
) -> Moved:
    """Acks that move the position there, and acknowledge `ranges` as well."""
    kafka = cursor.kafka if position == cursor.position else None
    return Moved(*key, position, cursor.floor, kafka, ranges=ranges)


def bounded(position: int) -> int:
    """The nearest position that can be stored."""
    return min(max(position, 0), OFFSET_MAX)


def past(cursor: StoredCursor, position: int) -> int:
    """The new position when everything below `position` is acknowledged."""
    return position if cursor.acked is None else cursor.acked.next_gap(position)


def taken(
    cursor: StoredCursor, ranges: Iterable[tuple[int, int]], room_in_all: int = RANGES_MAX
) -> tuple[RangeSet, int]:
    """The ranges that acknowledge something new and find room, in this cursor and in all cursors;
    and how many found none.
    """
    acked = cursor.acked or RangeSet()
    room = max(min(RANGES_MAX - len(acked), room_in_all), 0)
    fresh = RangeSet()
    refused = 0
    for first, end in ranges:
        start = max(first, cursor.position)
        if start >= end or acked.contains(start, end):
            continue
        # What the position moves over, or what joins another range, needs no room.
        is_apart = start > cursor.position and not acked.touches(start, end)
        if is_apart and not fresh.touches(start, end):
            if room == 0:
                refused += 1
                continue
            room -= 1
        fresh.add(start, min(end, OFFSET_MAX))
    return fresh, refused


def closed(cursor: StoredCursor, fresh: RangeSet) -> int:
    """The new position when `fresh` is acknowledged as well."""
    position = cursor.position
    while True:
        reached = past(cursor, fresh.next_gap(position))
        if reached == position:
            return position
        position = reached


def _follows(last: KafkaCommit | None, kafka: KafkaCommit | None) -> bool:
    """Whether Kafka commits the number that it reads back, or a later one."""
    return last is not None and kafka is not None and last.offset <= kafka.offset
