"""Delayed records of a subscription: their offsets and due times.

Kept in memory only: they are not acknowledged, so a restart reads and adds them again. Knows no
entry and no clock.
"""

import heapq
from typing import Final

LOOK_MS: Final = 60_000
LOOKED_AT_MAX: Final = 5000  # Ranges in a turn of the loop: some 10 ms.
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
        # Ranges to look at: some may be gone. They are in no heap until then.
        self._aside: list[int] = []
        self._looked_ms = 0  # Time of the last look.

    def __len__(self) -> int:
        return len(self._heap) + len(self._aside)

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return len(self) >= self._delayed_max

    @property
    def first_ms(self) -> int | None:
        """Return the time of the next call of `pop_due`, in milliseconds since 1970."""
        if self._aside:
            return 0
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

    def forget_below(self, position: int, now_ms: int) -> None:
        """Forget ranges below a position if the limit is reached: retention or another client may
        have removed them long before they are due. Looks at a limited number in each call, and at
        each range once in `LOOK_MS`.
        """
        if not self._aside:
            if not self.is_full or now_ms < self._looked_ms + LOOK_MS:
                return
            self._looked_ms = now_ms
            self._aside, self._heap = self._heap, self._aside
        for packed in self._aside[-LOOKED_AT_MAX:]:
            offset = (packed >> _SLOT_BITS) & _OFFSET_MASK
            if (end := self._ends.get(offset, offset + 1)) > position:
                heapq.heappush(self._heap, packed)
            else:
                self._ends.pop(offset, None)
                self.messages -= end - offset
        del self._aside[-LOOKED_AT_MAX:]

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._aside.clear()
        self._ends.clear()
        self.messages = 0
