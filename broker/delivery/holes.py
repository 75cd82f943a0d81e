"""Offsets that belong to no entry, or to no message of one: mostly what compaction took out.

Nobody ever acknowledges them, so a dispatcher passes over them. Knows entries, not where they come
from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.pulsar.entry import decode_entry

if TYPE_CHECKING:
    from braidlog.storage.formats.api import Buffer

COMPACTED: Final = int(BatchFlag.COMPACTED)
# A cursor with this many acknowledged ranges gets no holes added: they would take the room of what
# clients acknowledge. They are passed over when the cursor is read from again.
HOLES_MAX: Final = 10_000


class Entry(Protocol):
    """An entry as it was read."""

    offset: int
    record_count: int
    body: Buffer
    flags: int

    @property
    def end(self) -> int:
        """Offset after its last record."""


class EntryRead(Protocol):
    """What one read gave."""

    next_offset: int
    taken_out: list[tuple[int, int]]

    @property
    def entries(self) -> Sequence[Entry]:
        """In order."""


def holes_of(read: EntryRead, offset: int) -> list[tuple[int, int]]:
    """The offset ranges from `offset` on that belong to no entry, or no message, of a read."""
    found = [(max(start, offset), end) for start, end in read.taken_out if end > offset]
    for entry in read.entries:
        if entry.offset > offset:
            found.append((offset, entry.offset))
        offset = max(offset, entry.end)
    if read.next_offset > offset:
        found.append((offset, read.next_offset))
    return found


async def taken_out_of(found: Sequence[Entry]) -> list[tuple[int, int]]:
    """Which messages compaction took out of batched entries."""
    holes: list[tuple[int, int]] = []
    for entry in found:
        if entry.record_count > 1:
            holes += await run_unpacking(partial(holes_within, entry))
    return holes


def holes_within(entry: Entry) -> list[tuple[int, int]]:
    try:
        left = decode_entry(bytes(entry.body), entry.offset, entry.record_count, 0, 0)
    except BodyError:
        return []  # It cannot be opened, so compaction has changed nothing in it.
    holes: list[tuple[int, int]] = []
    offset = entry.offset
    for following in [*(record.offset for record in left), entry.end]:
        if following > offset:
            holes.append((offset, following))
        offset = following + 1
    return holes


def last_batch_index(entry: Entry) -> int:
    """Batch index of the last message that compaction left in a batched entry."""
    holes = holes_within(entry) if entry.flags & COMPACTED else []
    end = holes[-1][0] if holes and holes[-1][1] == entry.end else entry.end
    return end - entry.offset - 1
