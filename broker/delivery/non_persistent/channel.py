"""The channel of a non-persistent topic of Pulsar: a message goes to the connected consumers that
have permits, or is lost. Each partition of a partitioned topic has such a channel.

Knows no protocol and no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.broker.delivery.failover import choose_active
from braidlog.broker.delivery.key_slots import KeyPolicy
from braidlog.broker.delivery.limits import CONSUMERS_MAX
from braidlog.broker.errors import (
    LimitExceeded,
    NotSupported,
    PolicyViolated,
    SubscriptionBusy,
    TopicNotFound,
)
from braidlog.broker.reading import entries as ids
from braidlog.broker.topics.topic import NonPersistentTopic
from braidlog.broker.traffic import PartitionTraffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from braidlog.broker.cluster.placement import Placement
    from braidlog.broker.delivery.dispatcher import Dispatcher
    from braidlog.broker.reading.entries import Entry, EntryId
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.metadata.catalogue_records import Setting, TopicMeta
    from braidlog.storage.metadata.names import TopicName

NON_PERSISTENT_ID: Final = 0  # Ledger and entry id of every message, as in Apache Pulsar.
# Each is looked at for every message that is published.
NON_PERSISTENT_SUBSCRIPTIONS_MAX: Final = 1000


class NonPersistentChannel:
    """The channel of a topic without partitions, or of one partition of a partitioned topic.

    There is no log; producers and subscriptions are on the channel itself. Implements `Channel`.
    """

    is_persistent = False
    ledger_id = NON_PERSISTENT_ID
    appended_ticket = 0  # Nothing is stored, so no answer waits.
    known_sequences = None
    lacked_room = False
    is_terminated = False

    def __init__(
        self,
        meta: TopicMeta,
        index: int | None,
        placement: Placement,
        *,
        inherited: Callable[[], Mapping[str, Setting]],
        number: int,
        idle: Callable[[NonPersistentChannel], None],
    ) -> None:
        """`index` is the partition's, None without partitions; `inherited` returns the
        namespace's settings; `number` tells the channel apart from every partition and channel;
        `idle` is called when the last producer or consumer has left.
        """
        self.topic = NonPersistentTopic(meta, placement, inherited, self)
        self.index = index or 0
        self.partition_id = number
        self.full = f"non-persistent://{meta.name.full}"
        if index is not None:
            self.full += f"-partition-{index}"
        self.subscriptions: dict[bytes, NonPersistentSubscription] = {}
        self.producers = 0  # Those that joined and have not left.
        self.traffic = PartitionTraffic()
        self.messages_dropped = 0
        self._idle = idle

    @property
    def metrics_name(self) -> str:
        """As `Channel.metrics_name`; each partition has separate metrics."""
        return self.full

    @property
    def name(self) -> TopicName:
        """The topic's name."""
        return self.topic.name

    @property
    def deleted(self) -> bool:
        """True if the topic was deleted, or forgotten without clients."""
        return self.topic.deleted

    def delete(self) -> None:
        """Take no messages any more."""
        self.topic.mark_deleted()

    @property
    def is_idle(self) -> bool:
        """True if nobody produces or consumes."""
        return not self.producers and not any(s.consumers for s in self.subscriptions.values())

    @property
    def consumer_count(self) -> int:
        """Number of consumers of all subscriptions."""
        return sum(len(subscription.consumers) for subscription in self.subscriptions.values())

    async def check_room(self) -> None:
        """As `Channel.check_room`."""

    def stored(self) -> Partition:
        raise NotSupported(f"{self.full} is a non-persistent topic: nothing is stored")

    def check_open(self) -> None:
        """Raises TopicNotFound once it was deleted."""
        if self.deleted:
            raise TopicNotFound(f"{self.full} was deleted")

    def subscribe(
        self,
        name: bytes,
        kind: SubscriptionKind,
        policy: KeyPolicy | None = None,
        *,
        is_kept: bool = True,
    ) -> NonPersistentSubscription:
        """The subscription of that name; one without consumers is made anew, of that kind.

        Raises LimitExceeded, PolicyViolated.
        """
        present = self.subscriptions.get(name)
        if present is not None and present.consumers:
            return present
        if present is None and len(self.subscriptions) >= NON_PERSISTENT_SUBSCRIPTIONS_MAX:
            raise LimitExceeded(
                f"a topic has at most {NON_PERSISTENT_SUBSCRIPTIONS_MAX} subscriptions"
            )
        most = self.topic.client_limits.subscriptions
        if present is None and most is not None and len(self.subscriptions) >= most:
            text = "Exceed the maximum number of subscriptions of the topic"  # Apache's words.
            raise PolicyViolated(f"{text}: {self.full}")
        created = self.subscriptions[name] = NonPersistentSubscription(
            self, name, kind, policy, is_kept=is_kept
        )
        return created

    def unsubscribe(self, subscription: NonPersistentSubscription) -> None:
        """End a subscription that has no consumers."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    def publish(self, entries: Sequence[Entry], records: int, size: int) -> None:
        """Hand entries to every subscription; `records` messages, `size` bytes together. To keep
        a body is to keep the memory that it is a view of.
        """
        self.traffic.records_in += records
        self.traffic.bytes_in += size
        for subscription in list(self.subscriptions.values()):
            self.messages_dropped += subscription.publish(entries)

    def consumer_left(self, subscription: NonPersistentSubscription) -> None:
        """A consumer has left."""
        if not subscription.consumers and not subscription.is_kept:
            self.unsubscribe(subscription)
        self._look_if_idle()

    def producer_joined(self) -> None:
        self.producers += 1

    def producer_left(self) -> None:
        """As `Channel.producer_left`; a topic without clients is forgotten after a while."""
        self.producers -= 1
        self._look_if_idle()

    def _look_if_idle(self) -> None:
        if self.is_idle:
            self._idle(self)


class NonPersistentSubscription:
    """The consumers of one name on a non-persistent topic, and which of them is given a message.

    As Apache Pulsar's dispatchers of non-persistent topics: without permits, or with a connection
    that takes no more, a consumer misses the message, and that is counted. Implements `Delivery`.
    """

    redelivers = False
    backlog = 0

    def __init__(
        self,
        topic: NonPersistentChannel,
        name: bytes,
        kind: SubscriptionKind,
        policy: KeyPolicy | None = None,
        *,
        is_kept: bool = True,
    ) -> None:
        """`policy` says which consumer gets a key, for Key_Shared alone; if not `is_kept`, as with
        readers, the subscription ends when its consumer leaves.
        """
        self.partition = topic
        self.name = name
        self.kind = kind
        self.policy = policy
        self.is_kept = is_kept
        self.consumers: list[Consumer] = []  # The next in turn comes first (Shared).
        self.active: Consumer | None = None  # Of Exclusive and Failover.
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_dropped = 0

    def check_room(self, consumer: Consumer) -> None:
        """Check that it takes this consumer besides those that it has.

        Raises SubscriptionBusy; InvalidRequest for ranges of keys that are not valid.
        """
        if self.kind is SubscriptionKind.EXCLUSIVE and self.consumers:
            raise SubscriptionBusy("Exclusive consumer is already connected")
        limits = self.partition.topic.client_limits
        if len(self.consumers) >= (limits.subscription_consumers or CONSUMERS_MAX):
            raise SubscriptionBusy("Subscription reached max consumers limit")
        if limits.consumers is not None and self.partition.consumer_count >= limits.consumers:
            raise SubscriptionBusy("Topic reached max consumers limit")
        if self.policy is not None:
            self.policy.check(consumer.key_ranges)

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer. Raises as `check_room`."""
        self.check_room(consumer)
        self.consumers.append(consumer)
        consumer.is_attached = True
        if self.policy is not None:
            self.policy.add(consumer)
        self._choose(consumer)

    def leave(self, consumer: Consumer) -> None:
        if not consumer.is_attached:
            return
        self.consumers.remove(consumer)
        consumer.is_attached = False
        if self.policy is not None:
            self.policy.remove(consumer)
        self._choose(None)
        self.partition.consumer_left(self)

    def close_consumers(self) -> Iterator[None]:
        """End it: detach every consumer at once; each step tells one connection."""
        consumers, self.consumers = self.consumers, []
        self.active = self.policy = None
        for consumer in consumers:
            consumer.is_attached = False
        if consumers:
            self.partition.consumer_left(self)
        return _disconnect_each(consumers)

    def _choose(self, newcomer: Consumer | None) -> None:
        """Choose the active consumer; on Failover all hear of a change, else only the newcomer."""
        if self.kind is SubscriptionKind.EXCLUSIVE:
            self.active = next(iter(self.consumers), None)
        elif self.kind is SubscriptionKind.FAILOVER:
            before = self.active
            topic = self.partition
            index = topic.index if topic.topic.partitioned else None
            self.active = choose_active(self.consumers, topic.full, index)
            listeners = self.consumers if self.active is not before else [newcomer]
            for consumer in listeners:
                if consumer is not None:
                    consumer.active_changed(is_active=consumer is self.active)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer take `permits` more messages of those that come."""
        consumer.permits += permits

    def wake(self) -> None:
        """A connection has room again: nothing waits for it here."""

    async def acknowledge(
        self,
        consumer: Consumer,
        message_ids: Sequence[EntryId],
        *,
        lazy: bool,
        entries: Sequence[int] = (),
    ) -> int:
        """As `Delivery.acknowledge`: nothing would come again."""
        return 0

    def acknowledge_at_once(
        self, consumer: Consumer, entries: Sequence[int], *, lazy: bool
    ) -> int | None:
        """As `Delivery.acknowledge_at_once`: nothing would come again."""
        return 0

    async def acknowledge_to(self, consumer: Consumer, message_id: EntryId, *, lazy: bool) -> int:
        return 0

    def redeliver(self, consumer: Consumer, message_ids: Sequence[EntryId]) -> None:
        """As `Delivery.redeliver`."""

    async def seek(self, position: Callable[[], Awaitable[int]]) -> int:
        """As `Delivery.seek`: there is no position."""
        return 0

    def unsubscribe(self) -> int:
        self.partition.unsubscribe(self)
        return 0

    def stored(self) -> Dispatcher:
        raise NotSupported("A non-persistent topic has no last message")

    def publish(self, entries: Sequence[Entry]) -> int:
        """Hand entries to consumers that can take them; returns how many messages none could."""
        takes = {consumer: consumer.takes_more() for consumer in self.consumers}
        shares: dict[Consumer, list[Entry]] = {}
        dropped = 0
        for entry in entries:
            consumer = self._taker(entry, takes)
            if consumer is None:
                dropped += entry.record_count
            else:
                consumer.permits -= entry.record_count
                consumer.messages_out += entry.record_count
                self.messages_out += entry.record_count
                shares.setdefault(consumer, []).append(entry)
        for consumer, share in shares.items():
            size = sum(len(entry.body) for entry in share)
            consumer.bytes_out += size
            self.bytes_out += size
            consumer.entries_out += len(share)
            consumer.send(share, size)
        self.messages_dropped += dropped
        return dropped

    def _taker(self, entry: Entry, takes: dict[Consumer, bool]) -> Consumer | None:
        if self.kind is SubscriptionKind.SHARED:
            return self._next(takes)
        consumer = self.active
        if self.policy is not None:
            key = ids.sticky_key(ids.entry_metadata(entry.body))
            consumer = self.policy.owner(self.policy.slot(key))
        return consumer if consumer is not None and consumer.can_take and takes[consumer] else None

    def _next(self, takes: dict[Consumer, bool]) -> Consumer | None:
        """The consumer that waited longest, of those with the best priority that can take."""
        best: Consumer | None = None
        for consumer in self.consumers:
            is_better = best is None or consumer.priority < best.priority
            if is_better and consumer.can_take and takes[consumer]:
                best = consumer
        if best is not None:
            self.consumers.remove(best)
            self.consumers.append(best)
        return best


def _disconnect_each(consumers: Sequence[Consumer]) -> Iterator[None]:
    for consumer in consumers:
        consumer.disconnect()
        yield
