"""Totals over all cursors of a broker, updated with every change, for checks of the broker's
limits. Knows no journal and no limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.storage.metadata.cursors import StoredSubscription


@dataclass(slots=True)
class CursorTotals:
    """Totals over all topics."""

    subscriptions: int = 0
    cursors: int = 0
    ranges: int = 0  # acknowledged ranges above positions

    def add(self, counted: Iterable[StoredSubscription]) -> None:
        """Count these subscriptions from now on."""
        self._count(counted, 1)

    def take(self, counted: Iterable[StoredSubscription]) -> None:
        """Stop counting these subscriptions: they are gone, or about to change and be
        added again.
        """
        self._count(counted, -1)

    def _count(self, counted: Iterable[StoredSubscription], sign: int) -> None:
        for subscription in counted:
            self.subscriptions += sign
            self.cursors += sign * len(subscription.cursors)
            for cursor in subscription.cursors.values():
                if cursor.acked is not None:
                    self.ranges += sign * len(cursor.acked)
