"""The positions of all subscriptions in memory, every change in a journal (storage/FORMAT.md,
section 9.2).

A change is written as a record and then applied to memory by the same code that a replay uses.
Knows no log, no protocol and no clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from braidlog.storage.errors import DamagedLog
from braidlog.storage.metadata.changes import ChangeJournal, Journal
from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import (
    CursorChange,
    CursorGone,
    Moved,
    StoredChange,
    StoredCursor,
    StoredSubscription,
    Subscribed,
    TopicDropped,
    TopicResized,
    Unsubscribed,
    new_subscription,
)
from braidlog.storage.metadata.log_ends import EndsSet, LogEnds
from braidlog.storage.metadata.ranges import RangeSet

# Limits of a snapshot record: cursors of some 40 bytes each, or ranges of a cursor, 16 each.
RECORD_CURSORS: Final = 4096
RECORD_RANGES: Final = 1 << 14

# Cursors that each record adds to a snapshot in progress: half a millisecond.
GATHER_CURSORS: Final = 2048


class JournalPositions:
    """All subscriptions of all topics. Callers must not change returned objects.

    Guarantees: memory equals a replay of the journal; a crash may lose lazy changes, so that a
    position is then older, never newer. No call waits after the replay.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        lost: Callable[[DamagedLog], None] | None = None,
        gather_max: int = GATHER_CURSORS,
    ) -> None:
        """Replay the journal.

        `lost` is called for each change that is skipped because it cannot be read or names
        something missing; without `lost` that is an error. `gather_max`: cursors that a record adds
        to a snapshot in progress. Raises DamagedLog, UnknownRecord.
        """
        self._gathering: Gathering | None = None
        self._gather_max = gather_max
        self.set_back = 0
        """Grows when a cursor is made or moved back: positions read before may then be too high."""
        self.totals = CursorTotals()
        self.ends = LogEnds()  # How far the logs are known to reach; callers only look.
        self._topics: dict[int, dict[bytes, StoredSubscription]] = {}
        self._journal: ChangeJournal[StoredChange] = ChangeJournal(journal, StoredChange, "cursors")
        self._journal.replay(self._apply, lost)

    @property
    def ticket(self) -> int:
        """After this ticket every change so far that was not lazy is on disk."""
        return self._journal.ticket

    def topic_ids(self) -> list[int]:
        """The topics that have subscriptions."""
        return list(self._topics)

    def names(self, topic_id: int) -> list[bytes]:
        """The subscriptions of a topic, by name, including those without a cursor."""
        return sorted(self._topics.get(topic_id, ()))

    def count(self, topic_id: int) -> int:
        """Return the number of subscriptions of a topic."""
        return len(self._topics.get(topic_id, ()))

    def find(self, topic_id: int, name: bytes) -> StoredSubscription | None:
        """The subscription of that name."""
        return self._topics.get(topic_id, {}).get(name)

    def get(self, topic_id: int, index: int, name: bytes) -> StoredCursor | None:
        """Return the cursor on a partition; None: never set."""
        subscription = self.find(topic_id, name)
        return subscription.cursors.get(index) if subscription else None

    def subscriptions(self, topic_id: int) -> list[StoredSubscription]:
        """All subscriptions of a topic, in no order: live objects that go on changing."""
        return list(self._topics.get(topic_id, {}).values())

    def open(
        self,
        topic_id: int,
        name: bytes,
        *,
        partitions: int,
        properties: dict[str, str] | None = None,
    ) -> int:
        """Make a subscription with cursors never set, unless it exists; return the ticket."""
        if self.find(topic_id, name) is not None:
            return self.settle()
        return self._change(new_subscription(topic_id, name, partitions, properties))

    def move(self, moved: Moved, *, lazy: bool = False) -> int:
        """Change a cursor of an existing subscription; return the ticket, 0 for a lazy change.

        The store takes over the ranges in it.
        """
        return self._change(moved, lazy=lazy)

    def move_all(self, moves: Iterable[Moved], *, making: Iterable[Subscribed] = ()) -> int:
        """Make new subscriptions, and change cursors of these and of others, in a single record:
        all or nothing. Return the ticket.
        """
        return self._change(*making, *moves)

    def delete(self, topic_id: int, index: int, name: bytes) -> int:
        """End a partition's cursor, with the last cursor the subscription too; return
        the ticket.
        """
        subscription = self.find(topic_id, name)
        if subscription is None:
            return self.settle()
        if not subscription.cursors.keys() - {index}:
            return self._change(Unsubscribed(topic_id, name))
        if index not in subscription.cursors:
            return self.settle()
        return self._change(CursorGone(topic_id, name, index))

    def drop(self, topic_id: int, name: bytes) -> int:
        """End an existing subscription; return the ticket."""
        return self._change(Unsubscribed(topic_id, name))

    def drop_topic(self, topic_id: int) -> int:
        """End all subscriptions of a topic; return the ticket."""
        if topic_id not in self._topics:
            return self.settle()
        return self._change(TopicDropped(topic_id))

    def resize(self, topic_id: int, partitions: int, *, lazy: bool = False) -> int:
        """Set how many partitions a topic has now; return the ticket, 0 for a lazy change."""
        named = self._topics.get(topic_id, {})
        if all(subscription.partitions == partitions for subscription in named.values()):
            return 0 if lazy else self.settle()
        return self._change(TopicResized(topic_id, partitions), lazy=lazy)

    def set_ends(self, change: EndsSet | None) -> None:
        """Note the findings of `ends.news` or `ends.gone`, lazily. Raises StorageFull,
        StorageFailed.
        """
        if change is not None:
            self._journal.append(change, lazy=True)
            self._apply(change)
            self._shorten()

    def settle(self) -> int:
        """Return a ticket after which every change so far is on disk, including lazy changes."""
        return self._journal.settle()

    def rewrite(self) -> None:
        """Replace the journal's records by the state now. Raises StorageFull, StorageFailed."""
        self._journal.rewrite(self._state())

    def _change(self, *changes: CursorChange, lazy: bool = False) -> int:
        self._check_named(changes)
        ticket = self._journal.append(*changes, lazy=lazy)
        for change in changes:
            if self._gathering is not None:
                self._gather(self._gathering.before(change))
            self._apply(change)
        self._shorten()
        return ticket

    def _check_named(self, changes: Sequence[CursorChange]) -> None:
        """Assert that the changes name existing subscriptions: the next start would
        fail otherwise.
        """
        new: set[tuple[int, bytes]] = set()
        for change in changes:
            if type(change) is Moved:  # hot: see make bench
                named = self._topics.get(change.topic_id, {})
                is_new = (change.topic_id, change.name) in new if new else False
                assert is_new or change.name in named, "no such subscription"
                continue
            match change:
                case Subscribed(topic_id=topic_id, subscriptions=subscriptions):
                    new.update((topic_id, name) for name in subscriptions)
                case CursorGone(topic_id=topic_id, name=name, index=index):
                    assert index in self._topics[topic_id][name].cursors
                case Unsubscribed(topic_id=topic_id, name=name):
                    assert name in self._topics[topic_id]
                case TopicDropped(topic_id=topic_id) | TopicResized(topic_id=topic_id):
                    assert topic_id in self._topics

    def _shorten(self) -> None:
        """Continue a snapshot, or begin a due snapshot: a little with each record, because writing
        100,000 cursors at once would hold up everything else.
        """
        if self._gathering is None:
            if not self._journal.snapshot_is_due:
                return
            self._gathering = Gathering(self._topics)
            self._journal.begin_gathering()
            self._gather(filter(None, [self.ends.state()]))
        self._gather(self._gathering.next_pieces(self._gather_max))
        if self._gathering.is_done:
            self._gathering = None
            self._journal.finish_gathering()

    def _gather(self, records: Iterable[Sequence[StoredChange]]) -> None:
        for changes in records:
            self._journal.gather(changes)

    def _state(self) -> Iterator[Sequence[StoredChange]]:
        yield from filter(None, [self.ends.state()])
        for topic_id, named in self._topics.items():
            yield from _as_records(topic_id, named.items())

    def _apply(self, change: StoredChange) -> None:
        match change:
            case Moved():
                self._apply_moved(change)
            case Subscribed():
                self._apply_subscribed(change)
            case EndsSet():
                self.ends.apply(change)
            case CursorGone():
                subscription = self._topics[change.topic_id][change.name]
                self.totals.take((subscription,))
                del subscription.cursors[change.index]
                self.totals.add((subscription,))
            case Unsubscribed():
                named = self._topics[change.topic_id]
                self.totals.take((named.pop(change.name),))
                if not named:
                    del self._topics[change.topic_id]
            case TopicDropped():
                self.totals.take(self._topics.pop(change.topic_id).values())
            case TopicResized():
                self.set_back += 1
                for subscription in self._topics[change.topic_id].values():
                    if (
                        subscription.partitions != change.partitions
                    ):  # Many may have that number already.
                        self.totals.take((subscription,))
                        _resize(subscription, change.partitions)
                        self.totals.add((subscription,))

    def _apply_subscribed(self, change: Subscribed) -> None:
        named = self._topics.setdefault(change.topic_id, {})
        self.totals.take(named[name] for name in change.subscriptions if name in named)
        named.update(change.subscriptions)
        self.totals.add(change.subscriptions.values())

    def _apply_moved(self, change: Moved) -> None:
        cursors = self._topics[change.topic_id][change.name].cursors
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


def _as_records(
    topic_id: int, named: Iterable[tuple[bytes, StoredSubscription]]
) -> Iterator[Sequence[CursorChange]]:
    """Yield subscriptions as records of a snapshot: few large records, which replay fastest."""
    piece: dict[bytes, StoredSubscription] = {}
    count = 0
    for name, subscription in named:
        piece[name] = subscription
        count += 1 + len(subscription.cursors)
        if any(map(_is_large, subscription.cursors.values())):
            piece[name], pieces = _split(topic_id, name, subscription)
            yield [Subscribed(topic_id, piece)]
            yield from ([moved] for moved in pieces)
        elif count >= RECORD_CURSORS:
            yield [Subscribed(topic_id, piece)]
        else:
            continue
        piece, count = {}, 0
    if piece:
        yield [Subscribed(topic_id, piece)]


class Gathering:
    """Yields a snapshot in pieces while the state changes: an entry about to change is yielded
    first, in its old form.
    """

    def __init__(self, topics: dict[int, dict[bytes, StoredSubscription]]) -> None:
        self._topics = topics
        self._left: dict[int, dict[bytes, None] | None] = dict.fromkeys(topics)
        """By topic, the subscriptions not yielded yet; None: all that it has."""

    @property
    def is_done(self) -> bool:
        """True if everything was yielded."""
        return not self._left

    def next_pieces(self, cursors: int) -> Iterator[Sequence[CursorChange]]:
        """Yield records of about `cursors` more cursors, at least a subscription if any is left."""
        while self._left and cursors > 0:
            topic_id = next(iter(self._left))
            names = self._names_left(topic_id)
            piece = []
            while names and cursors > 0:
                name, _ = names.popitem()
                piece.append((name, self._topics[topic_id][name]))
                cursors -= 1 + len(piece[-1][1].cursors)
            if not names:
                del self._left[topic_id]
            yield from _as_records(topic_id, piece)

    def before(self, change: CursorChange) -> Iterator[Sequence[CursorChange]]:
        """Yield the records that must come before that change."""
        topic_id = change.topic_id
        if topic_id not in self._left:
            return
        names = self._names_left(topic_id)
        match change:
            case Moved(name=name) | CursorGone(name=name) | Unsubscribed(name=name):
                touched = [name] if name in names else []
            case TopicDropped() | TopicResized():
                touched = list(names)
            case _:
                touched = []  # A new subscription has no old form.
        named = self._topics.get(topic_id, {})
        yield from _as_records(topic_id, [(name, named[name]) for name in touched])
        for name in touched:
            del names[name]
        if not names:
            del self._left[topic_id]

    def _names_left(self, topic_id: int) -> dict[bytes, None]:
        names = self._left[topic_id]
        if names is None:
            names = self._left[topic_id] = dict.fromkeys(self._topics[topic_id])
        return names


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


def _is_large(cursor: StoredCursor) -> bool:
    return cursor.acked is not None and len(cursor.acked) > RECORD_RANGES


def _split(
    topic_id: int, name: bytes, subscription: StoredSubscription
) -> tuple[StoredSubscription, Iterator[Moved]]:
    """A subscription without its large cursors, and these as records of bounded size."""
    small = {
        index: cursor for index, cursor in subscription.cursors.items() if not _is_large(cursor)
    }
    pieces = (
        Moved(topic_id, name, index, cursor.position, cursor.floor, cursor.kafka, False, ranges)
        for index, cursor in subscription.cursors.items()
        if cursor.acked is not None and _is_large(cursor)
        for ranges in cursor.acked.pieces(RECORD_RANGES)
    )
    return StoredSubscription(subscription.partitions, subscription.properties, small), pieces
