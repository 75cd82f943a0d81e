"""Facts that bind a recovered directory: the answers of reads and appends, and their times.

Time is the number of disk calls. A fact "may be there" counts from before its action, a fact "must
be there" from the promise.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.catalogue_records import MADE_ID_FIRST
from braidlog.storage.metadata.cursors import StoredSubscription
from braidlog.storage.metadata.journal_positions import JournalPositions

ValueT = TypeVar("ValueT")

CatalogueState = tuple[object, ...]
CursorState = dict[int, dict[bytes, tuple[int, dict[int, tuple[object, ...]]]]]


class Timeline(Generic[ValueT]):
    """A value over time."""

    def __init__(self, first: ValueT) -> None:
        self._stamps = [0]
        self._values = [first]

    def put(self, stamp: int, value: ValueT) -> None:
        """Change the value from now on."""
        if value != self._values[-1]:
            self._stamps.append(stamp)
            self._values.append(value)

    def at(self, stamp: int) -> ValueT:
        """Return the value at that time."""
        return self._values[bisect_right(self._stamps, stamp) - 1]

    @property
    def last(self) -> ValueT:
        """Return the present value."""
        return self._values[-1]


class StateHistory(Generic[ValueT]):
    """States of a journal, each from the beginning of its change, and the newest promised state."""

    def __init__(self, first: ValueT) -> None:
        self.states = [first]
        self._begun = Timeline(0)
        self._promised = Timeline(0)

    @property
    def newest(self) -> int:
        """Return the number of the newest state."""
        return len(self.states) - 1

    def put(self, stamp: int, state: ValueT) -> None:
        """Add the state after a change that began at `stamp`."""
        if state != self.states[-1]:
            self.states.append(state)
            self._begun.put(stamp, self.newest)

    def promise(self, stamp: int, number: int) -> None:
        """Promise that a recovery finds no state older than `number`."""
        self._promised.put(stamp, max(number, self._promised.last))

    def window(self, stamp: int) -> list[ValueT]:
        """Return the possible states after a crash at that time."""
        return self.states[self._promised.at(stamp) : self._begun.at(stamp) + 1]


@dataclass(slots=True, frozen=True)
class AppendedBatch:
    """An appended batch."""

    stamp: int
    base_offset: int
    next_offset: int
    body: bytes


@dataclass(slots=True)
class LogFacts:
    """Facts about the log of a partition."""

    start: Timeline[int] = field(default_factory=lambda: Timeline(0))
    durable: Timeline[int] = field(default_factory=lambda: Timeline(0))
    shown: Timeline[int] = field(default_factory=lambda: Timeline(0))
    written_mode: Timeline[bool] = field(default_factory=lambda: Timeline(False))
    batches: list[AppendedBatch] = field(default_factory=list)
    gaps: list[AppendedBatch] = field(default_factory=list)

    def batch_at(self, base_offset: int) -> AppendedBatch | None:
        """Return the batch that begins there."""
        place = bisect_right(self.batches, base_offset, key=lambda batch: batch.base_offset) - 1
        if place < 0 or self.batches[place].base_offset != base_offset:
            return None
        return self.batches[place]

    def appended_end(self, stamp: int) -> int:
        """Return the highest possible log end at that time."""
        ends = [batch.next_offset for batch in self.batches + self.gaps if batch.stamp <= stamp]
        return max(ends, default=0)


# The state of a new directory.
FRESH: CatalogueState = ((("public", "default", None, MADE_ID_FIRST),), ())


@dataclass(slots=True)
class Facts:
    """All facts."""

    catalogue: StateHistory[CatalogueState] = field(default_factory=lambda: StateHistory(FRESH))
    cursors: StateHistory[CursorState] = field(default_factory=lambda: StateHistory({}))
    logs: dict[int, LogFacts] = field(default_factory=dict)

    def log(self, partition_id: int) -> LogFacts:
        """Return the facts of a partition."""
        return self.logs.setdefault(partition_id, LogFacts())


def catalogue_state(catalogue: Catalogue) -> CatalogueState:
    """Return the whole state of a catalogue, without times."""
    namespaces = tuple(
        (namespace.tenant, namespace.namespace, namespace.iggy_id, namespace.made_id)
        for namespace in catalogue.namespaces()
    )
    topics = tuple(
        (
            topic.topic_id,
            topic.name.full,
            tuple(topic.partition_ids),
            topic.partitioned,
            tuple(sorted(topic.settings.items())),
            topic.iggy_id,
            topic.made_id,
            topic.topic_epoch,
            tuple((schema.type, schema.name, schema.data) for schema in topic.schemas),
            tuple((group.group_id, group.name) for group in topic.groups),
            topic.next_group_id,
        )
        for topic in sorted(catalogue.all_topics(), key=lambda topic: topic.topic_id)
    )
    return namespaces, topics


def partitions_in(state: CatalogueState) -> dict[int, tuple[int, ...]]:
    """Return the partition ids of each topic by its number, in a catalogue's state."""
    topics = state[1]
    assert isinstance(topics, tuple)
    return {topic[0]: topic[2] for topic in topics}


def cursor_state(store: JournalPositions) -> CursorState:
    """Return the whole state of a cursor store."""
    return {
        topic_id: {
            name: (
                subscription.partitions,
                {
                    index: (cursor.position, cursor.floor, tuple(cursor.acked or ()), cursor.kafka)
                    for index, cursor in subscription.cursors.items()
                },
            )
            for name, subscription in named_subscriptions(store, topic_id)
        }
        for topic_id in store.topic_ids()
    }


def named_subscriptions(
    store: JournalPositions, topic_id: int
) -> Iterator[tuple[bytes, StoredSubscription]]:
    """Yield the subscriptions of a topic."""
    for name in store.names(topic_id):
        subscription = store.find(topic_id, name)
        assert subscription is not None
        yield name, subscription


def agreed(cursors: CursorState, catalogue: CatalogueState) -> CursorState:
    """Return a cursor store after a start: the store may be ahead of or behind the catalogue."""
    counts = {topic_id: len(ids) for topic_id, ids in partitions_in(catalogue).items()}
    return {
        topic_id: {
            name: (counts[topic_id], resized(known, counts[topic_id], cursors_of))
            for name, (known, cursors_of) in named.items()
        }
        for topic_id, named in cursors.items()
        if topic_id in counts
    }


def resized(
    known: int, count: int, cursors: dict[int, tuple[object, ...]]
) -> dict[int, tuple[object, ...]]:
    """Return the cursors of a topic with `count` partitions after `known` partitions."""
    fresh: dict[int, tuple[object, ...]] = dict.fromkeys(range(known, count), (0, 0, (), None))
    return {index: cursor for index, cursor in {**cursors, **fresh}.items() if index < count}
