"""Offsets that belong to no entry, or to no message of an entry: mostly removed by compaction.

No client ever acknowledges these offsets, so a dispatcher skips them. Knows entries, but not their
source.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.broker.reading.entries import entry_messages
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.storage.errors import BodyError
from braidlog.storage.formats.api import BatchFlag

if TYPE_CHECKING:
    from braidlog.broker.reading.entries import Entry

COMPACTED: Final = int(BatchFlag.COMPACTED)
# No holes are added to a cursor with this many acknowledged ranges, because they would use the
# space of the clients' acknowledgements. The next read of the cursor skips the holes again.
HOLES_MAX: Final = 10_000


async def compacted_away_of(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Return the offset ranges of messages that compaction removed from batched entries."""
    holes: list[tuple[int, int]] = []
    for entry in entries:
        if entry.record_count > 1:
            holes += await run_unpacking(partial(holes_within, entry))
    return holes


def holes_within(entry: Entry) -> list[tuple[int, int]]:
    try:
        left = entry_messages(entry)
    except BodyError:
        return []  # Compaction changes nothing in an entry that cannot be opened.
    holes: list[tuple[int, int]] = []
    offset = entry.offset
    for following in [*(record.offset for record in left), entry.end]:
        if following > offset:
            holes.append((offset, following))
        offset = following + 1
    return holes


def last_batch_index(entry: Entry) -> int:
    """Return the batch index of the last message that compaction left in a batched entry."""
    holes = holes_within(entry) if entry.flags & COMPACTED else []
    end = holes[-1][0] if holes and holes[-1][1] == entry.end else entry.end
    return end - entry.offset - 1
