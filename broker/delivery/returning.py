"""Entries that consumers give back, a piece at a time.

A consumer that leaves, or asks for all of its entries again, may hold 50,000 entries, each with its
own key. Keeps offsets; knows no lane.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.delivery.consumer import Consumer


class Returning:
    """Entries still to be given back; their consumers hold them until then."""

    def __init__(self, together: int) -> None:
        """Give back up to `together` entries in a turn of the loop."""
        self._together = together
        self._pieces: deque[tuple[Consumer, Sequence[int]]] = deque()
        self._pieces_of: Counter[Consumer] = Counter()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __contains__(self, consumer: Consumer) -> bool:
        """Return True if the consumer has entries still to be given back."""
        return consumer in self._pieces_of

    def add(self, consumer: Consumer, offsets: Sequence[int]) -> None:
        """Queue entries that the consumer gives back; entries of the same key keep this order."""
        for first in range(0, len(offsets), self._together):
            self._pieces.append((consumer, offsets[first : first + self._together]))
            self._pieces_of[consumer] += 1

    def take(self) -> tuple[Consumer, Sequence[int]]:
        """Remove and return the next piece: a consumer, and entries that the consumer
        still holds.
        """
        consumer, offsets = self._pieces.popleft()
        self._pieces_of[consumer] -= 1
        if not self._pieces_of[consumer]:
            del self._pieces_of[consumer]
        return consumer, [offset for offset in offsets if offset in consumer.pending]

    def clear(self) -> None:
        """Forget all: no more entries are given back.

        Their consumers hold none of the entries from now on, although acknowledgements may be under
        way.
        """
        for consumer, _ in self._pieces:
            consumer.pending.clear()
        self._pieces.clear()
        self._pieces_of.clear()
