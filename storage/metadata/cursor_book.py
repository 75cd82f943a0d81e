"""The interface of a cursor store to those who move cursors. Behind it is one store (`cursors.py`),
or one for each shard that a broker holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from braidlog.storage.metadata.cursor_totals import CursorTotals
from braidlog.storage.metadata.cursors import Moved, StoredCursor, StoredSubscription, Subscribed


class CursorBook(Protocol):
    """See `CursorStore`, whose methods these are."""

    @property
    def set_back(self) -> int:
        """Grows when a cursor is made or moved back: positions read before may then be too high."""

    @property
    def totals(self) -> CursorTotals:
        """Totals over all cursors."""

    def topic_ids(self) -> list[int]:
        """The topics that have subscriptions."""

    def names(self, topic_id: int) -> list[bytes]:
        """The subscriptions of a topic, by name."""

    def count(self, topic_id: int) -> int:
        """How many subscriptions a topic has."""

    def find(self, topic_id: int, name: bytes) -> StoredSubscription | None:
        """The subscription of that name."""

    def get(self, topic_id: int, index: int, name: bytes) -> StoredCursor | None:
        """The cursor on one partition; None: never set."""

    def subscriptions(self, topic_id: int) -> list[StoredSubscription]:
        """All subscriptions of a topic."""

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
        """Set how many partitions a topic has now; return the ticket."""

    def settle(self) -> int:
        """A ticket after which every change so far is on disk, lazy ones too."""
