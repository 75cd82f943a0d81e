"""The newest change of each cursor, in the order of the changes: a compacted log of the positions
of each journal, for readers that follow them. In memory, from `open` on; knows no protocol.

Each change has a place: the place of its record in the journal, times RECORD_CHANGES_MAX, and the
number of the cursor within the record. Places rise, also over restarts, snapshots of the journal
and takeovers, and none stands for two changes: a reader that goes on at its place misses no change
of a present cursor. After a restart or a takeover, cursors that did not change since the journal's
last snapshot have the places of that snapshot, so the reader gets them again. The ends of cursors
are known since that snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from braidlog.broker.positions.cursor_moves import CursorKey
from braidlog.storage.metadata.cursors import (
    CursorChange,
    CursorGone,
    KafkaCommit,
    Moved,
    Subscribed,
    TopicDropped,
    TopicResized,
    Unsubscribed,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.storage.metadata.names import TopicName
    from braidlog.storage.metadata.positions import PlacedPositions, Positions

ENDED_MAX: Final = 10_000  # Ended cursors that readers hear of; the oldest are forgotten.
STALE_MIN: Final = 1024  # So many overwritten changes may stay in the order.
# Cursors that a record of a journal can change, each with a place: a snapshot's records have up to
# 4,096, a commit as many as a request has partitions.
RECORD_CHANGES_MAX: Final = 1 << 20


class PlacedChange(NamedTuple):
    """The newest change of a cursor; `commit` is None if the cursor has ended. `time_us`: when the
    broker learned the change.
    """

    place: int
    topic: TopicName
    group: bytes
    partition: int
    commit: KafkaCommit | None
    time_us: int


@dataclass(slots=True)
class FollowedSubscription:
    """The number of partitions of a subscription, and the partitions with a cursor."""

    partitions: int = 0
    indexes: set[int] = field(default_factory=set)


class PositionChanges:
    """The changes of each journal of this broker, by the journal's number: 0, or the shard's.
    Implements `JournalWatcher`.
    """

    def __init__(self, cursors: Positions, topics: TopicRegistry) -> None:
        """Note nothing until `open`."""
        self.is_open = False
        self._cursors, self._topics = cursors, topics
        self._now_us: Callable[[], int] = lambda: 0
        self._journals: dict[int, JournalChanges] = {}
        self._moved = trio.Event()

    def open(self, now_us: Callable[[], int]) -> None:
        """Begin to note changes. Raises DamagedLog, StorageFull, StorageFailed."""
        if not self.is_open:
            self.is_open, self._now_us = True, now_us
            self._cursors.watch(self)

    def at(self, number: int) -> JournalChanges | None:
        """Return the changes of a journal; None if the journal is at another broker."""
        return self._journals.get(number)

    @property
    def ends(self) -> Mapping[int, int]:
        """Return the place of the next change of each journal."""
        return {number: changes.end for number, changes in self._journals.items()}

    async def wait(self, ends: Mapping[int, int]) -> None:
        """Wait until the places of the next changes differ from these: for a change, or a journal
        that comes or goes.
        """
        while self.ends == ends:
            await self._moved.wait()

    def attach(self, number: int, positions: PlacedPositions) -> None:
        self._journals[number] = JournalChanges(
            positions, self._topics, now_us=self._now_us, changed=self._wake
        )
        self._wake()

    def detach(self, number: int) -> None:
        self._journals.pop(number, None)
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = trio.Event()


class JournalChanges:
    """Places of the changes of a journal, by cursor.

    `_order` has (place, cursor, time) by place; an entry is overwritten when `_places` has another
    place for its cursor. `_subscriptions` are by topic and name, as the changes so far tell.
    """

    def __init__(
        self,
        positions: PlacedPositions,
        topics: TopicRegistry,
        *,
        now_us: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        """Read the changes in the journal, and follow the next. `changed` is called within each."""
        self.end = 0  # the place of the next change
        self._positions, self._topics = positions, topics
        self._now_us, self._changed = now_us, changed
        self._places: dict[CursorKey, int] = {}
        self._order: list[tuple[int, CursorKey, int]] = []
        self._subscriptions: dict[int, dict[bytes, FollowedSubscription]] = {}
        self._ended: dict[CursorKey, None] = {}
        self._names: dict[int, TopicName] = {}  # of topics that may be deleted meanwhile
        for place, change in positions.placed():
            self._note(change, place)
        self._begin_record(positions.next_place)
        for key in self._present():  # A journal that forgets its records has told none.
            if key not in self._places:
                self._touch(key)
        positions.follow(self._note)

    def since(self, place: int) -> Iterator[PlacedChange]:
        """Yield the changes from a place on, in order. Atomic: no wait between two items."""
        return self._newest(range(self._number_of(place), len(self._order)))

    def before(self, place: int) -> Iterator[PlacedChange]:
        """Yield the changes below a place, the last first. Atomic: no wait between two items."""
        return self._newest(range(self._number_of(place) - 1, -1, -1))

    def _number_of(self, place: int) -> int:
        return bisect_left(self._order, place, key=lambda entry: entry[0])

    def _newest(self, numbers: range) -> Iterator[PlacedChange]:
        for number in numbers:
            place, key, time_us = self._order[number]
            topic = self._topics.find_by_id(key[0])
            name = self._names.get(key[0]) if topic is None else topic.name
            if self._places.get(key) == place and name is not None:
                yield PlacedChange(place, name, key[1], key[2], self._commit(key), time_us)

    def _commit(self, key: CursorKey) -> KafkaCommit | None:
        topic_id, name, index = key
        cursor = self._positions.get(topic_id, index, name)
        return None if cursor is None else cursor.kafka or KafkaCommit(cursor.position, b"", 0)

    def _present(self) -> Iterator[CursorKey]:
        for topic_id in self._positions.topic_ids():
            for name in self._positions.names(topic_id):
                stored = self._positions.find(topic_id, name)
                for index in () if stored is None else tuple(stored.cursors):
                    yield topic_id, name, index

    def _begin_record(self, place: int) -> None:
        self.end = max(self.end, place * RECORD_CHANGES_MAX)

    def _note(self, change: CursorChange, place: int) -> None:
        self._begin_record(place)
        match change:
            case Moved(topic_id=topic_id, name=name, index=index):
                self._touch((topic_id, name, index))
            case CursorGone(topic_id=topic_id, name=name, index=index):
                self._touch((topic_id, name, index), has_ended=True)
            case Subscribed(topic_id=topic_id, subscriptions=subscriptions):
                for name, stored in subscriptions.items():
                    self._followed(topic_id, name).partitions = stored.partitions
                    for index in stored.cursors:
                        self._touch((topic_id, name, index))
            case Unsubscribed(topic_id=topic_id, name=name):
                self._end_all(topic_id, name)
            case TopicDropped(topic_id=topic_id):
                for name in tuple(self._subscriptions.get(topic_id, ())):
                    self._end_all(topic_id, name)
            case TopicResized(topic_id=topic_id, partitions=partitions):
                for name in tuple(self._subscriptions.get(topic_id, ())):
                    self._resize(topic_id, name, partitions)
        self._changed()

    def _followed(self, topic_id: int, name: bytes) -> FollowedSubscription:
        named = self._subscriptions.setdefault(topic_id, {})
        return named.setdefault(name, FollowedSubscription())

    def _end_all(self, topic_id: int, name: bytes) -> None:
        """Note the end of a subscription."""
        named = self._subscriptions.get(topic_id, {})
        followed = named.pop(name, None)
        if not named:
            self._subscriptions.pop(topic_id, None)
        for index in sorted(() if followed is None else followed.indexes):
            self._place_change((topic_id, name, index), has_ended=True)

    def _resize(self, topic_id: int, name: bytes, partitions: int) -> None:
        """Note the cursors that begin and end with a topic's partitions."""
        followed = self._followed(topic_id, name)
        for index in range(followed.partitions, partitions):
            self._touch((topic_id, name, index))
        for index in sorted(index for index in followed.indexes if index >= partitions):
            self._touch((topic_id, name, index), has_ended=True)
        followed.partitions = partitions

    def _touch(self, key: CursorKey, *, has_ended: bool = False) -> None:
        """Note a change, or the end, of a cursor of a subscription."""
        topic_id, name, index = key
        indexes = self._followed(topic_id, name).indexes
        (indexes.discard if has_ended else indexes.add)(index)
        self._place_change(key, has_ended=has_ended)

    def _place_change(self, key: CursorKey, *, has_ended: bool) -> None:
        topic = self._topics.find_by_id(key[0])
        if topic is not None:
            self._names[key[0]] = topic.name
        place, self.end = self.end, self.end + 1
        self._places[key] = place
        self._order.append((place, key, self._now_us()))
        self._ended.pop(key, None)
        if has_ended:
            self._end(key)
        if len(self._order) > 2 * len(self._places) + STALE_MIN:
            self._order = [entry for entry in self._order if self._places.get(entry[1]) == entry[0]]

    def _end(self, key: CursorKey) -> None:
        self._ended[key] = None
        if len(self._ended) > ENDED_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._places[oldest]
