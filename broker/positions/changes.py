"""The newest change of each cursor, in the order of the changes: a compacted log of all positions,
for readers that follow them. Kept in memory, from `open` on; knows no protocol.

Each change has a place. The first place of a run is the time of `open` in microseconds, so a place
is higher than all places of earlier runs: a reader that comes back after a restart gets the newest
change of each cursor again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from braidlog.broker.positions.cursor_moves import CursorKey
from braidlog.broker.runtime.turns import in_turns
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
    from braidlog.storage.metadata.positions import Positions

TOPICS_PER_TURN: Final = 20
ENDED_MAX: Final = 10_000  # Ended cursors that readers hear of; the oldest are forgotten.
STALE_MIN: Final = 1024  # So many overwritten changes may stay in the order.


class PlacedChange(NamedTuple):
    """The newest change of a cursor; `commit` is None if the cursor has ended."""

    place: int
    topic: TopicName
    group: bytes
    partition: int
    commit: KafkaCommit | None


class PositionChanges:
    """Places of changes by cursor.

    `_order` has (place, cursor) by place; an entry is overwritten when `_places` has another
    place for its cursor. `_indexes` has the partitions with a cursor by topic and subscription.
    """

    def __init__(self, cursors: Positions, topics: TopicRegistry) -> None:
        """Note nothing until `open`."""
        self.is_open = False
        self.end = 0  # the place of the next change
        self._cursors, self._topics = cursors, topics
        self._places: dict[CursorKey, int] = {}
        self._order: list[tuple[int, CursorKey]] = []
        self._indexes: dict[int, dict[bytes, set[int]]] = {}
        self._ended: dict[CursorKey, None] = {}
        self._names: dict[int, TopicName] = {}  # of topics that may be deleted meanwhile
        self._moved = trio.Event()

    async def open(self, now_us: int) -> None:
        """Begin to note changes; every present cursor counts as changed now."""
        if self.is_open:
            return
        self.is_open, self.end = True, now_us
        self._cursors.follow(self._note)
        async for topic_id in in_turns(self._cursors.topic_ids(), TOPICS_PER_TURN):
            for name in self._cursors.names(topic_id):
                stored = self._cursors.find(topic_id, name)
                for index in () if stored is None else tuple(stored.cursors):
                    if (topic_id, name, index) not in self._places:
                        self._touch((topic_id, name, index))

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
            place, key = self._order[number]
            topic = self._topics.find_by_id(key[0])
            name = self._names.get(key[0]) if topic is None else topic.name
            if self._places.get(key) == place and name is not None:
                yield PlacedChange(place, name, key[1], key[2], self._commit(key))

    async def wait(self, place: int) -> None:
        """Wait for a change at that place or later."""
        while self.end <= place:
            await self._moved.wait()

    def _commit(self, key: CursorKey) -> KafkaCommit | None:
        topic_id, name, index = key
        cursor = self._cursors.get(topic_id, index, name)
        return None if cursor is None else cursor.kafka or KafkaCommit(cursor.position, b"", 0)

    def _note(self, change: CursorChange) -> None:
        match change:
            case (
                Moved(topic_id=topic_id, name=name, index=index)
                | CursorGone(topic_id=topic_id, name=name, index=index)
            ):
                self._touch((topic_id, name, index))
            case Subscribed(topic_id=topic_id, subscriptions=subscriptions):
                for name, stored in subscriptions.items():
                    for index in stored.cursors:
                        self._touch((topic_id, name, index))
            case Unsubscribed(topic_id=topic_id, name=name):
                self._touch_all(topic_id, [name])
            case TopicDropped(topic_id=topic_id):
                self._touch_all(topic_id, list(self._indexes.get(topic_id, ())))
                self._indexes.pop(topic_id, None)
            case TopicResized(topic_id=topic_id):
                self._touch_all(topic_id, self._cursors.names(topic_id), only_changed=True)

    def _touch_all(self, topic_id: int, names: list[bytes], *, only_changed: bool = False) -> None:
        """Note a change of all cursors of subscriptions, or of those that began or ended."""
        for name in names:
            stored = self._cursors.find(topic_id, name)
            present = set() if stored is None else set(stored.cursors)
            known = set(self._indexes.get(topic_id, {}).get(name, ()))
            for index in sorted(present ^ known if only_changed else present | known):
                self._touch((topic_id, name, index))

    def _touch(self, key: CursorKey) -> None:
        topic_id, name, index = key
        topic = self._topics.find_by_id(topic_id)
        if topic is not None:
            self._names[topic_id] = topic.name
        place, self.end = self.end, self.end + 1
        self._places[key] = place
        self._order.append((place, key))
        indexes = self._indexes.setdefault(topic_id, {}).setdefault(name, set())
        self._ended.pop(key, None)
        if self._cursors.get(topic_id, index, name) is not None:
            indexes.add(index)
        else:
            indexes.discard(index)
            if not indexes:
                del self._indexes[topic_id][name]
            self._end(key)
        if len(self._order) > 2 * len(self._places) + STALE_MIN:
            self._order = [entry for entry in self._order if self._places.get(entry[1]) == entry[0]]
        self._moved.set()
        self._moved = trio.Event()

    def _end(self, key: CursorKey) -> None:
        self._ended[key] = None
        if len(self._ended) > ENDED_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._places[oldest]
