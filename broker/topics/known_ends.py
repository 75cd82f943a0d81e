"""Stores log ends in the cursors' journal, and warns at a start of logs that end earlier, or below
a position.

This detects an older backup of the files beside newer positions, and logs that lost their end.
Knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.storage.errors import StorageFull
from braidlog.storage.metadata.highest_position import highest_positions, is_above_end

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.journal_positions import JournalPositions

log = structlog.get_logger()

NOTE_S = 60.0  # Files of a backup are noticed if the backup is older than this.


async def note_regularly(note_used: Callable[[], None]) -> None:
    """Store the ends of the logs in use every minute, for a start after a kill: otherwise only full
    segments and clean stops store them. Raises StorageFailed.
    """
    while True:
        await trio.sleep(NOTE_S)
        note_used()


class KnownEnds:
    """Durable ends of a broker's logs. A data directory calls `note`."""

    def __init__(self, cursors: JournalPositions) -> None:
        self._cursors = cursors

    def note(self, ends: Mapping[int, int]) -> None:
        """Store durable ends by partition id; 0 for a deleted partition. A full disk skips them:
        the journal then knows an earlier end. Raises StorageFailed.
        """
        with suppress(StorageFull):  # The next full segment stores the end again.
            self._cursors.set_ends(self._cursors.ends.news(ends))

    def compare(self, topics: Iterable[Topic]) -> None:
        """Warn of logs that end below their known end or below a position; forget the ends of
        deleted partitions. Raises StorageFailed.

        A position above the end is no proof of a loss: Kafka clients may commit any number.
        """
        cursors, known = self._cursors, set()
        for topic in topics:
            positions = highest_positions(cursors, topic.meta.topic_id)
            for partition in topic.partitions:
                known.add(partition.partition_id)
                durable_end = cursors.ends.get(partition.partition_id)
                position = positions.get(partition.index, 0)
                if partition.next_offset < durable_end:
                    _warn("log_ends_early", partition, durable_end_offset=durable_end)
                elif is_above_end(position, partition.next_offset):
                    _warn("position_above_log_end", partition, position=position)
        with suppress(StorageFull):  # The next start forgets them.
            cursors.set_ends(cursors.ends.gone(known))


def _warn(event: str, partition: Partition, **figure: int) -> None:
    log.warning(
        event,
        topic=partition.topic.name.full,
        partition=partition.index,
        log_end_offset=partition.next_offset,
        **figure,
    )
