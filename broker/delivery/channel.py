"""The interfaces of a topic's partition: `Channel` towards producers, `Delivery` (`delivery.py`)
towards consumers.

Implementations: persistent, `Partition` (`broker/topics/partition.py`) with a `Dispatcher` for each
subscription that has consumers (`dispatcher.py`); non-persistent, `LiveTopic` with a
`LiveSubscription` (`non_persistent/topic.py`). Callers seldom ask which: only a send, a subscribe
and a seek differ for Pulsar's listener, as they store records and positions or do not.

Guarantees of both:

* Publishing and sending never wait: entries go to a consumer's outbox, whole. A consumer gets no
  entry without permits and room in its outbox. Permits may fall below zero, as an entry may hold
  more messages than there are permits.
* After a deletion or a move of the topic, `check_open` raises `TopicNotFound` or `NotOwner`, and
  consumers are closed soon.

Persistent:

* A message is durable with the ticket of its append, and is delivered only then (in `synced` mode).
* An entry stays deliverable until it is acknowledged, or a seek or retention passes it; a consumer
  that leaves gives back what it holds. An acknowledgement is durable with its ticket; with `lazy`,
  a crash may lose it, and the entry is delivered again.
* `acknowledge`, `acknowledge_to` and `seek` are awaited: the log may have to be read. A seek makes
  acknowledgements under way void, and closes the consumers.

Non-persistent:

* Nothing is stored: ledger and entry ids are 0, every ticket is 0. An entry that no consumer of a
  subscription can take is dropped and counted.
* Acknowledging, redelivery and seeks do nothing. `stored` raises `NotSupported`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.producer_memory import SequenceTable
    from braidlog.storage.metadata.names import TopicName


class NamedTopic(Protocol):
    """The topic of a channel."""

    @property
    def name(self) -> TopicName:
        """Tenant, namespace and name."""

    @property
    def partitioned(self) -> bool:
        """True for a partitioned topic in Pulsar's sense."""


class Channel(Protocol):
    """A partition towards its producers."""

    @property
    def index(self) -> int:
        """The partition's number, from 0."""

    @property
    def figures_name(self) -> str:
        """The topic's name in figures."""

    @property
    def is_terminated(self) -> bool:
        """True once the topic was terminated: the channel takes no more messages."""

    @property
    def is_persistent(self) -> bool:
        """True if messages are stored."""

    @property
    def topic(self) -> NamedTopic:
        """The partition's topic."""

    @property
    def partition_id(self) -> int:
        """A number that no other channel of this broker has."""

    @property
    def ledger_id(self) -> int:
        """The ledger in Pulsar's message ids."""

    @property
    def appended_ticket(self) -> int:
        """The ticket that makes everything that was published so far durable."""

    @property
    def known_sequences(self) -> SequenceTable | None:
        """The memory of the producers' sequence ids, for deduplication; None until it is read."""

    @property
    def lacked_room(self) -> bool:
        """True if the disk was full for the last message."""

    async def check_room(self) -> None:
        """Raises StorageFull if the disk was full for the last message and still is."""

    def check_open(self) -> None:
        """Raises TopicNotFound, TopicTerminated if the channel takes no messages any more."""

    def producer_joined(self) -> None:
        """Note a further producer."""

    def producer_left(self) -> None:
        """Note that a producer left."""

    def stored(self) -> Partition:
        """Return the partition that stores the messages. Raises NotSupported."""
