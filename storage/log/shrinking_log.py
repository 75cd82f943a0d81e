"""The shrinking side of one partition's log: retention, deletion of records, and replacement of
segments by compaction.

Files are removed only once the slot with the new log start, or the name of the compacted file, is
durable. The owner's thread alone. Knows offsets, no key and no protocol.
"""

import abc
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.committer import Committer, Member
from braidlog.storage.log.compacted_view import CompactedView
from braidlog.storage.log.compaction.sources import Source
from braidlog.storage.log.compaction.writer import CompactedWriter
from braidlog.storage.log.dating import newest_append_us
from braidlog.storage.log.files import Files
from braidlog.storage.log.readable_log import ReadableLog
from braidlog.storage.log.recovery import Recovered
from braidlog.storage.log.retention import is_too_old, new_log_start
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_names import VIEW_SUFFIX
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.log.unsynced import Unsynced
from braidlog.storage.log.watermark import SlotFile

PPM = 1_000_000


class ShrinkingLog(ReadableLog, Member):
    """The part of a `PartitionLog` that removes records. `PartitionLog` sets these attributes."""

    settings: LogSettings
    takes_appends: bool
    cleaned_offset: int  # As far as known, a compaction has nothing to do below.
    views_dropped: int  # Count of drops: a view begun before the last drop has deleted records.
    _files: Files
    _committer: Committer
    _slot: SlotFile
    _unsynced: Unsynced
    _segments_to_delete: list[Segment]  # Once the slot is durable, oldest first.
    _to_delete_in_round: int  # The round under way makes the slot durable for this many.
    _replaced: list[Segment]  # Removed once a round has synced the folder.
    _replaced_in_round: list[Segment]  # The round under way syncs the folder for these.

    @abc.abstractmethod
    def _roll(self, segment: Segment) -> Segment:
        """Begin a new segment at the log end."""

    @abc.abstractmethod
    def _mark(self) -> None:
        """Take part in the next round."""

    def retain(
        self,
        now_us: int,
        acknowledged_offset: int | None = None,
        held_offset: int | None = None,
        *,
        wall_us: int | None = None,
    ) -> int:
        """Drop old segments as the settings say; return their number. `retention.py` has the rules.

        Ages count back from `now_us`; `wall_us` is the wall clock if that is another time. Dates
        the segments that `undated` names, which may read them whole. Readers are refused at once;
        the files are removed when the new log start is durable. Raises: StorageFull, after the
        steps that need no room; StorageFailed.
        """
        offsets = (acknowledged_offset, held_offset)
        self._correct_future(now_us if wall_us is None else wall_us)
        while (segment := self.undated(now_us, *offsets)) is not None:
            segment.take_date(newest_append_us(segment))
        try:
            self._roll_expired(now_us)
        except StorageFull:
            self._drop_old(now_us, offsets)  # This makes room for the next time.
            raise
        return self._drop_old(now_us, offsets)

    def undated(
        self, now_us: int, acknowledged_offset: int | None = None, held_offset: int | None = None
    ) -> Segment | None:
        """Return the first segment that `retain` would drop for an age that is known only from the
        file and not from the batches in the segment.
        """
        segments = self._segments.view.segments
        if all(segment.is_dated for segment in segments):
            return None
        facts = self._segments.facts(self.log_end_offset)
        offsets = (acknowledged_offset, held_offset)
        start = new_log_start(facts, self.settings, now_us, *offsets)
        young = [
            fact if fact.is_dated else replace(fact, newest_append_us=now_us) for fact in facts
        ]
        kept = new_log_start(young, self.settings, now_us, *offsets)
        if kept < start:
            return segments[bisect_right([fact.base_offset for fact in facts], kept) - 1]
        last = segments[-1]
        if not last.is_dated and self._is_expired(last, now_us):
            return last
        return None

    def _correct_future(self, wall_us: int) -> None:
        """Limit append times to the wall clock: a segment with times in the future was written by
        now.
        """
        for segment in self._segments.view.segments:
            if segment.newest_append_us > wall_us:
                segment.newest_append_us = wall_us

    def _drop_old(self, now_us: int, offsets: tuple[int | None, int | None]) -> int:
        facts = self._segments.facts(self.log_end_offset)
        start = new_log_start(facts, self.settings, now_us, *offsets) if facts else 0
        return self._drop_below(start)

    def drop(self, count: int | None = None) -> int:
        """Drop the `count` oldest segments except the active segment, or all records (None); return
        the number of dropped segments. Offsets continue; records that are not durable yet stay.

        Readers and files as in `retain`. Raises: StorageFull, StorageFailed.
        """
        if count is None and self.takes_appends and not self._segments.last.is_empty:
            self._roll(self._segments.last)
            self._mark()
        bases = self._segments.view.bases
        return self._drop_below(bases[-1 if count is None else min(count, len(bases) - 1)])

    def _drop_below(self, start: int, log_start: int | None = None) -> int:
        """Drop whole segments below an offset; the log begins at `log_start`, else with the first
        segment left.
        """
        view = self._segments.view
        # Only durable segments are dropped: the log must never end below an acknowledged offset.
        count = bisect_right(view.bases, min(start, self.durable_offset)) - 1
        if count <= 0 and log_start is None:
            return 0
        log_start = view.bases[count] if log_start is None else log_start
        self._slot.write(log_start, self.durable_offset)
        self.log_start_offset = log_start
        self._segments.show(view.segments[count:])
        self._remove_when_durable(view.segments[:count])
        return count

    def delete_below(self, offset: int) -> int:
        """Make the log begin at an offset, or at the durable offset if that is lower; return the
        number of dropped segments. Readers and files as in `retain`. Raises: StorageFull,
        StorageFailed.
        """
        start = min(offset, self.durable_offset)
        if start <= self.log_start_offset:
            return 0
        if start == self.log_end_offset and self.takes_appends and not self._segments.last.is_empty:
            self._roll(self._segments.last)
        return self._drop_below(start, start)

    def _remove_when_durable(self, segments: Sequence[Segment]) -> None:
        """Remove these segments once the slot with the new log start is durable."""
        assert self._slot.file is not None
        self._segments_to_delete += segments
        self._unsynced.hold(self._slot.file)
        self._mark()

    def _roll_expired(self, now_us: int) -> None:
        """Begin a new segment when even the newest record is too old, so that the old segment can
        go.
        """
        if self._is_expired(self._segments.last, now_us):
            self._roll(self._segments.last)
            self._mark()

    def _is_expired(self, last: Segment, now_us: int) -> bool:
        """Return True if even the newest record is too old."""
        is_closable = self.takes_appends and not last.is_empty
        return is_closable and is_too_old(last.newest_append_us, self.settings, now_us)

    def _delete_segments(self) -> None:
        with suppress(StorageFull):  # The disk became read-only: removed with the next segments.
            while self._to_delete_in_round:  # Oldest first: the rest is always contiguous.
                self._segments_to_delete[0].remove()
                del self._segments_to_delete[0]
                self._to_delete_in_round -= 1
        self._unsynced.names_changed = True
        self._committer.mark_lazy(self)

    # Compaction

    def sources(self, start: int, end: int) -> list[Source]:
        """Return the sources for a compaction of these offsets; the end is a durable batch
        boundary.
        """
        view = self._segments.view
        ends = (*view.bases[1:], self.log_end_offset)
        return [
            Source(one, max(one.base_offset, start), min(after, end))
            for one, after in zip(view.segments, ends, strict=True)
            if max(one.base_offset, start) < min(after, end)
        ]

    def closed_offset(self, appended_before_us: int) -> int:
        """Return the end of the segments, from the log start on, that take no appends, are durable,
        and have no batch appended after that time.
        """
        end_offset = self.log_start_offset
        if self._segments.view.bases:  # A log may have lost all its files.
            end_offset = self._segments.view.bases[0]
        for fact in self._segments.facts(self.log_end_offset)[:-1]:
            is_durable = fact.next_offset <= self.durable_offset
            if not is_durable or fact.newest_append_us > appended_before_us:
                break
            end_offset = fact.next_offset
        return end_offset

    def is_dirty(self, end_offset: int) -> bool:
        """Return True if the segments up to there have enough new bytes for a compaction."""
        size = new = 0
        for fact in self._segments.facts(self.log_end_offset):
            if fact.next_offset <= end_offset:
                size += fact.size_bytes
                new += fact.size_bytes if fact.next_offset > self.cleaned_offset else 0
        return new > 0 and new * PPM >= size * self.settings.min_dirty_ppm

    def show_compacted(self, writer: CompactedWriter, sources: Sequence[Segment]) -> bool:
        """Replace segments by the compacted file made from them; the segments are removed when that
        file is durable. False, with nothing done, if a segment is gone.

        Raises: StorageFull, StorageFailed.
        """
        view = self._segments.view
        first = view.number_of(sources[0].base_offset)
        if self._closed or view.segments[first : first + len(sources)] != tuple(sources):
            return False
        segment = writer.publish()
        after = view.segments[first + len(sources) :]
        self._segments.show([*view.segments[:first], segment, *after])
        self._replace(sources)
        return True

    def show_view(self, writer: CompactedWriter, views_dropped: int) -> bool:
        """Switch readers of the compacted view to this view. False, with nothing done, if the log
        is closed, or views were dropped since this view was begun.

        Raises: StorageFull, StorageFailed.
        """
        if self._closed or views_dropped != self.views_dropped:
            return False
        segment = writer.publish()
        before, self._view = self._view, CompactedView(segment, self._segments.interval_bytes)
        self._replace([] if before is None else [before.segment])
        return True

    def drop_view(self) -> None:
        """Drop the compacted view, because the view is damaged or its records must be deleted.
        After the gathering round no start finds this view or an earlier view again. Raises
        StorageFailed.
        """
        self.views_dropped += 1
        view, self._view = self._view, None
        waiting = (*self._replaced, *self._replaced_in_round)
        views = [one for one in waiting if one.name.suffix == VIEW_SUFFIX]
        if view is not None:
            views.append(view.segment)
        if not views:
            return
        self._replace(views)
        with suppress(StorageFull):  # The disk became read-only: removed with the next segments.
            for one in views:
                one.remove()

    def _take_views(self, recovered: Recovered) -> None:
        """Take over the files of an earlier run: replaced files and views."""
        interval_bytes = self._segments.interval_bytes
        self.cleaned_offset = self.log_start_offset
        for segment in self._segments.view.segments:
            if not segment.is_compacted:
                break
            self.cleaned_offset = segment.name.end_offset
        views = [one for one in recovered.views if one.name.end_offset <= self.log_end_offset]
        if views:
            self._view = CompactedView(views[0], interval_bytes)
        old = [*recovered.replaced, *(one for one in recovered.views if one not in views[:1])]
        if old:
            self._replace(old)

    def _replace(self, segments: Sequence[Segment]) -> None:
        self._replaced += segments
        self._unsynced.names_changed = True
        self._committer.mark(self)  # Not lazily: the next step of a compaction waits for this.

    def _delete_replaced(self) -> None:
        """Remove replaced files, the later files first: from the remaining names a start can tell
        that the remaining files do not count.
        """
        with suppress(StorageFull):  # The disk became read-only: removed with the next segments.
            while self._replaced_in_round:
                self._replaced_in_round[-1].remove()
                self._replaced_in_round.pop()
        self._replaced += self._replaced_in_round
        self._replaced_in_round = []
        self._unsynced.names_changed = True
        self._committer.mark_lazy(self)
