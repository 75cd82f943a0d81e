"""Compacted files of a log: segments replaced by compacted segments, and the compacted view.

The view is a file beside the log (FORMAT.md section 12) with the latest record of each key below
its end. The view only repeats records of the log, retained or not. Knows no key and no protocol.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from braidlog.storage.errors import LogClosed, StorageFull
from braidlog.storage.formats.batch import Batch
from braidlog.storage.log.compaction.sources import SegmentSource
from braidlog.storage.log.compaction.writer import CompactedWriter
from braidlog.storage.log.extent import ClosedExtent, Extent
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.log_reader import LogReader
from braidlog.storage.log.recovery import Recovered
from braidlog.storage.log.scan import BadBatch
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_names import VIEW_SUFFIX
from braidlog.storage.log.segment_reading import Want
from braidlog.storage.log.segment_set import SegmentSet
from braidlog.storage.log.unsynced import Unsynced

PPM = 1_000_000


class CompactedView:
    """A file of the latest records. Any thread reads."""

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self.segment = segment
        self.horizon = segment.name.end_offset  # Everything below was compacted.
        self._set = SegmentSet([segment], interval_bytes)
        if not segment.size:  # Of an earlier life. The next compaction begins with this file, too.
            with suppress(OSError):  # A reader will meet the error.
                segment.stat()

    def read(self, offset: int, bytes_max: int, *, wait: bool) -> list[Batch]:
        """Return batches from the batch that has `offset`, at least one. Raises BadBatch, FileGone,
        WouldBlock.
        """
        return self._set.read(Want(offset, self.horizon, bytes_max, wait))

    def close(self) -> None:
        """Close the file."""
        self._set.close()


class CompactedFiles:
    """The compacted files of a local log. Owner's thread, except for reads.

    A replaced file is removed once a round has synced the folder: the name of the compacted file is
    on disk before the replaced files are removed.
    """

    __slots__ = (
        "_extent",
        "_join_round",
        "_reader",
        "_replaced",
        "_replaced_in_round",
        "_segments",
        "_unsynced",
        "cleaned_offset",
        "view",
        "views_dropped",
    )

    def __init__(
        self,
        extent: Extent,
        segments: SegmentSet,
        reader: LogReader,
        unsynced: Unsynced,
        join_round: Callable[[], object],
    ) -> None:
        """`join_round` makes the log a member of the gathering round."""
        self.view: CompactedView | None = None
        self.cleaned_offset = 0  # As far as known, a compaction has nothing to do below.
        self.views_dropped = 0  # A view begun before the last drop has deleted records.
        self._extent = extent
        self._segments = segments
        self._reader = reader
        self._unsynced = unsynced
        self._join_round = join_round
        self._replaced: list[Segment] = []  # Removed once a round has synced the folder.
        self._replaced_in_round: list[Segment] = []  # The round under way syncs the folder.

    def take_up(self, recovered: Recovered) -> None:
        """Take over the files of an earlier run: replaced files and views."""
        self.cleaned_offset = self._extent.log_start_offset
        for segment in self._segments.view.segments:
            if not segment.is_compacted:
                break
            self.cleaned_offset = segment.name.end_offset
        end_offset = self._extent.log_end_offset
        views = [view for view in recovered.views if view.name.end_offset <= end_offset]
        if views:
            self.view = CompactedView(views[0], self._segments.interval_bytes)
        old = [*recovered.replaced, *(view for view in recovered.views if view not in views[:1])]
        if old:
            self._replace(old)

    def read(self, offset: int, bytes_max: int, *, wait: bool = True) -> list[Batch]:
        """Read as `Log.read_compacted`, even records that retention dropped. A damaged view is
        ignored.
        """
        while (view := self.view) is not None and 0 <= offset < view.horizon:
            try:
                return view.read(offset, bytes_max, wait=wait)
            except (BadBatch, OSError):
                break
            except FileGone:
                if self._extent.is_closed:
                    raise LogClosed(self._extent.folder) from None
                if self.view is view:
                    break
        return self._reader.read(offset, bytes_max, wait=wait)

    # For a compaction.

    def sources(self, start: int, end: int) -> list[SegmentSource]:
        """Return the sources for a compaction of these offsets; the end is a durable batch
        boundary.
        """
        view = self._segments.view
        ends = (*view.bases[1:], self._extent.log_end_offset)
        return [
            SegmentSource(segment, max(segment.base_offset, start), min(after, end))
            for segment, after in zip(view.segments, ends, strict=True)
            if max(segment.base_offset, start) < min(after, end)
        ]

    def closed_offset(self, appended_before_us: int) -> int:
        """Return the end of the segments, from the log start on, that take no appends, are durable,
        and have no batch appended after that time.
        """
        extent = self._extent
        end_offset = extent.log_start_offset
        if self._segments.view.bases:  # A log may have lost all its files.
            end_offset = self._segments.view.bases[0]
        for fact in self._segments.facts(extent.log_end_offset)[:-1]:
            is_durable = fact.next_offset <= extent.durable_offset
            if not is_durable or fact.newest_append_us > appended_before_us:
                break
            end_offset = fact.next_offset
        return end_offset

    def is_dirty(self, end_offset: int) -> bool:
        """Return True if the segments up to there have enough new bytes for a compaction."""
        size = new = 0
        for fact in self._segments.facts(self._extent.log_end_offset):
            if fact.next_offset <= end_offset:
                size += fact.size_bytes
                new += fact.size_bytes if fact.next_offset > self.cleaned_offset else 0
        return new > 0 and new * PPM >= size * self._extent.settings.min_dirty_ppm

    def is_overdue(self, end_offset: int, appended_before_us: int) -> bool:
        """Return True if a new batch up to there was appended before that time."""
        for fact in self._segments.facts(self._extent.log_end_offset):
            if self.cleaned_offset < fact.next_offset <= end_offset:
                return fact.newest_append_us <= appended_before_us
        return False

    def note_cleaned(self, end_offset: int) -> None:
        """Note that a compaction has nothing more to do below."""
        self.cleaned_offset = end_offset

    def show(self, writer: CompactedWriter, sources: Sequence[Segment]) -> bool:
        """Replace segments by the compacted file made from them. False, with nothing done, if a
        segment is gone.

        Raises: StorageFull, StorageFailed.
        """
        view = self._segments.view
        first = view.number_of(sources[0].base_offset)
        is_changed = view.segments[first : first + len(sources)] != tuple(sources)
        if self._extent.is_closed or is_changed:
            return False
        segment = writer.publish()
        after = view.segments[first + len(sources) :]
        self._segments.show([*view.segments[:first], segment, *after])
        self._replace(sources)
        return True

    def show_view(self, writer: CompactedWriter, views_dropped: int) -> bool:
        """Switch readers to this view. False, with nothing done, if the log is closed, or views
        were dropped since this view was begun.

        Raises: StorageFull, StorageFailed.
        """
        if self._extent.is_closed or views_dropped != self.views_dropped:
            return False
        segment = writer.publish()
        before, self.view = self.view, CompactedView(segment, self._segments.interval_bytes)
        self._replace([] if before is None else [before.segment])
        return True

    def drop_view(self) -> None:
        """Drop the compacted view, because the view is damaged or its records must be deleted.
        After the gathering round no start finds this view or an earlier view again. Raises
        StorageFailed.
        """
        self.views_dropped += 1
        view, self.view = self.view, None
        waiting = (*self._replaced, *self._replaced_in_round)
        views = [segment for segment in waiting if segment.name.suffix == VIEW_SUFFIX]
        if view is not None:
            views.append(view.segment)
        if not views:
            return
        self._replace(views)
        with suppress(StorageFull):  # The disk became read-only: removed with the next segments.
            for removed in views:
                removed.remove()

    def _replace(self, segments: Sequence[Segment]) -> None:
        self._replaced += segments
        self._unsynced.note_names()
        self._join_round()  # Not lazily: the next step of a compaction waits for this.

    # Rounds.

    def begin_round(self) -> None:
        """Note that the round that begins syncs the folder."""
        self._replaced_in_round, self._replaced = self._replaced, []

    def finish_round(self) -> bool:
        """Remove the files that were replaced before the round, the later files first: from the
        remaining names a start can tell that the remaining files do not count. True if a later
        round must sync the folder. Raises StorageFailed.
        """
        if not self._replaced_in_round:
            return False
        with suppress(StorageFull):  # The disk became read-only: removed with the next segments.
            while self._replaced_in_round:
                self._replaced_in_round[-1].remove()
                self._replaced_in_round.pop()
        self._replaced += self._replaced_in_round
        self._replaced_in_round = []
        self._unsynced.note_names()
        return True

    def close(self) -> None:
        """Close the view, and let go of the log, which is closed."""
        self._extent, self._join_round = ClosedExtent.of(self._extent), lambda: None
        if self.view is not None:
            self.view.close()
