"""Topics on their way out: what they leave behind goes once their deletion is on disk.

Not before, or a power cut could leave a topic in the catalogue without its cursors or files.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import storage.errors

if TYPE_CHECKING:
    from broker.topics.topic import PartitionFactory, Topic
    from storage.metadata.cursors import CursorStore


class Leaving:
    """Deleted topics, in order, until a round of the committer holds their deletion."""

    def __init__(self, cursors: CursorStore, factory: PartitionFactory) -> None:
        self._cursors = cursors
        self._factory = factory
        self._topics: deque[tuple[int, Topic]] = deque()

    def add(self, topic: Topic) -> None:
        """The topic was deleted with the ticket that it has now."""
        self._topics.append((topic.ticket, topic))

    def round_ended(self, durable_ticket: int) -> None:
        """That round is on disk: cursors and files of what it deleted go.

        Raises errors of storage.
        """
        while self._topics and self._topics[0][0] <= durable_ticket:
            topic = self._topics.popleft()[1]
            try:
                self._cursors.drop_topic(topic.meta.topic_id)
            except storage.errors.StorageFull:
                pass  # Numbers of topics never come again: the next start drops what is left.
            for partition in topic.partitions:
                self._factory.discard(partition)
