"""The interfaces of a topic's partition: `Channel` towards producers, `Delivery` (`delivery.py`)
towards consumers.

Implementations: persistent, `Partition` (`broker/topics/partition.py`) with a `Dispatcher` for each
subscription that has consumers (`dispatcher.py`); non-persistent, `NonPersistentChannel` with a
`NonPersistentSubscription` (`non_persistent/channel.py`). Callers seldom need the difference: in
Pulsar's listener only a send, a subscribe and a seek depend on stored records and positions.

Guarantees of both:

* Publishing and sending never wait: whole entries go to a consumer's outbox. A consumer gets no
  entry without permits and room in its outbox. Permits may fall below zero, because an entry may
  hold more messages than there are permits.
* After a deletion or a move of the topic, `check_open` raises `TopicNotFound` or `NotOwner`, and
  consumers are closed soon.

Persistent:

* A message is durable with the ticket of its append. In `synced` mode the message is delivered only
  then.
* An entry stays deliverable until a client acknowledges the entry, or a seek or retention passes
  it. A consumer that leaves returns its unacknowledged entries. An acknowledgement is durable with
  its ticket; a crash may lose a `lazy` acknowledgement, and the entry is delivered again.
* `acknowledge`, `acknowledge_to` and `seek` are awaited, because they may read the log. A seek
  voids acknowledgements under way and closes the consumers.

Non-persistent:

* Nothing is stored: ledger and entry ids are 0, every ticket is 0. If no consumer of a subscription
  can take an entry, the entry is dropped and counted.
* Acknowledging, redelivery and seeks do nothing. `stored` raises `NotSupported`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.producer_memory import SequenceTable
    from braidlog.broker.traffic import PartitionTraffic
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
    def metrics_name(self) -> str:
        """The topic's name in metrics."""

    @property
    def traffic(self) -> PartitionTraffic:
        """Counts of messages in and out, of all clients."""

    @property
    def is_terminated(self) -> bool:
        """True once the topic was terminated: the channel accepts no more messages."""

    @property
    def is_persistent(self) -> bool:
        """True if messages are stored."""

    @property
    def topic(self) -> NamedTopic:
        """The partition's topic."""

    @property
    def partition_id(self) -> int:
        """A number unique among the channels of this broker."""

    @property
    def ledger_id(self) -> int:
        """The ledger in Pulsar's message ids."""

    @property
    def appended_ticket(self) -> int:
        """The ticket that makes everything published so far durable."""

    @property
    def known_sequences(self) -> SequenceTable | None:
        """The producers' sequence ids, for deduplication; None until they are read."""

    @property
    def lacked_room(self) -> bool:
        """True if the disk was full for the last message."""

    async def check_room(self) -> None:
        """Raise StorageFull if the disk was full for the last message and still is."""

    def check_open(self) -> None:
        """Raise TopicNotFound or TopicTerminated if the channel accepts no messages any more."""

    def producer_joined(self) -> None:
        """Note a further producer."""

    def producer_left(self) -> None:
        """Note that a producer left."""

    def stored(self) -> Partition:
        """Return the partition that stores the messages. Raises NotSupported."""
