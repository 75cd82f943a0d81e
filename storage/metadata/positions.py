"""The positions of all subscriptions: the interface, and the guarantees of its implementations.

`JournalPositions` (`journal_positions.py`) writes each change into a journal. `ShardPositions`
(`storage/shared/shard_positions.py`) holds such a store for each shard of a cluster that this
broker owns, and chooses the store before calling it. `MemoryPositions` (`memory_positions.py`) has
no journal: a reader without a durable subscription has such a store, which ends with the reader.

**Atomic.** Each change is a record of a journal: written whole or not at all. The change is in
memory when the call returns, and memory equals a replay of the journal. A change that raises has
changed nothing.

**Durable.** A change is durable once the returned ticket is. A lazy change returns 0, and is on
disk within the flush interval, at a clean stop, or with the ticket of `flush_lazy`. A crash may
lose lazy changes: a position is then older, never newer.

**Reading.** Reads come from memory and never wait. A missing cursor means "never set".

**Errors.** StorageFull and StorageFailed, from changes. In a cluster, finding or changing a
subscription of another broker's topic raises NotOwner before any change; lists are empty there.

**Threads.** All calls belong to the thread that owns the journals.

`Subscription` (`broker/positions/subscriptions.py`) decides the effect of a commit, an ack or a
seek (`docs/positions.md`). Within the call each listener learns the move and the mover; a listener
must not move the cursor there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import (
    CursorChange,
    Moved,
    StoredCursor,
    StoredSubscription,
    Subscribed,
)
from braidlog.storage.metadata.delivery_counts import QueueKey, Run


class PlacedPositions(Protocol):
    """The positions of a journal, for a reader that follows their changes."""

    def topic_ids(self) -> list[int]:
        """See `Positions`, as the other methods without a text."""

    def names(self, topic_id: int) -> list[bytes]: ...

    def find(self, topic_id: int, name: bytes) -> StoredSubscription | None: ...

    def get(self, topic_id: int, index: int, name: bytes) -> StoredCursor | None: ...

    @property
    def next_place(self) -> int:
        """Place in the journal that the next change will have."""

    def placed(self) -> Iterable[tuple[int, CursorChange]]:
        """Return the changes since the last snapshot, and the snapshot, with their places in the
        journal; to be used at once.
        """

    def follow(self, follower: Callable[[CursorChange, int], None]) -> None:
        """Call `follower` within each later change of cursors with the change's place in the
        journal, once the change is in memory.
        """


class JournalWatcher(Protocol):
    """Learns which journals with positions are here, by number: 0, or the shard's."""

    def attach(self, number: int, positions: PlacedPositions) -> None:
        """A journal is here."""

    def detach(self, number: int) -> None:
        """A journal has gone to another broker."""


class Positions(Protocol):
    """The cursors of all subscriptions. Callers must not change returned values."""

    @property
    def set_back(self) -> int:
        """Grows when a cursor is made or moved back: positions read before may then be too high."""

    @property
    def totals(self) -> CursorTotals:
        """Totals over all cursors."""

    def topic_ids(self) -> list[int]:
        """Return the topics that have subscriptions."""

    def names(self, topic_id: int) -> list[bytes]:
        """Return the subscriptions of a topic, by name."""

    def count(self, topic_id: int) -> int:
        """Return the number of subscriptions of a topic."""

    def find(self, topic_id: int, name: bytes) -> StoredSubscription | None:
        """Return the subscription of that name; a live object that the store goes on changing."""

    def get(self, topic_id: int, index: int, name: bytes) -> StoredCursor | None:
        """Return the cursor on a partition; None if never set."""

    def subscriptions(self, topic_id: int) -> list[StoredSubscription]:
        """Return all subscriptions of a topic."""

    def open(
        self,
        topic_id: int,
        name: bytes,
        *,
        partitions: int,
        properties: dict[str, str] | None = None,
    ) -> int:
        """Make a subscription unless it exists; return the ticket."""

    def move(self, moved: Moved, *, lazy: bool = False) -> int:
        """Change a cursor of an existing subscription; return the ticket, 0 for a lazy change. The
        store takes over the ranges.
        """

    def move_all(self, moves: Iterable[Moved], *, making: Iterable[Subscribed] = ()) -> int:
        """Make subscriptions, and change cursors of these and of others; return the ticket. All
        changes of a shard happen, or none if the record cannot be written.
        """

    def set_properties(self, topic_id: int, name: bytes, properties: dict[str, str]) -> int:
        """Replace the properties of an existing subscription; return the ticket."""

    def delete(self, topic_id: int, index: int, name: bytes) -> int:
        """End the cursor of a partition, with the last cursor the subscription; return
        the ticket.
        """

    def drop(self, topic_id: int, name: bytes) -> int:
        """End an existing subscription; return the ticket."""

    def drop_topic(self, topic_id: int) -> int:
        """End all subscriptions of a topic; return the ticket."""

    def resize(self, topic_id: int, partitions: int, *, lazy: bool = False) -> int:
        """Set the present number of partitions of a topic; return the ticket."""

    def deliveries(self, key: QueueKey) -> Sequence[Run] | None:
        """Return how often records of a queue were given out, as last stored; None if no member of
        a share group has read there.
        """

    def count_deliveries(self, key: QueueKey, runs: Sequence[Run]) -> None:
        """Store how often records of a queue were given out: a lazy change. A seek forgets the
        counts, and the end of the cursor forgets the queue.
        """

    def watch(self, watcher: JournalWatcher) -> None:
        """Tell `watcher` of each journal with positions that is here, and that comes or goes."""

    def flush_lazy(self) -> int:
        """Return a ticket after which every change so far is on disk, lazy changes too."""
