"""Which places of a segment hold batches whose checksums this process has seen to be right.

So a body that was checked once can be sent without being read again. Knows no file.
"""

# Places remembered for each segment. Readers that follow one another share one; those that begin in
# the middle have one each, until they meet the next.
PLACES_MAX = 8


class CheckedPlaces:
    """Places of a file, apart from each other. Safe in several threads: what one of them notes may
    be forgotten when two do so at once, which costs another check.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: tuple[tuple[int, int], ...] = ()

    def note(self, start: int, end: int) -> None:
        """All from `start` up to `end` is right; places are joined where they meet."""
        apart = []
        for one in self._places:
            if one[1] < start or one[0] > end:
                apart.append(one)
            else:
                start, end = min(start, one[0]), max(end, one[1])
        self._places = (*apart, (start, end))[-PLACES_MAX:]

    def end_from(self, pos: int) -> int:
        """Up to where all is right from `pos` on; `pos` itself where nothing is known."""
        for start, end in self._places:
            if start <= pos < end:
                return end
        return pos
