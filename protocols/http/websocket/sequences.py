"""Sequence ids of a WebSocket producer on each partition, and the messages that were stored before.

As Apache's proxy does with Java's client: numbers begin behind `initialSequenceId`, or, with
deduplication, behind the last sequence that the broker stored under the producer's name. Knows no
frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import LimitExceeded
from braidlog.protocols.http.ids import INT64_MAX

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

NO_SEQUENCE: Final = -1


class ProducerSequences:
    """The sequences of a producer.

    `number` stands for the producer's name in batches, 0 without deduplication. `_next[i]` is the
    next sequence of partition i, `_stored[i]` the last sequence that was stored when the producer
    opened.
    """

    def __init__(self, broker: Broker, topic: Topic, name: bytes, initial: int | None) -> None:
        """`initial` is the sequence before the first message; None to continue."""
        self.number = 0
        self._broker = broker
        self._topic = topic
        self._name = name
        self._initial = initial
        self._ticket = 0
        self._next: dict[int, int] = {}
        self._stored: dict[int, int] = {}

    async def open(self, partition: Partition) -> None:
        """Look up the sequences of a partition; return once the earlier messages are on disk.

        Raises LimitExceeded, TopicNotFound, StorageFull, StorageFailed.
        """
        stored = NO_SEQUENCE
        if self._broker.topics.is_deduplicated(self._topic):
            table = await partition.sequences()
            if not self.number:
                producers = self._broker.producers
                self.number, self._ticket = producers.number(self._name, self._topic)
            state = table.find(self.number)
            stored = NO_SEQUENCE if state is None else state.last_sequence
            ticket = max(self._ticket, partition.appended_ticket)
            await self._broker.durability.reached(ticket)
        self._stored[partition.index] = stored
        self._next[partition.index] = (stored if self._initial is None else self._initial) + 1

    def take(self, index: int) -> int:
        """Return the sequence of the next message of a partition. Raises LimitExceeded behind the
        last sequence that a batch can have.
        """
        sequence = self._next[index]
        if sequence > INT64_MAX:
            raise LimitExceeded(f"the producer has used its last sequence id, {INT64_MAX}")
        self._next[index] = sequence + 1
        return sequence

    def is_stored(self, index: int, sequence: int) -> bool:
        """Return True for a message that was stored before the producer opened."""
        return sequence <= self._stored[index]

    def close(self) -> None:
        """Release the producer's number."""
        number, self.number = self.number, 0
        if number:
            self._broker.producers.release(self._name, self._topic)
