"""A compaction of a log, in steps: of its closed segments (Kafka's `cleanup.policy=compact`), or
into a view beside the log (Pulsar's compaction).

The steps run in any thread. The owner's thread must publish each writer that a step yields
(`publish`), and the file must be durable before the next step. FORMAT.md section 12.
"""

import abc
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from braidlog.storage.formats.record import Record
from braidlog.storage.log.compaction.key_scan import KEYS_MAX, KeyScan, ScanResult
from braidlog.storage.log.compaction.rewriting import rewrite
from braidlog.storage.log.compaction.sources import SegmentSource
from braidlog.storage.log.compaction.writer import CompactedWriter
from braidlog.storage.log.files import Files
from braidlog.storage.log.log import Log
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import (
    FLAG_COMPACTED,
    KIND_PARTITION,
    SegmentHeader,
    new_salt,
)
from braidlog.storage.log.segment_names import VIEW_SUFFIX, SegmentName

US_PER_MS = 1000


@dataclass(slots=True)
class Done:
    """Results of a compaction, for metrics and the admin API."""

    read_bytes: int = 0  # Of the files that were replaced, or that a view was made from.
    written_bytes: int = 0
    published: int = 0
    walks: int = 0


class Compaction(abc.ABC):
    """The common part of both kinds of compaction."""

    drops_keyless: bool

    def __init__(self, log: Log, files: Files, keys_max: int = KEYS_MAX) -> None:
        self.log = log
        self.done = Done()
        self.sources: list[SegmentSource] = []
        self._files = files
        self._keys_max = keys_max
        self._interval_bytes = log.settings.index_interval_bytes

    def steps(self) -> Generator[CompactedWriter | None, None, None]:
        """Do the work step by step. A writer is a finished file: call `publish` with it.

        Closing the iterator gives up, and leaves nothing behind except published files. Raises:
        Fault, FileGone, StorageFull, StorageFailed.
        """
        for source in self.sources:
            source.segment.load()
        scan = KeyScan(self.sources, self, self._interval_bytes, self._keys_max)
        for _ in scan.run():
            yield None
        self.done.walks = scan.walks
        for sources, header, name in self._outputs(scan.result):
            writer = CompactedWriter(
                self._files, self.log.folder, name, header, self._interval_bytes
            )
            try:
                for _ in rewrite(sources, scan.result.removed, writer, self._interval_bytes):
                    yield None
                yield writer
            finally:
                writer.abandon()
            if writer.segment is not None:
                writer.segment.save_index()
                self.done.read_bytes += sum(source.size for source in sources)
                self.done.written_bytes += writer.size
                self.done.published += 1

    @abc.abstractmethod
    def publish(self, writer: CompactedWriter) -> bool:
        """Show the file that a step has written. Owner's thread. Return False if the log has
        changed: then give up.

        Raises: StorageFull, StorageFailed.
        """

    @abc.abstractmethod
    def is_tombstone(self, record: Record) -> bool:
        """As `Rules.is_tombstone`."""

    @abc.abstractmethod
    def drops_tombstone(self, offset: int) -> bool:
        """As `Rules.drops_tombstone`."""

    @abc.abstractmethod
    def _outputs(
        self, scan: ScanResult
    ) -> Iterator[tuple[Sequence[SegmentSource], SegmentHeader, SegmentName]]:
        """Yield the files to write, in order: their sources, header and name."""

    def _header(self, name: SegmentName, below: int = 0, since_us: int = 0) -> SegmentHeader:
        salt, number = new_salt(), self.log.partition_id
        place = (KIND_PARTITION, salt, number, name.base_offset, FLAG_COMPACTED)
        return SegmentHeader(*place, name.end_offset, below, since_us)


class ViewCompaction(Compaction):
    """Makes the compacted view of everything that is durable now."""

    drops_keyless = True  # As Apache Pulsar does (topicCompactionRetainNullKey=false).

    def __init__(self, log: Log, files: Files, keys_max: int = KEYS_MAX) -> None:
        """Owner's thread."""
        super().__init__(log, files, keys_max)
        self.horizon = log.durable_offset
        self._views_dropped = log.compacted.views_dropped
        view = log.compacted.view
        start = log.log_start_offset
        self._generation = 1
        if view is not None:
            self.sources.append(SegmentSource(view.segment, 0, view.horizon))
            start = max(start, view.horizon)
            self._generation = view.segment.name.generation + 1
        self.sources += log.compacted.sources(start, self.horizon)

    @property
    def is_needless(self) -> bool:
        """True if there is nothing new."""
        view = self.log.compacted.view
        return self.horizon <= (view.horizon if view is not None else 0)

    def is_tombstone(self, record: Record) -> bool:
        """A message without a payload."""
        return not record.value

    def drops_tombstone(self, offset: int) -> bool:
        """Always: it can still be read in the log itself."""
        return True

    def _outputs(
        self, scan: ScanResult
    ) -> Iterator[tuple[Sequence[SegmentSource], SegmentHeader, SegmentName]]:
        name = SegmentName(0, self._generation, self.horizon, VIEW_SUFFIX)
        yield self.sources, self._header(name), name

    def publish(self, writer: CompactedWriter) -> bool:
        return self.log.compacted.show_view(writer, self._views_dropped)


class LogCompaction(Compaction):
    """Compacts the closed segments of a log, from its start up to an offset, in place."""

    drops_keyless = False  # Nothing replaces them. Kafka's own clients cannot send them.

    def __init__(
        self,
        log: Log,
        files: Files,
        now_us: int,
        end_offset: int,
        keys_max: int = KEYS_MAX,
        *,
        aged_us: int | None = None,
    ) -> None:
        """Owner's thread. `end_offset` is where a segment begins, at or below the durable offset.
        `aged_us`: the time that the age of tombstones is counted from, if not `now_us`.
        """
        super().__init__(log, files, keys_max)
        self.end_offset = end_offset
        self.sources += log.compacted.sources(log.segments()[0][0], end_offset)
        self._now_us = now_us
        self._aged_us = now_us if aged_us is None else aged_us
        self._delay_us = log.settings.delete_retention_ms * US_PER_MS

    def is_tombstone(self, record: Record) -> bool:
        """A record without a value."""
        return record.value is None

    def drops_tombstone(self, offset: int) -> bool:
        """Return True once readers had `delete_retention_ms` to see the tombstone as the latest
        record of its key.
        """
        at = bisect_right(self.sources, offset, key=attrgetter("start")) - 1
        source = self.sources[max(at, 0)]
        return self._is_expired(source.segment) and offset < _header_of(source).tombstones_below

    def _is_expired(self, segment: Segment) -> bool:
        header = segment.header
        if header is None or not header.tombstones_below:
            return False
        return self._aged_us - header.tombstones_us >= self._delay_us

    def _outputs(
        self, scan: ScanResult
    ) -> Iterator[tuple[Sequence[SegmentSource], SegmentHeader, SegmentName]]:
        for group in grouped(self.sources, self.log.settings.segment_bytes):
            if self._is_worth_it(group, scan):
                generation = 1 + max(source.segment.name.generation for source in group)
                name = SegmentName(group[0].start, generation, group[-1].end)
                yield group, self._header(name, *self._tombstones(group, scan)), name

    def _is_worth_it(self, group: Sequence[SegmentSource], scan: ScanResult) -> bool:
        """Return True if there is anything to leave out, to join, or to note about tombstones."""
        start, end = group[0].start, group[-1].end
        if len(group) > 1 or scan.removed.has_any(start, end):
            return True
        below, _ = self._pending(group, scan)
        return scan.tombstones.has_any(start, end) and not below

    def _tombstones(self, group: Sequence[SegmentSource], scan: ScanResult) -> tuple[int, int]:
        """(offset, time): tombstones below the offset are the latest of their keys since then."""
        start, end = group[0].start, group[-1].end
        if not scan.tombstones.has_any(start, end):
            return 0, 0
        below, since_us = self._pending(group, scan)
        return (below, since_us) if below else (end, self._now_us)

    def _pending(self, group: Sequence[SegmentSource], scan: ScanResult) -> tuple[int, int]:
        """Return the header fields of a group about tombstones that stay; (0, 0) if none stay.

        If other files of the group have tombstones below the same offset, the time is now.
        """
        pending = [
            source
            for source in group
            if scan.tombstones.has_any(source.start, _header_of(source).tombstones_below)
            and not self._is_expired(source.segment)
        ]
        if not pending:
            return 0, 0
        below = max(_header_of(source).tombstones_below for source in pending)
        others = [source for source in group if source not in pending]
        if any(scan.tombstones.has_any(other.start, min(other.end, below)) for other in others):
            return below, self._now_us
        return below, max(_header_of(source).tombstones_us for source in pending)

    def publish(self, writer: CompactedWriter) -> bool:
        start, end = writer.name.base_offset, writer.name.end_offset
        segments = [source.segment for source in self.sources if start <= source.start < end]
        return self.log.compacted.show(writer, segments)


def grouped(sources: Sequence[SegmentSource], bytes_max: int) -> list[list[SegmentSource]]:
    """Return groups of neighbours that together have at most `bytes_max`; a larger
    source is alone.
    """
    groups: list[list[SegmentSource]] = []
    size = 0
    for source in sources:
        if groups and size + source.size <= bytes_max:
            groups[-1].append(source)
            size += source.size
        else:
            groups.append([source])
            size = source.size
    return groups


def _header_of(source: SegmentSource) -> SegmentHeader:
    header = source.segment.header
    assert header is not None, "loaded before the scan"
    return header
