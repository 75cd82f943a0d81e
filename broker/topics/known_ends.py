"""Notes how far logs reach in the cursors' journal, and warns at a start of logs that end earlier.

Files of an older backup beside newer positions, or a log that lost its end, are found so. Knows no
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from braidlog.storage.errors import StorageFull

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.cursors import CursorStore

log = structlog.get_logger()


class KnownEnds:
    """The durable ends of a broker's logs. A data directory calls `note`."""

    def __init__(self, cursors: CursorStore) -> None:
        self._cursors = cursors

    def note(self, ends: Mapping[int, int]) -> None:
        """Note durable ends by partition id; 0 for a partition that is gone. On a full disk they
        are left out: the journal then knows an earlier end. Raises StorageFailed.
        """
        with suppress(StorageFull):  # The end is noted again with the next full segment.
            self._cursors.set_ends(self._cursors.ends.news(ends))

    def compare(self, topics: Iterable[Topic]) -> None:
        """Warn of logs that end below their known end, or below a position; forget the ends of
        partitions that are no more. Raises StorageFailed.
        """
        cursors, known = self._cursors, set()
        for topic in topics:
            highest = [0] * len(topic.partitions)
            for subscription in cursors.subscriptions(topic.meta.topic_id):
                for index, cursor in subscription.cursors.items():
                    if index < len(highest) and cursor.position > highest[index]:
                        highest[index] = cursor.position
            for partition, position in zip(topic.partitions, highest, strict=True):
                known.add(partition.partition_id)
                end = partition.next_offset
                durable_end = cursors.ends.get(partition.partition_id)
                if end < durable_end or end < position:
                    log.warning(
                        "log_ends_early",
                        topic=topic.name.full,
                        partition=partition.index,
                        log_end_offset=end,
                        durable_end_offset=durable_end,
                        highest_position=position,
                    )
        with suppress(StorageFull):  # The next start forgets them.
            cursors.set_ends(cursors.ends.gone(known))
