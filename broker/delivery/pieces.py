"""Earlier pieces of chunked messages that a dispatcher must deliver again.

A commit of another protocol may end between the pieces of a message: readers of that protocol
receive the message at its last piece, and other records before. Then the message is not
acknowledged, although its first pieces lie below the position, and a consumer needs all of them.
Knows no consumer.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import BrokerError
from braidlog.broker.reading.chunks import piece_offsets
from braidlog.broker.reading.entries import entry_chunk

if TYPE_CHECKING:
    from braidlog.broker.delivery.cursor import DispatchCursor
    from braidlog.broker.delivery.entry_reads import EntryRead
    from braidlog.broker.reading.entries import Entry
    from braidlog.broker.topics.partition import Partition

# Messages that were read in part, without the last piece. Beyond this limit the oldest is dropped;
# a search of the log finds the earlier pieces when the message's next piece arrives.
BEGUN_MAX: Final = 1000


class EarlierPieces:
    """Chunked messages seen by a dispatcher's reads since the dispatcher's last start.

    Each start of delivery creates a new object.
    """

    def __init__(self, partition: Partition, cursor: DispatchCursor) -> None:
        self.to_read: deque[int] = deque()
        """Offsets of pieces below the position: they are read before anything else."""
        self._partition = partition
        self._cursor = cursor
        self._begun: dict[bytes, None] = {}  # Uuids, oldest first.

    async def look_back(self, read: EntryRead) -> tuple[int, list[int]] | None:
        """Return the index of the first entry of a read that needs earlier pieces, and their
        offsets.
        """
        if not self._cursor.is_durable:
            return None
        for number, entry in enumerate(read.entries):
            chunk = entry_chunk(entry)
            if chunk is None:
                continue
            needed: list[int] = []
            if chunk.chunk_id and chunk.uuid not in self._begun:
                needed = await self._passed(entry, chunk.chunk_id)
            self._begun[chunk.uuid] = None
            if needed:
                return number, needed
            if chunk.chunk_id == chunk.chunk_count - 1:
                del self._begun[chunk.uuid]
            elif len(self._begun) > BEGUN_MAX:
                del self._begun[next(iter(self._begun))]
        return None

    async def _passed(self, entry: Entry, count: int) -> list[int]:
        """Return the earlier pieces of an entry's message that lie below the position. Return none
        if the message is acknowledged, or incomplete because a piece is missing.
        """
        earlier: list[int] = []
        with suppress(BrokerError):  # On an error the entry is delivered alone.
            earlier = await piece_offsets(self._partition, entry.offset, of_any=True)
        state = self._cursor.state()
        if len(earlier) < count or state.covers(entry.offset, entry.end):
            return []
        return [offset for offset in earlier if offset < state.position]
