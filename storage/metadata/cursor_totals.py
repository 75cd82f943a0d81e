"""Totals over all cursors of a broker, kept up to date with every change. The broker's limits are
checked against them. Knows no journal and no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol


class CountedCursor(Protocol):
    """What is counted of a cursor."""

    @property
    def acked(self) -> Sized | None:
        """The ranges above its position; None for none."""


class CountedSubscription(Protocol):
    """What is counted of a subscription."""

    @property
    def cursors(self) -> Mapping[int, CountedCursor]:
        """By partition."""


@dataclass(slots=True)
class CursorTotals:
    """Totals over all topics."""

    subscriptions: int = 0
    cursors: int = 0
    ranges: int = 0  # acknowledged ones above positions

    def add(self, found: Iterable[CountedSubscription]) -> None:
        """Count these from now on."""
        self._count(found, 1)

    def take(self, found: Iterable[CountedSubscription]) -> None:
        """Stop counting these: they are gone, or about to change and to be added again."""
        self._count(found, -1)

    def _count(self, found: Iterable[CountedSubscription], sign: int) -> None:
        for subscription in found:
            self.subscriptions += sign
            self.cursors += sign * len(subscription.cursors)
            for cursor in subscription.cursors.values():
                if cursor.acked is not None:
                    self.ranges += sign * len(cursor.acked)
