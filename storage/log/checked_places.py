"""Which places of a segment hold batches whose checksums this process has verified.

A body that was checked once can be sent without being read again. Knows no file.
"""

# Places remembered for each segment. Readers that follow one another share a place; a reader that
# begins in the middle has its own place until the reader reaches the next place.
PLACES_MAX = 8


class CheckedPlaces:
    """Disjoint places of a file. Safe in several threads: if two threads note places at once, a
    place may be lost, which costs another check.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: tuple[tuple[int, int], ...] = ()

    def note(self, start: int, end: int) -> None:
        """Note that all from `start` to `end` is verified; places that meet are joined."""
        apart = []
        for place in self._places:
            if place[1] < start or place[0] > end:
                apart.append(place)
            else:
                start, end = min(start, place[0]), max(end, place[1])
        self._places = (*apart, (start, end))[-PLACES_MAX:]

    def end_from(self, pos: int) -> int:
        """The end of the verified bytes from `pos` on; `pos` itself if none are known there."""
        for start, end in self._places:
            if start <= pos < end:
                return end
        return pos
