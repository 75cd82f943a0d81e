"""Earlier pieces of chunked messages that a dispatcher has to deliver once more.

A commit of another protocol may end between the pieces of a message: its readers are shown the
message at its last piece, and other records before that. Then the message is not acknowledged,
though its first pieces lie below the position, and a consumer needs all of them. Knows no consumer.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.entries import entry_chunk
from braidlog.broker.errors import BrokerError
from braidlog.broker.reading.chunks import piece_offsets

if TYPE_CHECKING:
    from braidlog.broker.delivery.cursor import DispatchCursor
    from braidlog.broker.delivery.entries import Entry
    from braidlog.broker.delivery.entry_reads import EntryRead
    from braidlog.broker.topics.partition import Partition

# Messages of which a piece was read and the last one was not; beyond that the oldest is forgotten,
# and looked for in the log when its next piece comes.
BEGUN_MAX: Final = 1000


class EarlierPieces:
    """What the reads of a dispatcher have found of chunked messages since it began at its position.

    A new one belongs to each beginning.
    """

    def __init__(self, partition: Partition, cursor: DispatchCursor) -> None:
        self.to_read: deque[int] = deque()
        """Offsets of pieces below the position: they are read before anything else."""
        self._partition = partition
        self._cursor = cursor
        self._begun: dict[bytes, None] = {}  # Uuids, oldest first.

    async def look_back(self, read: EntryRead) -> tuple[int, list[int]] | None:
        """The number of the first entry of a read that needs earlier pieces, and their offsets."""
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
        """The earlier pieces of an entry's message that lie below the position; none where the
        message is acknowledged, or nobody can put it together because a piece is gone.
        """
        earlier: list[int] = []
        with suppress(BrokerError):  # The entry is delivered as it is.
            earlier = await piece_offsets(self._partition, entry.offset, of_any=True)
        state = self._cursor.state()
        if len(earlier) < count or state.covers(entry.offset, entry.end):
            return []
        return [offset for offset in earlier if offset < state.position]
