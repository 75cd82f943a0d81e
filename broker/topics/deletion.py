"""Topics on their way out: what they leave behind goes once their deletion is on disk.

Not before, or a power cut could leave a topic in the catalogue without its cursors or files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import storage.errors

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from broker.topics.topic import PartitionFactory, Topic
    from storage.metadata.cursor_book import CursorBook


class Leaving:
    """Deleted topics and partitions, in order, until a round of the committer holds their
    deletion.
    """

    def __init__(self, cursors: CursorBook, factory: PartitionFactory) -> None:
        self._cursors = cursors
        self._factory = factory
        # Ticket, number of a topic that goes as a whole, partitions that go.
        self._leaving: deque[tuple[int, int | None, Sequence[Partition]]] = deque()

    def add(self, topic: Topic) -> None:
        """The topic was deleted with the ticket that it has now."""
        self._leaving.append((topic.ticket, topic.meta.topic_id, topic.partitions))

    def add_partitions(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """The topic was parted from these with the ticket that it has now."""
        self._leaving.append((topic.ticket, None, partitions))

    def round_ended(self, durable_ticket: int) -> None:
        """That round is on disk: cursors and files of what it deleted go.

        Raises errors of storage.
        """
        while self._leaving and self._leaving[0][0] <= durable_ticket:
            _, topic_id, partitions = self._leaving.popleft()
            try:
                if topic_id is not None:
                    self._cursors.drop_topic(topic_id)
            except storage.errors.StorageFull:
                pass  # Numbers of topics never come again: the next start drops what is left.
            for partition in partitions:
                self._factory.discard(partition)
