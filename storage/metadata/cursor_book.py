"""The interface of a cursor store. Behind the interface is one store (`cursors.py`), or a store for
each shard that a broker holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import Moved, StoredCursor, StoredSubscription, Subscribed


class CursorBook(Protocol):
    """The methods of `CursorStore`."""

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
        """Return the subscription of that name."""

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
        """Change a cursor of an existing subscription; return the ticket."""

    def move_all(self, moves: Iterable[Moved], *, making: Iterable[Subscribed] = ()) -> int:
        """Make new subscriptions, and change cursors; return the ticket."""

    def delete(self, topic_id: int, index: int, name: bytes) -> int:
        """End the cursor of one partition; return the ticket."""

    def drop(self, topic_id: int, name: bytes) -> int:
        """End an existing subscription; return the ticket."""

    def drop_topic(self, topic_id: int) -> int:
        """End all subscriptions of a topic; return the ticket."""

    def resize(self, topic_id: int, partitions: int, *, lazy: bool = False) -> int:
        """Set the present number of partitions of a topic; return the ticket."""

    def settle(self) -> int:
        """Return a ticket after which every change so far is on disk, lazy changes too."""
