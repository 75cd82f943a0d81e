"""What a recovered directory must hold: what was given out, shown and acknowledged, and when.

Time is the number of disk calls made. A fact of the kind "may be there" counts from before the
action that made it, one of the kind "must be there" from when it was promised.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.catalogue_records import MADE_ID_FIRST
from braidlog.storage.metadata.cursors import CursorStore, StoredSubscription

ValueT = TypeVar("ValueT")

CatalogueState = tuple[object, ...]
CursorState = dict[int, dict[bytes, tuple[int, dict[int, tuple[object, ...]]]]]


class Timeline(Generic[ValueT]):
    """A value over time."""

    def __init__(self, first: ValueT) -> None:
        self._stamps = [0]
        self._values = [first]

    def put(self, stamp: int, value: ValueT) -> None:
        """From now on this."""
        if value != self._values[-1]:
            self._stamps.append(stamp)
            self._values.append(value)

    def at(self, stamp: int) -> ValueT:
        """What it was then."""
        return self._values[bisect_right(self._stamps, stamp) - 1]

    @property
    def last(self) -> ValueT:
        """What it is."""
        return self._values[-1]


class History(Generic[ValueT]):
    """States of a journal, each from when its change began, and how far they are promised."""

    def __init__(self, first: ValueT) -> None:
        self.states = [first]
        self._begun = Timeline(0)
        self._promised = Timeline(0)

    @property
    def newest(self) -> int:
        """Number of the newest state."""
        return len(self.states) - 1

    def put(self, stamp: int, state: ValueT) -> None:
        """A change that began at `stamp` led to this state."""
        if state != self.states[-1]:
            self.states.append(state)
            self._begun.put(stamp, self.newest)

    def promise(self, stamp: int, number: int) -> None:
        """Nothing older than that state may be found any more."""
        self._promised.put(stamp, max(number, self._promised.last))

    def window(self, stamp: int) -> list[ValueT]:
        """The states that may be found after a crash then."""
        return self.states[self._promised.at(stamp) : self._begun.at(stamp) + 1]


@dataclass(slots=True, frozen=True)
class Stored:
    """One batch that was appended."""

    stamp: int
    base_offset: int
    next_offset: int
    body: bytes


@dataclass(slots=True)
class LogFacts:
    """What is known of one partition's log."""

    start: Timeline[int] = field(default_factory=lambda: Timeline(0))
    durable: Timeline[int] = field(default_factory=lambda: Timeline(0))
    shown: Timeline[int] = field(default_factory=lambda: Timeline(0))
    written_mode: Timeline[bool] = field(default_factory=lambda: Timeline(False))
    batches: list[Stored] = field(default_factory=list)
    gaps: list[Stored] = field(default_factory=list)

    def batch_at(self, base_offset: int) -> Stored | None:
        """The batch that begins there."""
        place = bisect_right(self.batches, base_offset, key=lambda one: one.base_offset) - 1
        if place < 0 or self.batches[place].base_offset != base_offset:
            return None
        return self.batches[place]

    def appended_end(self, stamp: int) -> int:
        """Where the log ended then, at most."""
        ends = [one.next_offset for one in self.batches + self.gaps if one.stamp <= stamp]
        return max(ends, default=0)


# What a directory holds in which there was nothing.
FRESH: CatalogueState = ((("public", "default", None, MADE_ID_FIRST),), ())


@dataclass(slots=True)
class Facts:
    """Everything that is known."""

    catalogue: History[CatalogueState] = field(default_factory=lambda: History(FRESH))
    cursors: History[CursorState] = field(default_factory=lambda: History({}))
    logs: dict[int, LogFacts] = field(default_factory=dict)

    def log(self, partition_id: int) -> LogFacts:
        """Facts of one partition."""
        return self.logs.setdefault(partition_id, LogFacts())


def catalogue_state(catalogue: Catalogue) -> CatalogueState:
    """All that a catalogue knows, but for times."""
    namespaces = tuple(
        (one.tenant, one.namespace, one.iggy_id, one.made_id) for one in catalogue.namespaces()
    )
    topics = tuple(
        (
            one.topic_id,
            one.name.full,
            tuple(one.partition_ids),
            one.partitioned,
            tuple(sorted(one.settings.items())),
            one.iggy_id,
            one.made_id,
            one.topic_epoch,
            tuple((schema.type, schema.name, schema.data) for schema in one.schemas),
            tuple((group.group_id, group.name) for group in one.groups),
            one.next_group_id,
        )
        for one in sorted(catalogue.all_topics(), key=lambda one: one.topic_id)
    )
    return namespaces, topics


def partitions_in(state: CatalogueState) -> dict[int, tuple[int, ...]]:
    """Partition ids of each topic by its number, in a catalogue's state."""
    topics = state[1]
    assert isinstance(topics, tuple)
    return {one[0]: one[2] for one in topics}


def cursor_state(store: CursorStore) -> CursorState:
    """All that a cursor store knows."""
    return {
        topic_id: {
            name: (
                found.partitions,
                {
                    index: (one.position, one.floor, tuple(one.acked or ()), one.kafka)
                    for index, one in found.cursors.items()
                },
            )
            for name, found in named_subscriptions(store, topic_id)
        }
        for topic_id in store.topic_ids()
    }


def named_subscriptions(
    store: CursorStore, topic_id: int
) -> Iterator[tuple[bytes, StoredSubscription]]:
    """The subscriptions of a topic."""
    for name in store.names(topic_id):
        found = store.find(topic_id, name)
        assert found is not None
        yield name, found


def agreed(cursors: CursorState, catalogue: CatalogueState) -> CursorState:
    """What a start makes of a cursor store that may be ahead of or behind the catalogue."""
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
    """Cursors of a topic that has `count` partitions, where `known` were known of."""
    fresh: dict[int, tuple[object, ...]] = dict.fromkeys(range(known, count), (0, 0, (), None))
    return {index: one for index, one in {**cursors, **fresh}.items() if index < count}
