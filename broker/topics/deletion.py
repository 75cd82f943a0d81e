"""Removes what deleted topics leave behind, once their deletion is on disk.

Not before, or a power cut could leave a topic in the catalogue without its cursors or files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from braidlog.storage import errors as storage_errors

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import PartitionFactory, Topic
    from braidlog.storage.metadata.names import TopicName
    from braidlog.storage.metadata.positions import Positions

# Clients whose topic is deleted reconnect within their backoff, at most a minute.
NAME_HELD_S: Final = 60.0
HELD_NAMES_MAX: Final = 10_000  # Of more at a time, clients may make the later ones again.


class HeldNames:
    """Names of topics deleted in use, or renamed: for a while they are not auto-created."""

    def __init__(self) -> None:
        self._until: dict[TopicName, float] = {}

    def hold(self, names: Sequence[TopicName]) -> None:
        """Hold these from now on."""
        now = trio.current_time()
        self._until = {held: until for held, until in self._until.items() if until > now}
        room = max(HELD_NAMES_MAX - len(self._until), 0)
        self._until.update(dict.fromkeys(names[:room], now + NAME_HELD_S))

    def is_held(self, name: TopicName) -> bool:
        """Whether clients must not make it by using it."""
        return self._until.get(name, 0.0) > trio.current_time()


class Leaving:
    """Deleted topics and partitions, in order, until a round of the committer has made their
    deletion durable.
    """

    def __init__(self, cursors: Positions, factory: PartitionFactory) -> None:
        self._cursors = cursors
        self._factory = factory
        # Ticket, number of a topic that goes as a whole, partitions that go.
        self._leaving: deque[tuple[int, int | None, Sequence[Partition]]] = deque()

    def add(self, topic: Topic) -> None:
        """The topic was deleted with the ticket that it has now."""
        self._leaving.append((topic.ticket, topic.meta.topic_id, topic.partitions))

    def add_partitions(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """The topic lost these with the ticket that it has now."""
        self._leaving.append((topic.ticket, None, partitions))

    def round_ended(self, durable_ticket: int) -> None:
        """A round is on disk: remove cursors and files of what it deleted.

        Raises errors of storage.
        """
        while self._leaving and self._leaving[0][0] <= durable_ticket:
            _, topic_id, partitions = self._leaving.popleft()
            try:
                if topic_id is not None:
                    self._cursors.drop_topic(topic_id)
            except storage_errors.StorageFull:
                pass  # Topic numbers are never used again: the next start drops what is left.
            for partition in partitions:
                self._factory.discard(partition)
