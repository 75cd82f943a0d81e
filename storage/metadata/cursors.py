"""Where each subscription stands on each partition: in memory, every change in a journal
(storage/FORMAT.md, section 9.2).

A change is written as a record and then applied to memory by the very code that a replay uses. What
a commit or an ack means is decided in `broker/subscriptions.py`: a record holds the outcome. Knows
no log, no protocol and no clock.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from storage.metadata.journal import ChangeJournal, Journal
from storage.metadata.ranges import RangeSet

# Ranges of one cursor in one snapshot record (1 MiB); a cursor with more takes several.
RECORD_RANGES_MAX: Final = 1 << 16


class KafkaCommit(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """What a Kafka commit said, as given: any number, no metadata or empty or text, the time."""

    offset: int
    metadata: bytes | None
    time_us: int


class Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """One subscription on one partition. Changed by the store alone."""

    position: int
    """The next offset wanted: everything below is acknowledged."""
    floor: int
    """The position as last set by a commit or seek; acks moved it on from there."""
    acked: RangeSet | None = None
    """What is acknowledged above the position; None: nothing."""
    kafka: KafkaCommit | None = None
    """Kafka's own commit, while no other door has moved the cursor since."""


class Subscribed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=1, gc=False):
    """A subscription is there, with its cursors by partition number. Later records name it by
    number.

    `partitions` is how many the topic had; those that come later begin with a cursor at 0.
    """

    number: int
    topic_id: int
    name: bytes
    partitions: int
    properties: dict[str, str]
    cursors: dict[int, Cursor]


class Moved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=2, gc=False):
    """A cursor stands at `position` now, and `ranges` are acknowledged besides those it had.

    `cleared`: it had none. What lies below the position is dropped.
    """

    number: int
    index: int
    position: int
    floor: int
    kafka: KafkaCommit | None = None
    cleared: bool = False
    ranges: RangeSet | None = None


class CursorGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=3, gc=False):
    """A cursor is never set again."""

    number: int
    index: int


class Unsubscribed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=4, gc=False):
    """A subscription is no more."""

    number: int


class TopicDropped(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=5, gc=False):
    """All subscriptions of a topic are no more."""

    topic_id: int


class TopicResized(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=6, gc=False):
    """A topic has so many partitions now: each subscription that knew fewer gets cursors at 0."""

    topic_id: int
    partitions: int


CursorChange = Subscribed | Moved | CursorGone | Unsubscribed | TopicDropped | TopicResized


class CursorStore:
    """All subscriptions of all topics. What it hands out is to be read only."""

    def __init__(self, journal: Journal) -> None:
        """Replay the journal. Raises DamagedLog, UnknownRecord."""
        self._topics: dict[int, dict[bytes, Subscribed]] = {}
        self._by_number: dict[int, Subscribed] = {}
        self._next_number = 1
        self._journal: ChangeJournal[CursorChange] = ChangeJournal(journal, CursorChange, "cursors")
        self._journal.replay(self._apply)

    @property
    def ticket(self) -> int:
        """After this ticket every change so far that was not lazy is on disk."""
        return self._journal.ticket

    def topic_ids(self) -> list[int]:
        """The topics that have subscriptions."""
        return list(self._topics)

    def names(self, topic_id: int) -> list[bytes]:
        """The subscriptions of a topic, by name; those without a cursor too."""
        return sorted(self._topics.get(topic_id, ()))

    def count(self, topic_id: int) -> int:
        """How many subscriptions a topic has."""
        return len(self._topics.get(topic_id, ()))

    def topics_of(self, name: bytes) -> list[int]:
        """The topics that have a subscription of this name."""
        return [topic_id for topic_id, named in self._topics.items() if name in named]

    def find(self, topic_id: int, name: bytes) -> Subscribed | None:
        """The subscription of that name."""
        return self._topics.get(topic_id, {}).get(name)

    def get(self, topic_id: int, index: int, name: bytes) -> Cursor | None:
        """The cursor on one partition; None: never set."""
        subscribed = self.find(topic_id, name)
        return subscribed.cursors.get(index) if subscribed else None

    def open(
        self,
        topic_id: int,
        name: bytes,
        *,
        partitions: int,
        properties: dict[str, str] | None = None,
    ) -> int:
        """Make a subscription with cursors never set, unless it is there; return the ticket."""
        if self.find(topic_id, name) is not None:
            return self.settle()
        properties = dict(properties or {})
        return self._change(
            Subscribed(self._next_number, topic_id, name, partitions, properties, {})
        )

    def move(self, subscribed: Subscribed, moved: Moved, *, lazy: bool = False) -> int:
        """Change a cursor as it says, number it aside; return the ticket, 0 for a lazy change.

        The ranges in it are the store's from now on.
        """
        moved.number = subscribed.number
        return self._change(moved, lazy=lazy)

    def delete(self, subscribed: Subscribed, index: int) -> int:
        """End the cursor of one partition, and with the last one the subscription; the ticket."""
        if not subscribed.cursors.keys() - {index}:
            return self._change(Unsubscribed(subscribed.number))
        if index not in subscribed.cursors:
            return self.settle()
        return self._change(CursorGone(subscribed.number, index))

    def drop(self, subscribed: Subscribed) -> int:
        """End a subscription; return the ticket."""
        return self._change(Unsubscribed(subscribed.number))

    def drop_topic(self, topic_id: int) -> int:
        """End all subscriptions of a topic; return the ticket."""
        if topic_id not in self._topics:
            return self.settle()
        return self._change(TopicDropped(topic_id))

    def resize(self, topic_id: int, partitions: int) -> int:
        """Tell how many partitions a topic has now; return the ticket."""
        named = self._topics.get(topic_id, {})
        if all(subscribed.partitions == partitions for subscribed in named.values()):
            return self.settle()
        return self._change(TopicResized(topic_id, partitions))

    def settle(self) -> int:
        """A ticket after which every change so far is on disk, lazy ones too."""
        return self._journal.settle()

    def _change(self, change: CursorChange, *, lazy: bool = False) -> int:
        ticket = self._journal.append(change, lazy=lazy)
        self._apply(change)
        self._journal.snapshot_if_due(self._state())
        return ticket

    def _state(self) -> Iterator[CursorChange]:
        """Everything as changes, for a snapshot. Most subscriptions are one record as they are."""
        for subscribed in self._by_number.values():
            large = [
                index
                for index, cursor in subscribed.cursors.items()
                if cursor.acked is not None and len(cursor.acked) > RECORD_RANGES_MAX
            ]
            if not large:
                yield subscribed
                continue
            cursors = {i: c for i, c in subscribed.cursors.items() if i not in large}
            yield msgspec.structs.replace(subscribed, cursors=cursors)
            for index in large:
                yield from _pieces(subscribed.number, index, subscribed.cursors[index])

    def _apply(self, change: CursorChange) -> None:
        match change:
            case Moved():
                self._apply_moved(change)
            case Subscribed():
                self._topics.setdefault(change.topic_id, {})[change.name] = change
                self._by_number[change.number] = change
                self._next_number = max(self._next_number, change.number + 1)
            case CursorGone():
                del self._by_number[change.number].cursors[change.index]
            case Unsubscribed():
                self._forget(self._by_number[change.number])
            case TopicDropped():
                self._forget(*self._topics[change.topic_id].values())
            case TopicResized():
                for subscribed in self._topics[change.topic_id].values():
                    _resize(subscribed, change.partitions)

    def _apply_moved(self, change: Moved) -> None:
        cursors = self._by_number[change.number].cursors
        cursor = cursors.get(change.index)
        if cursor is None:
            cursor = cursors[change.index] = Cursor(change.position, change.floor)
        cursor.position = change.position
        cursor.floor = change.floor
        cursor.kafka = change.kafka
        if change.cleared:
            cursor.acked = None
        cursor.acked = _joined(cursor.acked, change.ranges, change.position)

    def _forget(self, *gone: Subscribed) -> None:
        for subscribed in gone:
            del self._by_number[subscribed.number]
            named = self._topics[subscribed.topic_id]
            del named[subscribed.name]
            if not named:
                del self._topics[subscribed.topic_id]


def _joined(acked: RangeSet | None, ranges: RangeSet | None, position: int) -> RangeSet | None:
    """What is acknowledged above the position; None for nothing, as most cursors have it.

    What the position passed goes first, so that the limit of a set is met by what stays alone.
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


def _resize(subscribed: Subscribed, partitions: int) -> None:
    for index in range(subscribed.partitions, partitions):
        subscribed.cursors.setdefault(index, Cursor(0, 0))
    for index in [index for index in subscribed.cursors if index >= partitions]:
        del subscribed.cursors[index]
    subscribed.partitions = partitions


def _pieces(number: int, index: int, cursor: Cursor) -> Iterable[Moved]:
    """A cursor with very many ranges, as records of bounded size."""
    acked = cursor.acked
    assert acked is not None
    for first in range(0, len(acked), RECORD_RANGES_MAX):
        ranges = RangeSet.from_bytes(acked.to_bytes(first, RECORD_RANGES_MAX))
        yield Moved(number, index, cursor.position, cursor.floor, cursor.kafka, first == 0, ranges)
