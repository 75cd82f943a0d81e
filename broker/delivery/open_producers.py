"""Which producers are on which partition: unique names, and the modes of exclusive access.

The rules are those of AbstractTopic.java in apache/pulsar. Knows no bytes: `granted` and `fenced`
inform a producer that waits for its turn.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from braidlog.broker.errors import BrokerError, ProducerBusy, ProducerFenced
from braidlog.broker.topics.shown_producers import ShownProducer
from braidlog.broker.topics.topic import TopicEvent

if TYPE_CHECKING:
    from braidlog.broker.closing import Closing
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.topics.topic import Topic

ENDING: Final = (TopicEvent.DELETED, TopicEvent.TERMINATED, TopicEvent.RENAMED, TopicEvent.MOVED)


class AccessMode(enum.IntEnum):
    """Exclusiveness of producers; numbers of ProducerAccessMode."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


# As Apache's statistics write them.
MODE_NAMES = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


class ProducerOwner(Protocol):
    """The connection of a producer."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def version_text(self) -> str:
        """Name of the client's library."""

    async def is_alive(self) -> bool:
        """Return True if its client answers a PING within some seconds."""

    def end(self, reason: str) -> None:
        """End the connection."""

    def close_producer(self, producer: Producer) -> None:
        """Close a producer, which is no longer registered and may have left."""

    def granted(self, producer: Producer) -> None:
        """Note that a waiting producer is the exclusive producer now."""

    def refused(self, producer: Producer, error: BrokerError) -> None:
        """Note that a waiting producer cannot be exclusive, and is no longer registered."""

    def fenced(self, producer: Producer) -> None:
        """Note that a newer producer took over. Only a waiting producer gets an error."""


@dataclass(slots=True, eq=False)
class Producer:
    """A producer on a partition."""

    owner: ProducerOwner
    topic: Topic
    partition: Channel
    producer_id: int
    name: str
    epoch: int
    mode: AccessMode
    request_id: int  # Of its PRODUCER: a producer that waits is answered twice.
    connected_us: int
    metadata: Mapping[str, str]
    number: int = 0  # The catalogue's; for a name of the client's own, or with deduplication.
    holds_number: bool = False
    holds_layout: bool = False  # It was opened by the name of a topic without partitions.
    topic_epoch: int | None = None
    is_ready: bool = True
    schema_version: bytes = b""
    last_sequence: int | None = None  # The highest stored; None: without deduplication.


@dataclass(slots=True)
class _Producers:
    """The producers of a partition."""

    by_name: dict[str, Producer] = field(default_factory=dict)  # Also waiting producers.
    exclusive: Producer | None = None
    waiting: deque[Producer] = field(default_factory=deque)


class ProducerRegistry:
    """All producers of a broker."""

    def __init__(self, raise_epoch: Callable[[Topic], int], closing: Closing | None = None) -> None:
        """`raise_epoch` stores that the topic's current epoch was given to a producer; `closing`
        closes the producers of topics that end.
        """
        self._raise_epoch = raise_epoch
        self._closing = closing
        self._partitions: dict[int, _Producers] = {}
        self._granted: dict[int, int] = {}  # Highest topic epoch that a partition's producer has.

    def in_the_way(self, producer: Producer) -> Producer | None:
        """The producer of another connection that has the name; its client may be dead."""
        holder = self._holder(producer)
        return None if holder is None or holder.owner is producer.owner else holder

    async def probe(self, producer: Producer) -> None:
        """End the connection that holds the producer's name if it is silent; takes some seconds.
        Raises ProducerBusy if the holder's client answers.
        """
        while (holder := self.in_the_way(producer)) is not None:
            if await holder.owner.is_alive():
                raise _name_taken(producer)
            if self._holder(producer) is holder:
                self.remove(holder)
                holder.owner.end("another connection's producer takes the name of a silent one")

    def admit(self, producer: Producer, topic_epoch: int | None) -> None:
        """Admit a producer, or queue it (see `is_ready`). `topic_epoch` is its earlier epoch.

        Raises ProducerBusy, ProducerFenced, StorageFull, StorageFailed.
        """
        if self._holder(producer) is not None:
            raise _name_taken(producer)
        self._check_count(producer)
        producers = self._partitions.setdefault(producer.partition.partition_id, _Producers())
        try:
            self._let_in(producers, producer, topic_epoch)
        finally:
            self._tidy(producer.partition)

    def remove(self, producer: Producer) -> None:
        """Remove a producer; the next waiting producer takes its turn."""
        producers = self._partitions.get(producer.partition.partition_id)
        if producers is None or producers.by_name.get(producer.name) is not producer:
            return
        self._take_out(producers, producer)
        while producers.exclusive is None and producers.waiting and not _ready(producers):
            self._give_turn(producers, producers.waiting.popleft())
        self._tidy(producer.partition)

    def _give_turn(self, producers: _Producers, next_producer: Producer) -> None:
        try:
            self._make_exclusive(producers, next_producer, None)
        except BrokerError as error:  # Its epoch finds no room on the disk.
            del producers.by_name[next_producer.name]
            next_producer.owner.refused(next_producer, error)
        else:
            next_producer.is_ready = True
            next_producer.owner.granted(next_producer)

    def close_all(self, partition: Channel) -> None:
        """End every producer of a partition that is gone or takes nothing more."""
        for producer in self.take_all(partition):
            producer.owner.close_producer(producer)

    def take_all(self, partition: Channel) -> Sequence[Producer]:
        """Forget every producer of a partition; the caller closes them."""
        producers = self._partitions.pop(partition.partition_id, None)
        return list(producers.by_name.values()) if producers else []

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """Close the producers of a topic that was deleted, terminated, renamed or moved: it takes
        no more messages, or only under its new name or at another broker.
        """
        if event in ENDING and self._closing is not None:
            for channel in topic.channels:
                if producers := self.take_all(channel):
                    self._closing.add(_closed(producers))

    def count(self, partition: Channel) -> int:
        """Return the number of producers of a partition."""
        producers = self._partitions.get(partition.partition_id)
        return len(producers.by_name) if producers else 0

    def shown(self, partition_id: int) -> Iterator[ShownProducer]:
        """A partition's producers, as tools of all protocols see them."""
        producers = self._partitions.get(partition_id)
        for producer in producers.by_name.values() if producers else ():
            yield ShownProducer(
                producer.name,
                producer.producer_id,
                MODE_NAMES[producer.mode],
                not producer.is_ready,
                producer.owner.peer,
                producer.owner.version_text,
                producer.connected_us,
                producer.metadata,
            )

    def _holder(self, producer: Producer) -> Producer | None:
        producers = self._partitions.get(producer.partition.partition_id)
        return producers.by_name.get(producer.name) if producers else None

    def _check_count(self, producer: Producer) -> None:
        """Raise ProducerBusy if the topic's settings allow no more producers."""
        most, partition = producer.topic.client_limits.producers, producer.partition
        if most is not None and self.count(partition) >= most:
            domain = "persistent" if partition.is_persistent else "non-persistent"
            name = f"{domain}://{producer.topic.name.full}"
            if producer.topic.partitioned:
                name += f"-partition-{partition.index}"
            raise ProducerBusy(f"Topic '{name}' reached max producers limit")  # Apache's words.

    def _let_in(self, producers: _Producers, producer: Producer, topic_epoch: int | None) -> None:
        mode = producer.mode
        if topic_epoch is not None and topic_epoch < self._epoch_known(producer):
            raise ProducerFenced("Producer has been fenced: its topic epoch is an old one")
        if mode is AccessMode.SHARED:
            if producers.exclusive or producers.waiting:
                raise ProducerBusy("Topic has an existing exclusive producer")
        elif mode is AccessMode.EXCLUSIVE:
            if producers.by_name:
                raise ProducerFenced("Topic has existing producers")
            self._make_exclusive(producers, producer, topic_epoch)
        elif mode is AccessMode.WAIT_FOR_EXCLUSIVE and producers.by_name:
            producer.is_ready = False
            producers.waiting.append(producer)
        else:
            for other in list(producers.by_name.values()):
                self._take_out(producers, other)
                other.owner.fenced(other)
            self._make_exclusive(producers, producer, topic_epoch)
        producers.by_name[producer.name] = producer

    def _make_exclusive(
        self, producers: _Producers, producer: Producer, topic_epoch: int | None
    ) -> None:
        """Give the producer a new highest epoch; a returning producer keeps its epoch."""
        if topic_epoch is None:
            topic_epoch = producer.topic.meta.topic_epoch
            self._raise_epoch(producer.topic)
        producer.topic_epoch = topic_epoch
        self._granted[producer.partition.partition_id] = topic_epoch
        producers.exclusive = producer

    def _epoch_known(self, producer: Producer) -> int:
        """The epoch below which a returning producer is outdated.

        The stored epoch is the topic's, 1 above the last given epoch: exact for a topic with
        one partition. With more, a partition's own is known only since the broker started.
        """
        granted = self._granted.get(producer.partition.partition_id, 0)
        if len(producer.topic.partitions) > 1:
            return granted
        return max(granted, producer.topic.meta.topic_epoch - 1)

    def _take_out(self, producers: _Producers, producer: Producer) -> None:
        del producers.by_name[producer.name]
        if producers.exclusive is producer:
            producers.exclusive = None
        elif not producer.is_ready:
            producers.waiting.remove(producer)

    def _tidy(self, partition: Channel) -> None:
        producers = self._partitions.get(partition.partition_id)
        if producers is not None and not producers.by_name:
            del self._partitions[partition.partition_id]


def _closed(producers: Sequence[Producer]) -> Iterator[None]:
    for producer in producers:
        producer.owner.close_producer(producer)
        yield


def _ready(producers: _Producers) -> bool:
    return any(producer.is_ready for producer in producers.by_name.values())


def _name_taken(producer: Producer) -> ProducerBusy:
    topic = producer.topic.name
    return ProducerBusy(
        f"Producer with name '{producer.name}' is already connected to topic '{topic}'"
    )
