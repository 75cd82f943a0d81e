"""A set of offsets in little memory: a bit each, in pages. Knows no record."""

from typing import Final

PAGE_BITS: Final = 10
PAGE_OFFSETS: Final = 1 << PAGE_BITS
PAGE_MASK: Final = PAGE_OFFSETS - 1
# Some 250 bytes each: 50 MB, for 200 million offsets in a row or 200,000 far from each other.
PAGES_MAX: Final = 200_000


class OffsetSet:
    """Offsets, as many as fit: `is_full` says that some did not."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self.is_full = False
        self._pages_max = pages_max
        self._pages: dict[int, int] = {}

    def add(self, offset: int) -> None:
        """Put an offset in, unless there is no room."""
        number = offset >> PAGE_BITS
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= self._pages_max:
                self.is_full = True
                return
            page = 0
        self._pages[number] = page | 1 << (offset & PAGE_MASK)

    def __contains__(self, offset: int) -> bool:
        return bool(self._pages.get(offset >> PAGE_BITS, 0) >> (offset & PAGE_MASK) & 1)

    def __bool__(self) -> bool:
        return bool(self._pages)

    def has_any(self, start: int, end: int) -> bool:
        """Return True if the set has an offset in `[start, end)`."""
        if start >= end:
            return False
        first, last = start >> PAGE_BITS, end - 1 >> PAGE_BITS
        if last - first < len(self._pages):
            return any(self._has_any(number, start, end) for number in range(first, last + 1))
        return any(self._has_any(number, start, end) for number in self._pages)

    def _has_any(self, number: int, start: int, end: int) -> bool:
        page = self._pages.get(number)
        if page is None:
            return False
        base = number << PAGE_BITS
        low, high = max(start - base, 0), min(end - base, PAGE_OFFSETS)
        if low >= high:
            return False
        return bool(page >> low & (1 << high - low) - 1)
