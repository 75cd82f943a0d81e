"""The positions of all shards that this broker holds (`storage/metadata/positions.py`).

A topic of another broker has no positions here. Each call chooses the store of the topic's shard,
or refuses, before anything is changed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import (
    Moved,
    StoredCursor,
    StoredSubscription,
    Subscribed,
)
from braidlog.storage.metadata.delivery_counts import QueueKey, Run
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.positions import JournalWatcher
from braidlog.storage.shared.catalogue import SharedCatalogue


class ShardPositions:
    """The `Positions` of a cluster: a store for each shard."""

    def __init__(
        self, shared_catalogue: SharedCatalogue, refuse: Callable[[int, TopicName | None], NoReturn]
    ) -> None:
        """`refuse` raises NotOwner for a topic without a store; None: no topic has that number."""
        self._catalogue = shared_catalogue.catalogue
        self._shard_of = shared_catalogue.shard
        self._refuse = refuse
        self._stores: dict[int, JournalPositions] = {}
        self._of_topic: dict[int, JournalPositions] = {}  # Found before.
        self._watchers: list[JournalWatcher] = []
        self._changes = 0  # How often a shard came or went.

    def hold(self, shard: int, store: JournalPositions) -> None:
        """Take a shard over. Cursors of deleted topics are dropped."""
        self._stores[shard] = store
        self._moved()
        for watcher in self._watchers:
            watcher.attach(shard, store)
        for topic_id in store.topic_ids():
            meta = self._catalogue.topic_by_id(topic_id)
            if meta is None:
                store.drop_topic(topic_id)
            else:
                store.resize(topic_id, len(meta.partition_ids))

    def give_up(self, shard: int) -> None:
        self._stores.pop(shard, None)
        self._moved()
        for watcher in self._watchers:
            watcher.detach(shard)

    def _moved(self) -> None:
        self._of_topic = {}
        self._changes += 1

    def _store(self, topic_id: int) -> JournalPositions | None:
        store = self._of_topic.get(topic_id)
        if store is None:
            meta = self._catalogue.topic_by_id(topic_id)
            if meta is None:
                return None
            store = self._stores.get(self._shard_of(meta.name))
            if store is not None:
                self._of_topic[topic_id] = store
        return store

    def _owned(self, topic_id: int) -> JournalPositions:
        store = self._store(topic_id)
        if store is None:
            meta = self._catalogue.topic_by_id(topic_id)
            self._refuse(topic_id, None if meta is None else meta.name)
        return store

    # Reading.

    @property
    def ticket(self) -> int:
        """After this ticket every change so far that was not lazy is published."""
        return max((store.ticket for store in self._stores.values()), default=0)

    @property
    def set_back(self) -> int:
        """Grows when a cursor is made or moved back, and when a shard comes or goes."""
        return self._changes + sum(store.set_back for store in self._stores.values())

    @property
    def totals(self) -> CursorTotals:
        sums = CursorTotals()
        for store in self._stores.values():
            sums.subscriptions += store.totals.subscriptions
            sums.cursors += store.totals.cursors
            sums.ranges += store.totals.ranges
        return sums

    def topic_ids(self) -> list[int]:
        return [topic_id for store in self._stores.values() for topic_id in store.topic_ids()]

    def names(self, topic_id: int) -> list[bytes]:
        store = self._store(topic_id)
        return store.names(topic_id) if store else []

    def count(self, topic_id: int) -> int:
        store = self._store(topic_id)
        return store.count(topic_id) if store else 0

    def find(self, topic_id: int, name: bytes) -> StoredSubscription | None:
        """The subscription of that name. Raises NotOwner."""
        return self._owned(topic_id).find(topic_id, name)

    def get(self, topic_id: int, index: int, name: bytes) -> StoredCursor | None:
        """Return the cursor on a partition; None: never set. Raises NotOwner."""
        return self._owned(topic_id).get(topic_id, index, name)

    def subscriptions(self, topic_id: int) -> list[StoredSubscription]:
        """All of a topic of ours."""
        store = self._store(topic_id)
        return store.subscriptions(topic_id) if store else []

    # Changing. All raise NotOwner.

    def open(
        self,
        topic_id: int,
        name: bytes,
        *,
        partitions: int,
        properties: dict[str, str] | None = None,
    ) -> int:
        store = self._owned(topic_id)
        return store.open(topic_id, name, partitions=partitions, properties=properties)

    def move(self, moved: Moved, *, lazy: bool = False) -> int:
        return self._owned(moved.topic_id).move(moved, lazy=lazy)

    def move_all(self, moves: Iterable[Moved], *, making: Iterable[Subscribed] = ()) -> int:
        """Change cursors as `Positions.move_all`, with a record for each shard."""
        parts: dict[JournalPositions, tuple[list[Moved], list[Subscribed]]] = {}
        for move in making:
            parts.setdefault(self._owned(move.topic_id), ([], []))[1].append(move)
        for moved in moves:
            parts.setdefault(self._owned(moved.topic_id), ([], []))[0].append(moved)
        tickets = [
            store.move_all(store_moves, making=new) for store, (store_moves, new) in parts.items()
        ]
        return max(tickets, default=0)

    def set_properties(self, topic_id: int, name: bytes, properties: dict[str, str]) -> int:
        return self._owned(topic_id).set_properties(topic_id, name, properties)

    def delete(self, topic_id: int, index: int, name: bytes) -> int:
        return self._owned(topic_id).delete(topic_id, index, name)

    def drop(self, topic_id: int, name: bytes) -> int:
        return self._owned(topic_id).drop(topic_id, name)

    def drop_topic(self, topic_id: int) -> int:
        """End the subscriptions that a deleted topic has here, if any."""
        for store in self._stores.values():
            if topic_id in store.topic_ids():
                return store.drop_topic(topic_id)
        return 0

    def resize(self, topic_id: int, partitions: int, *, lazy: bool = False) -> int:
        """Resize as `Positions.resize`; the owner of another broker's topic resizes that topic."""
        store = self._store(topic_id)
        return store.resize(topic_id, partitions, lazy=lazy) if store else 0

    def deliveries(self, key: QueueKey) -> Sequence[Run] | None:
        return self._owned(key[0]).deliveries(key)

    def count_deliveries(self, key: QueueKey, runs: Sequence[Run]) -> None:
        self._owned(key[0]).count_deliveries(key, runs)

    @property
    def is_watched(self) -> bool:
        """True if a store must keep its history for watchers."""
        return bool(self._watchers)

    def watch(self, watcher: JournalWatcher) -> None:
        self._watchers.append(watcher)
        for shard, store in self._stores.items():
            watcher.attach(shard, store)

    def flush_lazy(self) -> int:
        return max((store.flush_lazy() for store in self._stores.values()), default=0)
