"""Subscriptions, and the meaning of commit, ack and seek (docs/positions.md).

A Kafka group, a Pulsar subscription and an Iggy consumer of the same name share a cursor. Nothing
here waits: a change is in memory and in the journal at once, and becomes durable with its ticket.
Dispatchers are listeners, called within the change. Knows no connection, no entry of Pulsar's and
no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakValueDictionary

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.positions import cursor_moves
from braidlog.broker.positions.changes import PositionChanges
from braidlog.broker.positions.commits import Commits
from braidlog.broker.positions.cursor_moves import CursorEvent, CursorKey
from braidlog.broker.positions.subscription_limits import check_cursors, check_new
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.topics.registry import TopicRegistry
from braidlog.broker.topics.topic import Topic, TopicEvent
from braidlog.storage.errors import StorageError
from braidlog.storage.metadata.cursors import (
    KafkaCommit,
    Moved,
    StoredCursor,
    StoredSubscription,
)
from braidlog.storage.metadata.delivery_counts import Run
from braidlog.storage.metadata.positions import Positions
from braidlog.storage.metadata.ranges import RangeSet

__all__ = [
    "CursorEvent",
    "KafkaCommit",
    "Subscription",
    "SubscriptionListener",
    "Subscriptions",
]

LOOK_SUBSCRIPTIONS: Final = 1000  # Checked between two checkpoints: some 0.2 ms.
# Passes over all subscriptions; another follows if cursors were moved back.
LOOKS_MAX: Final = 3


class SubscriptionListener(Protocol):
    """Delivers from a cursor. May attach or detach listeners, but not move the cursor."""

    def moved(
        self, index: int, event: CursorEvent, mover: SubscriptionListener | None = None
    ) -> None:
        """React to a change of a cursor, made already by `mover` (None: a client without a
        listener).
        """


class Subscription:
    """A subscription of a topic; all its holders share a single object.

    Once the topic has moved to another broker, every use of the object raises NotOwner, even if the
    topic comes back: there is a new object then.
    """

    def __init__(
        self,
        topic: Topic,
        name: bytes,
        cursors: Positions,
        report: Report,
        limits: StateLimits,
    ) -> None:
        self.topic = topic
        self.name = name
        self.has_moved = False
        self.listeners: set[SubscriptionListener] = set()
        self._cursors = cursors
        self._report = report
        self._limits = limits

    # Reading.

    @property
    def properties(self) -> dict[str, str]:
        """The properties that Pulsar clients gave the subscription."""
        stored = self._stored()
        return stored.properties if stored else {}

    def position(self, index: int) -> int | None:
        """Return the first offset not acknowledged; None: never set."""
        cursor = self._cursor(index)
        return cursor.position if cursor else None

    def acked(self, index: int) -> RangeSet:
        """Return the acknowledged offsets above the position; use them at once, unchanged."""
        cursor = self._cursor(index)
        return RangeSet() if cursor is None or cursor.acked is None else cursor.acked

    def standing(self, index: int) -> tuple[int, int, RangeSet]:
        """Return `position` (0: never set), the floor and `acked` in a single call, for delivery.
        The floor is the position last set by a commit or seek, before acks moved the position.
        """
        cursor = self._cursor(index)
        if cursor is None:
            return 0, 0, RangeSet()
        acked = cursor.acked
        return cursor.position, cursor.floor, RangeSet() if acked is None else acked

    def committed(self, index: int) -> KafkaCommit | None:
        """Return the commit for Kafka's OffsetFetch: Kafka's own commit unchanged, or the position
        to which another protocol moved the cursor, with empty metadata and no time. None: never
        set.
        """
        cursor = self._cursor(index)
        if cursor is None:
            return None
        return cursor.kafka or KafkaCommit(cursor.position, b"", 0)

    def backlog(self, index: int) -> int:
        """Return the number of records that are not acknowledged. Raises PartitionNotFound."""
        partition = self.topic.partition(index)
        end = partition.next_offset
        cursor = self._cursor(index)
        if cursor is None:
            return end - partition.log_start_offset
        start = max(cursor.position, partition.log_start_offset)
        if start >= end:
            return 0
        return end - start - (cursor.acked.count_within(start, end) if cursor.acked else 0)

    def deliveries(self, index: int) -> Sequence[Run] | None:
        """Return how often records were given out, as last stored, for a partition that members of
        a share group have read.
        """
        return self._cursors.deliveries((self.topic.meta.topic_id, self.name, index))

    def count_deliveries(self, index: int, runs: Sequence[Run]) -> None:
        """Store how often unacknowledged records were given out. A topic that has just moved away
        takes counts until its shard is given up. On an error, which is reported, the earlier counts
        stay.
        """
        key = (self.topic.meta.topic_id, self.name, index)
        # An error of storage is reported; without an owner, the counts belong to another broker.
        with suppress(errors.BrokerError), as_broker_errors(self._report):
            cursor = self._cursors.get(key[0], index, self.name)
            if cursor is None:
                return  # The cursor has ended, and its counts too.
            low = cursor.position
            runs = [(max(start, low), end, count) for start, end, count in runs if end > low]
            if runs != self._cursors.deliveries(key):
                self._cursors.count_deliveries(key, runs)

    # Changing.

    def open(self, properties: dict[str, str] | None = None) -> int:
        """Create the subscription, with no cursor set, unless it exists; return the ticket.

        Raises InvalidName, TopicNotFound, LimitExceeded, StorageFull, StorageFailed.
        """
        topic = self.topic
        if self._stored() is None:
            check_new(topic, self.name, self._cursors, self._limits)
        partitions = len(topic.partitions)
        with as_broker_errors(self._report):
            return self._cursors.open(
                topic.meta.topic_id, self.name, partitions=partitions, properties=properties
            )

    def set_properties(self, properties: dict[str, str]) -> int:
        """Replace the properties of the subscription; return the ticket.

        Raises SubscriptionNotFound, StorageFull, StorageFailed.
        """
        if self._stored() is None:
            raise _not_found(self.topic, self.name)
        with as_broker_errors(self._report):
            return self._cursors.set_properties(self.topic.meta.topic_id, self.name, properties)

    def commit(
        self, index: int, position: int, *, kafka: KafkaCommit | None = None, lazy: bool = False
    ) -> int:
        """Set the position as Kafka's and Iggy's clients do; return the ticket, 0 if lazy.

        A forward commit acknowledges everything below. A backward commit forgets every
        acknowledgement, unless its position is not below Kafka's last commit. A commit to the
        cursor's position changes nothing. The position is stored as given, even beyond the log's
        end; below 0 counts as 0. `kafka` is read back as given until another protocol moves the
        cursor. Raises PartitionNotFound and the errors of `open`.
        """
        moved, event = cursor_moves.committed(
            self._key(index), self._cursor(index), position, kafka
        )
        return self._move(moved, event, lazy=lazy)

    def start(self, index: int, position: int) -> int:
        """Set a cursor that was never set; leave a set cursor unchanged. Return the ticket.

        Raises the errors of `commit`.
        """
        if self._cursor(index) is not None:
            return self._flush_lazy()
        return self.seek(index, position)

    def seek(self, index: int, position: int, *, mover: SubscriptionListener | None = None) -> int:
        """Continue at `position`, forget all acknowledgements (Pulsar's seek); return the ticket.

        Raises the errors of `commit`.
        """
        moved = cursor_moves.sought(self._key(index), position)
        return self._move(moved, CursorEvent.SOUGHT, mover=mover)

    def ack(
        self,
        index: int,
        ranges: Iterable[tuple[int, int]],
        *,
        lazy: bool,
        mover: SubscriptionListener | None = None,
    ) -> int:
        """Acknowledge half-open ranges of single offsets; return the ticket, 0 for a lazy ack.

        The position moves over ranges that join it. A cursor that is not set takes no acks. Raises
        LimitExceeded for ranges beyond `RANGES_MAX`, which then count as not acknowledged (the
        others are taken), TopicNotFound, StorageFull, StorageFailed.
        """
        self._check_there()
        cursor = self._cursor(index)
        if cursor is None:
            return 0 if lazy else self._flush_lazy()
        room_in_all = self._limits.ack_ranges - self._cursors.totals.ranges
        fresh, refused = cursor_moves.accept_ranges(cursor, ranges, room_in_all)
        if fresh:
            position = cursor_moves.closed(cursor, fresh)
            moved = cursor_moves.acknowledged(self._key(index), cursor, position, fresh)
            ticket = self._move(moved, CursorEvent.ACKED, lazy=lazy, mover=mover)
        else:
            ticket = 0 if lazy else self._flush_lazy()
        if refused:
            raise errors.LimitExceeded(f"{refused} ranges too many are acknowledged one by one")
        return ticket

    def ack_to(
        self, index: int, position: int, *, lazy: bool, mover: SubscriptionListener | None = None
    ) -> int:
        """Acknowledge everything below `position`; return the ticket, 0 for a lazy ack.

        Never moves back. A cursor that is not set takes no acks. Raises TopicNotFound, StorageFull,
        StorageFailed.
        """
        self._check_there()
        cursor = self._cursor(index)
        position = cursor_moves.bounded(position)
        if cursor is None or position <= cursor.position:
            return 0 if lazy else self._flush_lazy()
        position = cursor_moves.past(cursor, position)
        moved = cursor_moves.acknowledged(self._key(index), cursor, position)
        return self._move(moved, CursorEvent.ACKED, lazy=lazy, mover=mover)

    def delete_cursor(self, index: int) -> int:
        """End a partition's cursor (Pulsar's UNSUBSCRIBE, Iggy's delete); return the ticket.

        Ending the last cursor ends the subscription. Raises TopicNotFound, StorageFull,
        StorageFailed.
        """
        self._check_there()
        was_set = self._cursor(index) is not None
        with as_broker_errors(self._report):
            ticket = self._cursors.delete(self.topic.meta.topic_id, index, self.name)
        if was_set:
            self.tell(index, CursorEvent.DELETED)
        return ticket

    def delete(self) -> int:
        """End the subscription with all its cursors; return the ticket.

        Raises SubscriptionNotFound, StorageFull, StorageFailed.
        """
        stored = self._stored()
        if stored is None:
            raise _not_found(self.topic, self.name)
        with as_broker_errors(self._report):
            ticket = self._cursors.drop(self.topic.meta.topic_id, self.name)
        for index in sorted(stored.cursors):
            self.tell(index, CursorEvent.DELETED)
        return ticket

    def tell(
        self, index: int, event: CursorEvent, mover: SubscriptionListener | None = None
    ) -> None:
        """Notify every listener."""
        for listener in tuple(self.listeners):
            listener.moved(index, event, mover)

    def _key(self, index: int) -> CursorKey:
        return self.topic.meta.topic_id, self.name, index

    def _stored(self) -> StoredSubscription | None:
        if self.has_moved:
            raise self._moved()
        if self.topic.deleted:
            return None  # The store keeps the subscription until the deletion is on disk.
        return self._cursors.find(self.topic.meta.topic_id, self.name)

    def _cursor(self, index: int) -> StoredCursor | None:
        stored = self._stored()
        return stored.cursors.get(index) if stored else None

    def _check_there(self) -> None:
        """Raise TopicNotFound if the topic is gone, NotOwner if the topic has moved.

        A change to a deleted topic must not seem to succeed, nor reach the topic that has its
        cursors under another name.
        """
        if self.has_moved:
            raise self._moved()
        if self.topic.deleted:
            raise errors.TopicNotFound(f"{self.topic.name} was deleted")

    def _moved(self) -> errors.NotOwner:
        return errors.NotOwner(f"{self.topic.name} has moved to another broker")

    def _flush_lazy(self) -> int:
        with as_broker_errors(self._report):
            return self._cursors.flush_lazy()

    def _move(
        self,
        moved: Moved,
        event: CursorEvent | None,
        *,
        lazy: bool = False,
        mover: SubscriptionListener | None = None,
    ) -> int:
        self.topic.partition(moved.index)
        if self._cursor(moved.index) is None:
            check_cursors(self._cursors, 1, self._limits)
        if self.topic.deleted or self._stored() is None:
            self.open()
        with as_broker_errors(self._report):
            ticket = self._cursors.move(moved, lazy=lazy)
        if event is not None:
            self.tell(moved.index, event, mover)
        return ticket


class Subscriptions:
    """The subscriptions of all topics. Implements `HeldSubscriptions`.

    Guarantees: a position never skips a record that was not acknowledged, and every holder of a
    subscription sees each change at once. Nothing waits: changes return tickets.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        cursors: Positions,
        *,
        report: Report,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """`report` is called with each error of storage before the broker error is raised."""
        self.cursors = cursors
        self.report = report
        self.limits = limits
        self.changes = PositionChanges(cursors, topics)  # for readers that follow all positions
        # All holders of a subscription must see the same object, dropped with its last holder.
        self._held: WeakValueDictionary[tuple[int, bytes], Subscription] = WeakValueDictionary()
        topics.listeners.add(self)

    def find(self, topic: Topic, name: bytes) -> Subscription | None:
        """Return the subscription of that name, None if absent."""
        if topic.deleted or self.cursors.find(topic.meta.topic_id, name) is None:
            return None
        return self._object(topic, name)

    def get(self, topic: Topic, name: bytes) -> Subscription:
        """Return the subscription of that name. Raises SubscriptionNotFound."""
        subscription = self.find(topic, name)
        if subscription is None:
            raise _not_found(topic, name)
        return subscription

    def open(
        self, topic: Topic, name: bytes, properties: dict[str, str] | None = None
    ) -> Subscription:
        """Return the subscription of that name; create a missing subscription, with no cursor set.

        Raises InvalidName, TopicNotFound, LimitExceeded, StorageFull, StorageFailed.
        """
        subscription = self._object(topic, name)
        if topic.deleted or self.cursors.find(topic.meta.topic_id, name) is None:
            subscription.open(properties)
        return subscription

    def commits(self, name: bytes) -> Commits:
        """Return an empty set of commits under that name, to be written together."""
        return Commits(self, name)

    def names(self, topic: Topic) -> list[bytes]:
        """Return the subscription names of a topic."""
        return [] if topic.deleted else self.cursors.names(topic.meta.topic_id)

    def flush_lazy(self) -> int:
        """Return a ticket after which a crash takes back no position that is visible now. The
        answer to a client that asks for a position waits for the ticket. If storage takes no
        change, which is reported, the ticket is 0: the client still gets an answer.
        """
        try:
            return self.cursors.flush_lazy()
        except StorageError as error:
            self.report(error)
            return 0

    async def lowest_position(self, topic: Topic, index: int) -> int | None:
        """Return the lowest position of all cursors of a partition, None if none is set.

        Other tasks get turns in between. The result holds until the next wait. The result is 0, so
        that nothing counts as acknowledged, if cursors are created or moved back all the time.
        """
        for _ in range(LOOKS_MAX):
            set_back = self.cursors.set_back
            lowest: int | None = None
            subscriptions = [] if topic.deleted else self.cursors.subscriptions(topic.meta.topic_id)
            async for stored in in_turns(subscriptions, LOOK_SUBSCRIPTIONS):
                cursor = stored.cursors.get(index)
                if cursor is not None and (lowest is None or cursor.position < lowest):
                    lowest = cursor.position
            if set_back == self.cursors.set_back:
                return lowest
        return 0

    def delete(self, topic: Topic, name: bytes) -> int:
        """End a subscription with all its cursors; return the ticket.

        Raises SubscriptionNotFound, StorageFull, StorageFailed.
        """
        return self._object(topic, name).delete()

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """Notify listeners of a deleted topic, whose subscriptions are gone already.
        Subscriptions of a moved topic belong to another broker.
        """
        if event is TopicEvent.SHRUNK:
            self._forget_partitions(topic)
        if event is TopicEvent.MOVED:
            for key, subscription in list(self._held.items()):
                if subscription.topic is topic:
                    subscription.has_moved = True
                    del self._held[key]
        if event is not TopicEvent.DELETED or not topic.partitions:
            return
        for subscription in list(self._held.values()):
            if subscription.topic is topic:
                for index in range(len(topic.partitions)):
                    subscription.tell(index, CursorEvent.DELETED)

    def _forget_partitions(self, topic: Topic) -> None:
        """Delete the cursors of removed partitions by a single journal record; notify listeners."""
        left, gone = len(topic.partitions), list[tuple[Subscription, int]]()
        for subscription in list(self._held.values()):
            if subscription.topic is topic:
                stored = self.cursors.find(topic.meta.topic_id, subscription.name)
                indexes = () if stored is None else stored.cursors
                gone += [(subscription, index) for index in indexes if index >= left]
        try:
            with as_broker_errors(self.report):
                self.cursors.resize(topic.meta.topic_id, left)
        except errors.StorageFull:
            pass  # The next start deletes them.
        for subscription, index in gone:
            subscription.tell(index, CursorEvent.DELETED)

    @property
    def are_held(self) -> bool:
        return bool(self._held)

    def tell(self, moved: Moved, event: CursorEvent) -> None:
        subscription = self._held.get((moved.topic_id, moved.name))
        if subscription is not None:
            subscription.tell(moved.index, event)

    def _object(self, topic: Topic, name: bytes) -> Subscription:
        key = (topic.meta.topic_id, name)
        subscription = self._held.get(key)
        if subscription is None or subscription.topic is not topic:  # The topic was renamed.
            subscription = Subscription(topic, name, self.cursors, self.report, self.limits)
            self._held[key] = subscription
        return subscription


def _not_found(topic: Topic, name: bytes) -> errors.SubscriptionNotFound:
    shown = name.decode(errors="backslashreplace")
    return errors.SubscriptionNotFound(f"{topic.name} has no subscription {shown!r}")
