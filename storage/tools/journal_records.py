"""The records of a journal that a start would replay, gathered from a survey; changes nothing.

The rule is FORMAT.md section 9: the newest whole snapshot, and the records after it. Knows no
record.
"""

from collections.abc import Callable, Iterable, Iterator

from braidlog.storage.errors import DamagedLog
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.journal.log import unpack_records
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import FLAG_SNAPSHOT
from braidlog.storage.tools.survey import Good, Survey


class NoSnapshotEnd(Exception):
    """A snapshot that others rely on has no end."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.path}: its snapshot has no end")
        self.segment = segment


class JournalRecords:
    """Takes in every batch of a journal, then says which of their records count."""

    def __init__(self) -> None:
        self._bodies: dict[int, list[tuple[Good, bytes]]] = {}
        self._ends: dict[int, int] = {}
        self._last_place = ("", 0, 0)  # Path, file position and offset of the record given last.

    def batch(self, good: Good, body: bytes) -> None:
        """Take in the next good batch."""
        base, header = good.segment.base_offset, good.header
        self._bodies.setdefault(base, []).append((good, body))
        if header.flags & BatchFlag.MARKER:
            self._ends.setdefault(base, header.base_offset)

    def damage(self, reason: str) -> DamagedLog:
        """The error for the record that `records` gave last."""
        return DamagedLog(*self._last_place, reason)

    def start(self, survey: Survey) -> int:
        """Return where a replay begins: the base offset of the newest whole snapshot, or of the
        journal.

        Raises: NoSnapshotEnd.
        """
        segments = [
            segment for segment in survey.segments if segment.base_offset < survey.end_offset
        ]
        for segment in reversed(segments):
            if segment.header is None or not segment.header.flags & FLAG_SNAPSHOT:
                continue
            if self._ends.get(segment.base_offset, survey.end_offset) < survey.end_offset:
                return segment.base_offset
            if segment is not segments[-1] or len(segments) == 1:
                raise NoSnapshotEnd(segment)
        return survey.log_start_offset

    def forget_superseded(self, survey: Survey, start: int) -> None:
        """Remove from a survey the hole before a snapshot that is the first segment.

        The slot may still name an older start; its records are not needed any more.
        """
        if not survey.holes or not survey.segments or survey.segments[0].base_offset != start:
            return
        first = survey.holes[0]
        if first.segment is None and first.next_offset == start:
            survey.holes.pop(0)
            survey.log_start_offset = start

    def records(self, survey: Survey, start: int) -> Iterator[bytes]:
        """The records from `start` on, without those of a snapshot that has no end."""
        for base, bodies in sorted(self._bodies.items()):
            if base < start or self._is_unfinished(survey, base):
                continue
            for good, body in bodies:
                offset = good.header.base_offset
                if offset >= survey.end_offset:
                    continue
                for record_offset, record in enumerate(unpack_records(memoryview(body)), offset):
                    self._last_place = (good.segment.path, good.file_pos, record_offset)
                    yield record

    def _is_unfinished(self, survey: Survey, base: int) -> bool:
        (header,) = [segment.header for segment in survey.segments if segment.base_offset == base]
        assert header is not None, "its batches were good"
        is_snapshot = bool(header.flags & FLAG_SNAPSHOT)
        return is_snapshot and self._ends.get(base, survey.end_offset) >= survey.end_offset


class StoredJournal:
    """Records that catalogue or cursors replay as if from their journal. Implements `Journal`.

    Appended records are dropped; snapshot records are kept in `snapshots`.
    """

    size_bytes = 0
    snapshot_bytes = 0

    def __init__(
        self, records: Iterable[bytes], damage: Callable[[str], DamagedLog] | None = None
    ) -> None:
        """`damage` makes the error for the record that was taken last, if its place is known."""
        self._records = records
        self._damage = damage
        self.snapshots: list[bytes] = []
        self.last_place = 0  # Not known: nothing asks a tool's journal for places.

    @property
    def next_place(self) -> int:
        """Not known, as `last_place`."""
        return 0

    @property
    def replayed_place(self) -> int:
        """Not known, as `last_place`."""
        return 0

    def replay(self) -> Iterator[bytes]:
        yield from self._records

    def damage(self, reason: str) -> DamagedLog:
        """The error for the record given last."""
        return DamagedLog("a journal", 0, 0, reason) if not self._damage else self._damage(reason)

    def append(self, body: bytes) -> int:
        """Forget the record."""
        return 0

    def append_lazy(self, body: bytes) -> None:
        """Forget the record."""

    def snapshot(self, bodies: Iterable[bytes]) -> None:
        """Keep these records."""
        self.snapshots = list(bodies)
