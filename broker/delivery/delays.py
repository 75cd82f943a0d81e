"""Delayed records of a subscription: their offsets and due times.

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
    """A heap of (time, offset, slot), each packed into a number, for ranges of offsets."""

    def __init__(self, delayed_max: int) -> None:
        self._delayed_max = delayed_max
        self._heap: list[int] = []
        # Ends of ranges with several offsets: only these have an item.
        self._ends: dict[int, int] = {}
        self.messages = 0
        """Number of offsets in all ranges."""

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return len(self._heap) >= self._delayed_max

    @property
    def first_ms(self) -> int | None:
        """Return the time of the next due range, in milliseconds since 1970."""
        return self._heap[0] >> (_OFFSET_BITS + _SLOT_BITS) if self._heap else None

    def add(self, due_ms: int, offset: int, end: int, slot: int = 0) -> None:
        """Deliver the records of `[offset, end)` at that time; `slot` is the slot of the entry's
        key. No offset may be in two ranges.
        """
        packed = (due_ms << (_OFFSET_BITS + _SLOT_BITS)) | (offset << _SLOT_BITS) | slot
        heapq.heappush(self._heap, packed)
        self.messages += end - offset
        if end > offset + 1:
            self._ends[offset] = end

    def pop_due(self, now_ms: int, count_max: int) -> list[tuple[int, int, int]]:
        """Remove and return (offset, end, slot) of due ranges, until they have `count_max`
        offsets.
        """
        due: list[tuple[int, int, int]] = []
        heap, bound = self._heap, (now_ms + 1) << (_OFFSET_BITS + _SLOT_BITS)
        left = self.messages - count_max
        while heap and heap[0] < bound and self.messages > left:
            packed = heapq.heappop(heap)
            offset = (packed >> _SLOT_BITS) & _OFFSET_MASK
            end = self._ends.pop(offset, offset + 1)
            self.messages -= end - offset
            due.append((offset, end, packed & _SLOT_MASK))
        return due

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._ends.clear()
        self.messages = 0
