"""Delayed entries of a subscription: their offsets and due times.

Kept in memory only: they are not acknowledged, so a restart reads and adds them again. Knows no
entry and no clock.
"""

import heapq
from typing import Final

_OFFSET_BITS: Final = 64
_SLOT_BITS: Final = 16
_SLOT_MASK: Final = (1 << _SLOT_BITS) - 1
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


class Delays:
    """A heap of (time, offset, slot), each packed into a number."""

    def __init__(self, delayed_max: int) -> None:
        self._delayed_max = delayed_max
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return len(self._heap) >= self._delayed_max

    @property
    def first_ms(self) -> int | None:
        """Return the time of the next due entry, in milliseconds since 1970."""
        return self._heap[0] >> (_OFFSET_BITS + _SLOT_BITS) if self._heap else None

    def add(self, due_ms: int, offset: int, slot: int) -> None:
        """Deliver the entry at `offset` at that time; `slot` is the slot of its key, or 0."""
        packed = (due_ms << (_OFFSET_BITS + _SLOT_BITS)) | (offset << _SLOT_BITS) | slot
        heapq.heappush(self._heap, packed)

    def pop_due(self, now_ms: int, count_max: int) -> list[tuple[int, int]]:
        """Remove and return (offset, slot) of at most `count_max` due entries."""
        due: list[tuple[int, int]] = []
        heap, bound = self._heap, (now_ms + 1) << (_OFFSET_BITS + _SLOT_BITS)
        while heap and heap[0] < bound and len(due) < count_max:
            packed = heapq.heappop(heap)
            due.append(((packed >> _SLOT_BITS) & _OFFSET_MASK, packed & _SLOT_MASK))
        return due

    def offsets(self) -> list[int]:
        """Return the offsets of all entries."""
        return [(packed >> _SLOT_BITS) & _OFFSET_MASK for packed in self._heap]

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
