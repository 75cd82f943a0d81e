"""Trimming of a log: retention, and deletion of records at the log start.

Decides where the log begins; the log moves its start there. Whole segments go, and only durable
segments: a log never ends below an acknowledged offset. Owner's thread. Knows no file and no key.
"""

from bisect import bisect_right
from dataclasses import replace
from typing import Protocol

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.dating import newest_append_us
from braidlog.storage.log.extent import Extent
from braidlog.storage.log.retention_rules import is_too_old, new_log_start
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_set import SegmentSet


class Trimmed(Extent, Protocol):
    """A log that a `Trimmer` shortens."""

    def roll(self) -> None:
        """Begin a new segment at the log end. Raises StorageFull, StorageFailed."""

    def begin_at(self, log_start: int, count: int) -> None:
        """Begin the log at an offset, without its `count` oldest segments. Raises StorageFull, with
        nothing changed; StorageFailed.
        """


class Trimmer:
    """Removes old records of a log."""

    __slots__ = ("_log", "_segments")

    def __init__(self, log: Trimmed, segments: SegmentSet) -> None:
        self._log = log
        self._segments = segments

    def retain(
        self,
        now_us: int,
        acknowledged_offset: int | None = None,
        held_offset: int | None = None,
        *,
        wall_us: int | None = None,
    ) -> int:
        """Drop old segments as `Log.retain`."""
        if not self._segments.view.segments:
            return 0
        offsets = (acknowledged_offset, held_offset)
        for segment in self._segments.view.segments:
            segment.limit_date(now_us if wall_us is None else wall_us)
        while (undated := self.undated(now_us, *offsets)) is not None:
            undated.take_date(newest_append_us(undated))
        try:
            self._roll_expired(now_us)
        except StorageFull:
            self._drop_old(now_us, offsets)  # This makes room for the next time.
            raise
        return self._drop_old(now_us, offsets)

    def undated(
        self, now_us: int, acknowledged_offset: int | None = None, held_offset: int | None = None
    ) -> Segment | None:
        """Return a segment as `Log.undated`."""
        segments = self._segments.view.segments
        if all(segment.is_dated for segment in segments):
            return None
        facts = self._segments.facts(self._log.log_end_offset)
        offsets = (acknowledged_offset, held_offset)
        start = new_log_start(facts, self._log.settings, now_us, *offsets)
        young = [
            fact if fact.is_dated else replace(fact, newest_append_us=now_us) for fact in facts
        ]
        new_start = new_log_start(young, self._log.settings, now_us, *offsets)
        if new_start < start:
            return segments[bisect_right([fact.base_offset for fact in facts], new_start) - 1]
        last = segments[-1]
        if not last.is_dated and self._is_expired(last, now_us):
            return last
        return None

    def drop(self, count: int | None = None) -> int:
        """Drop segments as `Log.drop`."""
        if not self._segments.view.segments:
            return 0
        if count is None:
            self._roll_last()
        bases = self._segments.view.bases
        return self.drop_below(bases[-1 if count is None else min(count, len(bases) - 1)])

    def drop_below(self, offset: int) -> int:
        """Drop whole segments below an offset; return their number. The log then begins with the
        first segment left. Raises StorageFull, StorageFailed.
        """
        count = self._count_below(offset)
        if count > 0:
            self._log.begin_at(self._segments.view.bases[count], count)
        return count

    def delete_below(self, offset: int) -> int:
        """Delete records as `Log.delete_below`."""
        start = min(offset, self._log.durable_offset)
        if start <= self._log.log_start_offset:
            return 0
        if start == self._log.log_end_offset:
            self._roll_last()
        count = self._count_below(start)
        self._log.begin_at(start, count)
        return count

    def _count_below(self, offset: int) -> int:
        """Number of segments whose records all are durable and below an offset."""
        bases = self._segments.view.bases
        return max(bisect_right(bases, min(offset, self._log.durable_offset)) - 1, 0)

    def _roll_last(self) -> None:
        if self._log.takes_appends and not self._segments.last.is_empty:
            self._log.roll()

    def _drop_old(self, now_us: int, offsets: tuple[int | None, int | None]) -> int:
        facts = self._segments.facts(self._log.log_end_offset)
        start = new_log_start(facts, self._log.settings, now_us, *offsets)
        return self.drop_below(start)

    def _roll_expired(self, now_us: int) -> None:
        """Begin a new segment when even the newest record is too old, so that the old segment can
        go.
        """
        if self._is_expired(self._segments.last, now_us):
            self._log.roll()

    def _is_expired(self, last: Segment, now_us: int) -> bool:
        """Return True if even the newest record is too old."""
        is_closable = self._log.takes_appends and not last.is_empty
        return is_closable and is_too_old(last.newest_append_us, self._log.settings, now_us)
