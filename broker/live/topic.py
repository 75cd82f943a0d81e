"""A live topic: it keeps nothing. What is published goes to who is connected and has permits, or
is lost. Pulsar's non-persistent topics; each partition of a partitioned one is a live topic.

Knows no protocol and no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.delivery.consumer import SubscriptionKind
from broker.delivery.key_slots import KeyPolicy
from broker.errors import LimitExceeded, TopicNotFound
from broker.live.subscription import LiveSubscription
from broker.topics.topic import Topic
from storage.metadata.catalogue_records import TopicMeta

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.placement import Placement
    from broker.delivery.entries import Entry
    from storage.metadata.catalogue_records import SchemaMeta
    from storage.metadata.names import TopicName

LIVE_ID: Final = 0  # Ledger and entry id of every message, as in Apache Pulsar.
# Each is looked at for every message that is published.
LIVE_SUBSCRIPTIONS_MAX: Final = 1000


class LiveTopic(Topic):
    """A topic without partitions, or one partition of a live topic that has some.

    It has no log and no `partitions`; producers and subscriptions are on the topic itself.
    """

    def __init__(
        self,
        name: TopicName,
        index: int | None,
        placement: Placement,
        *,
        number: int,
        created_us: int,
        schemas: list[SchemaMeta],
        idle: Callable[[LiveTopic], None],
    ) -> None:
        """`index` is the partition's, None without partitions; `number` tells it apart from every
        partition and live topic; `schemas` are shared by all partitions; `idle` hears when the last
        producer or consumer has left.
        """
        meta = TopicMeta(0, name, [], index is not None, created_us, {}, None, 0, schemas=schemas)
        super().__init__(meta, placement)
        self.index = index or 0
        self.partition_id = number
        self.full = f"non-persistent://{name.full}"  # As it is named in figures.
        if index is not None:
            self.full += f"-partition-{index}"
        self.subscriptions: dict[bytes, LiveSubscription] = {}
        self.producers = 0  # Counted by who lets them in.
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_dropped = 0
        self._idle = idle

    @property
    def topic(self) -> LiveTopic:
        """Itself: what asks a partition for its topic."""
        return self

    @property
    def appended_ticket(self) -> int:
        """Nothing is ever waited for."""
        return 0

    @property
    def is_idle(self) -> bool:
        """Whether nobody produces or consumes."""
        return not self.producers and not any(s.consumers for s in self.subscriptions.values())

    def check_room(self) -> None:
        """There always is: nothing is kept."""

    def check_open(self) -> None:
        """Raises TopicNotFound once it was deleted."""
        if self.deleted:
            raise TopicNotFound(self.full)

    def subscribe(
        self,
        name: bytes,
        kind: SubscriptionKind,
        policy: KeyPolicy | None = None,
        *,
        is_kept: bool = True,
    ) -> LiveSubscription:
        """The subscription of that name; one without consumers is of that kind from now on.

        Raises LimitExceeded.
        """
        there = self.subscriptions.get(name)
        if there is not None and there.consumers:
            return there
        if there is None and len(self.subscriptions) >= LIVE_SUBSCRIPTIONS_MAX:
            raise LimitExceeded(f"a topic has at most {LIVE_SUBSCRIPTIONS_MAX} subscriptions")
        made = self.subscriptions[name] = LiveSubscription(
            self, name, kind, policy, is_kept=is_kept
        )
        return made

    def unsubscribe(self, subscription: LiveSubscription) -> None:
        """End a subscription that has no consumers."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    def publish(self, entries: Sequence[Entry], records: int, size: int) -> None:
        """Hand entries to every subscription; `records` messages, `size` bytes together. Whoever
        keeps a body keeps what it is a view of.
        """
        self.messages_in += records
        self.bytes_in += size
        for subscription in list(self.subscriptions.values()):
            self.messages_dropped += subscription.publish(entries)

    def consumer_left(self, subscription: LiveSubscription) -> None:
        """A consumer has left."""
        if not subscription.consumers and not subscription.is_kept:
            self.unsubscribe(subscription)
        self._look_if_idle()

    def producer_left(self) -> None:
        """A producer has left."""
        self.producers -= 1
        self._look_if_idle()

    def _look_if_idle(self) -> None:
        if self.is_idle:
            self._idle(self)
