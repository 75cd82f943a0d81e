"""The positions of subscriptions in memory, without a journal.

`JournalPositions` (`journal_positions.py`) holds such a store, and writes each change into its
journal before the change is applied here. By itself the store serves a reader that has no durable
subscription: the reader's position ends with the store, and every ticket is 0.
"""

from collections.abc import Iterable, Sequence

from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import (
    CursorChange,
    CursorGone,
    Moved,
    PropertiesSet,
    StoredCursor,
    StoredSubscription,
    Subscribed,
    TopicDropped,
    TopicResized,
    Unsubscribed,
    new_subscription,
)
from braidlog.storage.metadata.delivery_counts import QueueKey, Run
from braidlog.storage.metadata.positions import JournalWatcher
from braidlog.storage.metadata.ranges import RangeSet


class MemoryPositions:
    """All subscriptions of all topics. Callers must not change returned objects. Implements
    `Positions`.
    """

    def __init__(self) -> None:
        self.set_back = 0
        self.totals = CursorTotals()
        self.topics: dict[int, dict[bytes, StoredSubscription]] = {}

    # Reading.

    def topic_ids(self) -> list[int]:
        return list(self.topics)

    def names(self, topic_id: int) -> list[bytes]:
        return sorted(self.topics.get(topic_id, ()))

    def count(self, topic_id: int) -> int:
        return len(self.topics.get(topic_id, ()))

    def find(self, topic_id: int, name: bytes) -> StoredSubscription | None:
        return self.topics.get(topic_id, {}).get(name)

    def get(self, topic_id: int, index: int, name: bytes) -> StoredCursor | None:
        subscription = self.find(topic_id, name)
        return subscription.cursors.get(index) if subscription else None

    def subscriptions(self, topic_id: int) -> list[StoredSubscription]:
        """All subscriptions of a topic, in no order: live objects that go on changing."""
        return list(self.topics.get(topic_id, {}).values())

    # Changing.

    def open(
        self,
        topic_id: int,
        name: bytes,
        *,
        partitions: int,
        properties: dict[str, str] | None = None,
    ) -> int:
        return self._change(self.opening(topic_id, name, partitions, properties))

    def move(self, moved: Moved, *, lazy: bool = False) -> int:
        return self._change(moved)

    def move_all(self, moves: Iterable[Moved], *, making: Iterable[Subscribed] = ()) -> int:
        return self._change(*making, *moves)

    def set_properties(self, topic_id: int, name: bytes, properties: dict[str, str]) -> int:
        return self._change(PropertiesSet(topic_id, name, dict(properties)))

    def delete(self, topic_id: int, index: int, name: bytes) -> int:
        return self._change(self.deleting(topic_id, index, name))

    def drop(self, topic_id: int, name: bytes) -> int:
        return self._change(Unsubscribed(topic_id, name))

    def drop_topic(self, topic_id: int) -> int:
        return self._change(TopicDropped(topic_id) if topic_id in self.topics else None)

    def resize(self, topic_id: int, partitions: int, *, lazy: bool = False) -> int:
        return self._change(self.resizing(topic_id, partitions))

    def deliveries(self, key: QueueKey) -> Sequence[Run] | None:
        """Return None: nothing is stored."""
        return None

    def count_deliveries(self, key: QueueKey, runs: Sequence[Run]) -> None:
        """Do nothing: the reader's position ends with its consumers."""

    def watch(self, watcher: JournalWatcher) -> None:
        """Do nothing: there is no journal."""

    def flush_lazy(self) -> int:
        """Return 0: nothing is stored."""
        return 0

    def _change(self, *changes: CursorChange | None) -> int:
        wanted = [change for change in changes if change is not None]
        self.check_named(wanted)
        for change in wanted:
            self.apply(change)
        return 0

    # Choosing a change; None: there is nothing to change.

    def opening(
        self, topic_id: int, name: bytes, partitions: int, properties: dict[str, str] | None
    ) -> CursorChange | None:
        """Return the change that makes a subscription with cursors never set."""
        if self.find(topic_id, name) is not None:
            return None
        return new_subscription(topic_id, name, partitions, properties)

    def deleting(self, topic_id: int, index: int, name: bytes) -> CursorChange | None:
        """Return the change that ends a cursor, with the last cursor the subscription."""
        subscription = self.find(topic_id, name)
        if subscription is None:
            return None
        if not subscription.cursors.keys() - {index}:
            return Unsubscribed(topic_id, name)
        return CursorGone(topic_id, name, index) if index in subscription.cursors else None

    def resizing(self, topic_id: int, partitions: int) -> CursorChange | None:
        """Return the change that gives a topic's subscriptions that many partitions."""
        named = self.topics.get(topic_id, {})
        if all(subscription.partitions == partitions for subscription in named.values()):
            return None
        return TopicResized(topic_id, partitions)

    # Applying.

    def check_named(self, changes: Sequence[CursorChange]) -> None:
        """Assert that the changes name existing subscriptions: the next start would
        fail otherwise.
        """
        new: set[tuple[int, bytes]] = set()
        for change in changes:
            if type(change) is Moved:  # hot: see make bench
                named = self.topics.get(change.topic_id, {})
                is_new = (change.topic_id, change.name) in new if new else False
                assert is_new or change.name in named, "no such subscription"
                continue
            match change:
                case Subscribed(topic_id=topic_id, subscriptions=subscriptions):
                    new.update((topic_id, name) for name in subscriptions)
                case CursorGone(topic_id=topic_id, name=name, index=index):
                    assert index in self.topics[topic_id][name].cursors
                case (
                    Unsubscribed(topic_id=topic_id, name=name)
                    | PropertiesSet(topic_id=topic_id, name=name)
                ):
                    assert name in self.topics[topic_id]
                case TopicDropped(topic_id=topic_id) | TopicResized(topic_id=topic_id):
                    assert topic_id in self.topics

    def apply(self, change: CursorChange) -> None:
        """Apply a change that names an existing subscription."""
        match change:
            case Moved():
                self._apply_moved(change)
            case Subscribed():
                self._apply_subscribed(change)
            case CursorGone():
                subscription = self.topics[change.topic_id][change.name]
                self.totals.take((subscription,))
                del subscription.cursors[change.index]
                self.totals.add((subscription,))
            case Unsubscribed():
                named = self.topics[change.topic_id]
                self.totals.take((named.pop(change.name),))
                if not named:
                    del self.topics[change.topic_id]
            case PropertiesSet():
                subscription = self.topics[change.topic_id][change.name]
                subscription.properties = change.properties
            case TopicDropped():
                self.totals.take(self.topics.pop(change.topic_id).values())
            case TopicResized():
                self.set_back += 1
                for subscription in self.topics[change.topic_id].values():
                    if (
                        subscription.partitions != change.partitions
                    ):  # Many may have that number already.
                        self.totals.take((subscription,))
                        _resize(subscription, change.partitions)
                        self.totals.add((subscription,))

    def _apply_subscribed(self, change: Subscribed) -> None:
        named = self.topics.setdefault(change.topic_id, {})
        self.totals.take(named[name] for name in change.subscriptions if name in named)
        named.update(change.subscriptions)
        self.totals.add(change.subscriptions.values())

    def _apply_moved(self, change: Moved) -> None:
        cursors = self.topics[change.topic_id][change.name].cursors
        cursor = cursors.get(change.index)
        if cursor is None:
            cursor = cursors[change.index] = StoredCursor(change.position, change.floor)
            self.totals.cursors += 1
            self.set_back += 1
        elif change.position < cursor.position:
            self.set_back += 1
        cursor.position = change.position
        cursor.floor = change.floor
        cursor.kafka = change.kafka
        had = len(cursor.acked) if cursor.acked is not None else 0
        if change.cleared:
            cursor.acked = None
        if cursor.acked is not None or change.ranges is not None:
            cursor.acked = _joined(cursor.acked, change.ranges, change.position)
        self.totals.ranges += (len(cursor.acked) if cursor.acked is not None else 0) - had


def _joined(acked: RangeSet | None, ranges: RangeSet | None, position: int) -> RangeSet | None:
    """The ranges acknowledged above the position; None if there are none, as for most cursors.

    Ranges below the position go first, so that only those that stay count against a set's limit.
    """
    if acked is not None:
        acked.pop_below(position)
    if ranges is not None:
        ranges.pop_below(position)
        if acked is None:
            acked = ranges
        else:
            acked.update(ranges)
    return acked or None


def _resize(subscription: StoredSubscription, partitions: int) -> None:
    for index in range(subscription.partitions, partitions):
        subscription.cursors[index] = StoredCursor(0, 0)
    for index in [index for index in subscription.cursors if index >= partitions]:
        del subscription.cursors[index]
    subscription.partitions = partitions
