"""Removes the cursors and files of deleted topics, once the deletion is on disk.

Removed earlier, a power cut could leave a topic in the catalogue without cursors or files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from braidlog.storage import errors as storage_errors

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.names import TopicName
    from braidlog.storage.metadata.positions import Positions

# Clients whose topic is deleted reconnect within their backoff, at most a minute.
NAME_HELD_S: Final = 60.0
HELD_NAMES_MAX: Final = 10_000  # Beyond this many, clients may create the later names again.


class HeldNames:
    """Names of renamed topics and of topics deleted in use: not auto-created for a while."""

    def __init__(self) -> None:
        self._until: dict[TopicName, float] = {}

    def hold(self, names: Sequence[TopicName]) -> None:
        """Hold these names from now on."""
        now = trio.current_time()
        self._until = {held: until for held, until in self._until.items() if until > now}
        room = max(HELD_NAMES_MAX - len(self._until), 0)
        self._until.update(dict.fromkeys(names[:room], now + NAME_HELD_S))

    def is_held(self, name: TopicName) -> bool:
        """Return whether auto-creation of the name is blocked."""
        return self._until.get(name, 0.0) > trio.current_time()


class Leaving:
    """Deleted topics and partitions, in order, until a round of the committer has made their
    deletion durable.
    """

    def __init__(self, cursors: Positions, factory: Partitions) -> None:
        self._cursors = cursors
        self._factory = factory
        # (Ticket, number of a topic deleted as a whole, partitions to remove).
        self._leaving: deque[tuple[int, int | None, Sequence[Partition]]] = deque()

    def add(self, topic: Topic) -> None:
        """Queue a deleted topic, under the topic's present ticket."""
        self._leaving.append((topic.ticket, topic.meta.topic_id, topic.partitions))

    def add_partitions(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """Queue partitions that the topic lost under the topic's present ticket."""
        self._leaving.append((topic.ticket, None, partitions))

    def round_ended(self, durable_ticket: int) -> None:
        """Remove cursors and files of the deletions that this round made durable.

        Raises storage errors.
        """
        while self._leaving and self._leaving[0][0] <= durable_ticket:
            _, topic_id, partitions = self._leaving.popleft()
            try:
                if topic_id is not None:
                    self._cursors.drop_topic(topic_id)
            except storage_errors.StorageFull:
                # Topic numbers are never used again: the next start drops the remaining cursors.
                pass
            for partition in partitions:
                self._factory.discard(partition)
