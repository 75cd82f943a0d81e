"""The positions of all subscriptions in memory, every change in a journal (storage/FORMAT.md,
section 9.2).

A change is written as a record and then applied to memory by the same code that a replay uses.
Knows no log, no protocol and no clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from braidlog.storage.errors import DamagedLog
from braidlog.storage.metadata.changes import ChangeJournal, Journal
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
)
from braidlog.storage.metadata.delivery_counts import (
    DeliveriesCounted,
    QueueKey,
    Run,
    StoredCounts,
    counted,
)
from braidlog.storage.metadata.log_ends import EndsSet, LogEnds
from braidlog.storage.metadata.memory_positions import MemoryPositions
from braidlog.storage.metadata.positions import JournalWatcher

# Limits of a snapshot record: cursors of some 40 bytes each, or ranges of a cursor, 16 each.
RECORD_CURSORS: Final = 4096
RECORD_RANGES: Final = 1 << 14

PlaceFollower = Callable[[CursorChange, int], None]
StoredChange = CursorChange | EndsSet | DeliveriesCounted

# Cursors that each record adds to a snapshot in progress: half a millisecond.
GATHER_CURSORS: Final = 2048


class JournalPositions:
    """All subscriptions of all topics. Callers must not change returned objects.

    Guarantees: memory equals a replay of the journal; a crash may lose lazy changes, so that a
    position is then older, never newer. No call waits after the replay. Implements `Positions`.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        lost: Callable[[DamagedLog], None] | None = None,
        gather_max: int = GATHER_CURSORS,
        keeps_history: bool = False,
    ) -> None:
        """Replay the journal.

        `lost` is called for each change that is skipped because it cannot be read or names
        something missing; without `lost` that is an error. `gather_max`: cursors that a record adds
        to a snapshot in progress. `keeps_history`: `placed` returns the replayed changes, for a
        journal that cannot replay again. Raises DamagedLog, UnknownRecord.
        """
        self._gathering: Gathering | None = None
        self._gather_max = gather_max
        self._memory = memory = MemoryPositions()
        self.topic_ids, self.names, self.count = memory.topic_ids, memory.names, memory.count
        self.find, self.get, self.subscriptions = memory.find, memory.get, memory.subscriptions
        self.totals, self._topics = memory.totals, memory.topics
        self.ends = LogEnds()  # How far the logs are known to reach; callers only look.
        self._counts = StoredCounts()
        self._followers: list[PlaceFollower] = []
        self._history: list[tuple[int, StoredChange]] | None = [] if keeps_history else None
        self._journal: ChangeJournal[StoredChange] = ChangeJournal(journal, StoredChange, "cursors")
        self._journal.replay(self._apply, lost, self._history)

    @property
    def set_back(self) -> int:
        return self._memory.set_back

    @property
    def ticket(self) -> int:
        """After this ticket every change so far that was not lazy is on disk."""
        return self._journal.ticket

    def open(
        self,
        topic_id: int,
        name: bytes,
        *,
        partitions: int,
        properties: dict[str, str] | None = None,
    ) -> int:
        change = self._memory.opening(topic_id, name, partitions, properties)
        return self.flush_lazy() if change is None else self._change(change)

    def move(self, moved: Moved, *, lazy: bool = False) -> int:
        return self._change(moved, lazy=lazy)

    def move_all(self, moves: Iterable[Moved], *, making: Iterable[Subscribed] = ()) -> int:
        """Make new subscriptions, and change cursors of these and of others, in a single record:
        all or nothing. Return the ticket.
        """
        return self._change(*making, *moves)

    def set_properties(self, topic_id: int, name: bytes, properties: dict[str, str]) -> int:
        return self._change(PropertiesSet(topic_id, name, dict(properties)))

    def delete(self, topic_id: int, index: int, name: bytes) -> int:
        change = self._memory.deleting(topic_id, index, name)
        return self.flush_lazy() if change is None else self._change(change)

    def drop(self, topic_id: int, name: bytes) -> int:
        return self._change(Unsubscribed(topic_id, name))

    def drop_topic(self, topic_id: int) -> int:
        if topic_id not in self._topics:
            return self.flush_lazy()
        return self._change(TopicDropped(topic_id))

    def resize(self, topic_id: int, partitions: int, *, lazy: bool = False) -> int:
        change = self._memory.resizing(topic_id, partitions)
        if change is None:
            return 0 if lazy else self.flush_lazy()
        return self._change(change, lazy=lazy)

    def set_ends(self, change: EndsSet | None) -> None:
        """Note the findings of `ends.news` or `ends.gone`, lazily. Raises StorageFull,
        StorageFailed.
        """
        if change is not None:
            self._journal.append(change, lazy=True)
            self.ends.apply(change)
            self._shorten()

    def deliveries(self, key: QueueKey) -> Sequence[Run] | None:
        return self._counts.get(key)

    def count_deliveries(self, key: QueueKey, runs: Sequence[Run]) -> None:
        for change in counted(key, runs):
            self._journal.append(change, lazy=True)
            self._counts.apply(change)
            self._shorten()

    @property
    def next_place(self) -> int:
        """Place in the journal that the next change will have."""
        return self._journal.next_place

    def placed(self) -> Iterator[tuple[int, CursorChange]]:
        """Yield the changes since the last snapshot, and the snapshot, with the places of their
        records in the journal. To be used at once. Raises DamagedLog, StorageFull, StorageFailed.
        """
        self._journal.flush_lazy()  # Lazy changes are on no disk.
        history, self._history = self._history, None
        for place, change in self._journal.placed() if history is None else history:
            if not isinstance(change, EndsSet | DeliveriesCounted):
                yield place, change

    def follow(self, follower: PlaceFollower) -> None:
        """Call `follower` within each later change of cursors with the place of the change in the
        journal, once the change is in memory.
        """
        self._followers.append(follower)

    def watch(self, watcher: JournalWatcher) -> None:
        watcher.attach(0, self)

    def flush_lazy(self) -> int:
        return self._journal.flush_lazy()

    def rewrite(self) -> None:
        """Replace the journal's records by the state now. Raises StorageFull, StorageFailed."""
        self._journal.rewrite(self._state())

    def _change(self, *changes: CursorChange, lazy: bool = False) -> int:
        self._memory.check_named(changes)
        place = self._journal.next_place if self._followers else 0
        ticket = self._journal.append(*changes, lazy=lazy)
        for change in changes:
            if self._gathering is not None:
                self._gather(self._gathering.before(change))
            self._memory.apply(change)
            self._counts.follow(change)
            for follower in self._followers:
                follower(change, place)
        self._shorten()
        return ticket

    def _apply(self, change: StoredChange) -> None:
        if isinstance(change, EndsSet):
            self.ends.apply(change)
        elif isinstance(change, DeliveriesCounted):
            self._counts.apply(change)
        else:
            self._memory.apply(change)
            self._counts.follow(change)

    def _shorten(self) -> None:
        """Continue a snapshot, or begin a due snapshot: a little with each record, because writing
        100,000 cursors at once would hold up everything else.
        """
        if self._gathering is None:
            if not self._journal.snapshot_is_due:
                return
            self._gathering = Gathering(self._topics)
            self._journal.begin_gathering()
            self._gather(self._other_state())
        self._gather(self._gathering.next_pieces(self._gather_max))
        if self._gathering.is_done:
            self._gathering = None
            self._journal.finish_gathering()

    def _gather(self, records: Iterable[Sequence[StoredChange]]) -> None:
        for changes in records:
            self._journal.gather(changes)

    def _state(self) -> Iterator[Sequence[StoredChange]]:
        yield from self._other_state()
        for topic_id, named in self._topics.items():
            yield from _as_records(topic_id, named.items())

    def _other_state(self) -> Iterator[Sequence[StoredChange]]:
        """Yield the state beside cursors."""
        yield from filter(None, [self.ends.state()])
        yield from self._counts.state()


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
            case (
                Moved(name=name)
                | CursorGone(name=name)
                | Unsubscribed(name=name)
                | PropertiesSet(name=name)
            ):
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
