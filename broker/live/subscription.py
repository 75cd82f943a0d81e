"""The consumers of one name on a live topic, and who of them is given what is published.

As Apache Pulsar's dispatchers of non-persistent topics: who has no permits, or whose connection
takes no more, misses the message, and that is counted. Nothing is kept, nothing comes again.
Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.delivery import entries as ids
from broker.delivery.consumer import CONSUMERS_MAX, Consumer, SubscriptionKind
from broker.delivery.failover import choose_active
from broker.delivery.key_slots import KeyPolicy
from broker.errors import SubscriptionBusy

if TYPE_CHECKING:
    from broker.delivery.entries import Entry
    from broker.live.topic import LiveTopic


class LiveSubscription:
    """One subscription of one live topic. Nothing here waits."""

    def __init__(
        self,
        topic: LiveTopic,
        name: bytes,
        kind: SubscriptionKind,
        policy: KeyPolicy | None = None,
        *,
        is_kept: bool = True,
    ) -> None:
        """`policy` says whose a key is, for Key_Shared alone; a reader's is not kept when its
        consumer leaves.
        """
        self.partition = topic  # What a dispatcher calls so.
        self.name = name
        self.kind = kind
        self.policy = policy
        self.is_kept = is_kept
        self.consumers: list[Consumer] = []  # Whose turn it is comes first (Shared).
        self.active: Consumer | None = None  # Of Exclusive and Failover.
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_dropped = 0

    def check_room(self, consumer: Consumer) -> None:
        """Whether it takes this consumer besides those that it has.

        Raises SubscriptionBusy; InvalidRequest for ranges of keys that cannot be.
        """
        if self.kind is SubscriptionKind.EXCLUSIVE and self.consumers:
            raise SubscriptionBusy("Exclusive consumer is already connected")
        if len(self.consumers) >= CONSUMERS_MAX:
            raise SubscriptionBusy("Subscription reached max consumers limit")
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

    def detach(self, consumer: Consumer) -> None:
        """Take a consumer off; nothing happens to one that is off already."""
        if not consumer.is_attached:
            return
        self.consumers.remove(consumer)
        consumer.is_attached = False
        if self.policy is not None:
            self.policy.remove(consumer)
        self._choose(None)
        self.partition.consumer_left(self)

    def close_consumers(self) -> None:
        """Detach every consumer and tell its connection."""
        for consumer in list(self.consumers):
            self.detach(consumer)
            consumer.disconnect()

    def _choose(self, newcomer: Consumer | None) -> None:
        """Who is active from now on; on Failover all hear of a change, else the newcomer alone."""
        if self.kind is SubscriptionKind.EXCLUSIVE:
            self.active = next(iter(self.consumers), None)
        elif self.kind is SubscriptionKind.FAILOVER:
            before = self.active
            topic = self.partition
            index = topic.index if topic.partitioned else None
            self.active = choose_active(self.consumers, topic.full, index)
            told = self.consumers if self.active is not before else [newcomer]
            for consumer in told:
                if consumer is not None:
                    consumer.active_changed(is_active=consumer is self.active)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Let a consumer take `permits` more messages of those that come."""
        consumer.permits += permits

    def wake(self) -> None:
        """A connection has room again: nothing waits for it here."""

    def publish(self, entries: Sequence[Entry]) -> int:
        """Hand entries to who may have them; returns how many messages nobody could."""
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
        """Of those with the best priority who can take, the one that waited longest."""
        best: Consumer | None = None
        for consumer in self.consumers:
            is_better = best is None or consumer.priority < best.priority
            if is_better and consumer.can_take and takes[consumer]:
                best = consumer
        if best is not None:
            self.consumers.remove(best)
            self.consumers.append(best)
        return best
