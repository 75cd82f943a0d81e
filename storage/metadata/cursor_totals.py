"""How much all cursors of a broker hold together, kept up to date with every change: what limits
are measured against. Knows no journal and no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol


class Cursor(Protocol):
    """What is counted of a cursor."""

    @property
    def acked(self) -> Sized | None:
        """The ranges above its position; None for none."""


class Counted(Protocol):
    """What is counted of a subscription."""

    @property
    def cursors(self) -> Mapping[int, Cursor]:
        """By partition."""


@dataclass(slots=True)
class CursorTotals:
    """Of all topics."""

    subscriptions: int = 0
    cursors: int = 0
    ranges: int = 0  # acknowledged ones above positions

    def add(self, found: Iterable[Counted]) -> None:
        """These are there from now on."""
        self._count(found, 1)

    def take(self, found: Iterable[Counted]) -> None:
        """These are no more, or about to change: they are added again then."""
        self._count(found, -1)

    def _count(self, found: Iterable[Counted], sign: int) -> None:
        for subscription in found:
            self.subscriptions += sign
            self.cursors += sign * len(subscription.cursors)
            for cursor in subscription.cursors.values():
                if cursor.acked is not None:
                    self.ranges += sign * len(cursor.acked)
