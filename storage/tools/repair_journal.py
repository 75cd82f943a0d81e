"""Repair of a damaged journal: the changes that can still be replayed become a new snapshot.

The old segments are moved to `set-aside` once that snapshot is durable. Changes that depend on a
lost change are lost too, and are reported. Knows journals and their content, no partition's log.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.files import Files
from braidlog.storage.log.layout import ALL_JOURNAL_KINDS
from braidlog.storage.log.recovery import LogIdentity
from braidlog.storage.log.segment import segment_bases, segment_path
from braidlog.storage.log.segment_header import FLAG_SNAPSHOT, SegmentHeader, named_header, new_salt
from braidlog.storage.log.watermark import WATERMARK_MAGIC, WATERMARK_NAME, SlotFile
from braidlog.storage.tools.journal_records import JournalRecords, NoSnapshotEnd, StoredJournal
from braidlog.storage.tools.log_check import LogCheck
from braidlog.storage.tools.repair_step import RepairStep, offsets_text
from braidlog.storage.tools.rewriting import SegmentWriter, SetAside
from braidlog.storage.tools.survey import Survey

# Lost changes that are reported individually; any more are only counted.
TOLD_MAX = 10


class JournalRepair:
    """A journal in its present state, and the repair of its damage.

    `journal` replays the readable changes; `lost` takes the changes that a replay leaves out. Only
    after that replay is it known if the journal is damaged.
    """

    def __init__(self, files: Files, data_dir: str, name: str) -> None:
        """Survey the journal; a missing journal counts as all damage. Raises: StorageFailed."""
        self.name = name
        self._files = files
        self._data_dir = data_dir
        self._folder = os.path.join(data_dir, name)
        self._identity = LogIdentity(self._folder, ALL_JOURNAL_KINDS[name], 1)
        records = JournalRecords()
        check = LogCheck(files, self._identity, name, running=False)
        self.survey = check.run(lambda size: None, records.batch)
        self._unended: NoSnapshotEnd | None = None
        self._start = self.survey.log_start_offset
        try:
            self._start = records.start(self.survey)
        except NoSnapshotEnd as error:
            self._unended = error
        with suppress(NoSnapshotEnd):  # A snapshot without an end supersedes nothing.
            records.forget_superseded(self.survey, records.start(self.survey))
        self._left_out: list[DamagedLog] = []
        self.journal = StoredJournal(records.records(self.survey, self._start), records.damage)
        self.lost: Callable[[DamagedLog], None] = self._left_out.append

    @property
    def is_damaged(self) -> bool:
        """True if a start would refuse the journal."""
        return bool(self.survey.holes or self._left_out) or self._unended is not None

    @property
    def loses(self) -> bool:
        """True if records that a start needs are gone."""
        if self._unended is not None or self._left_out or not self.survey.segments:
            return True
        return any(
            hole.end_offset > self._start and hole.header is None for hole in self.survey.holes
        )

    @property
    def refusals(self) -> list[str]:
        """Reasons why this journal cannot be repaired; empty if repair is possible."""
        return [
            f"{self.name}: {hole.path} at byte {hole.file_pos}: {hole.reason}; nothing is changed"
            for hole in self.survey.holes
            if hole.overlaps or hole.is_newer
        ]

    def step(
        self, aside: SetAside, more_lines: Sequence[str] = (), older: str | None = None
    ) -> RepairStep:
        """Return the step that rewrites the journal from `journal.snapshots`. `older` says why a
        journal is older than other files.
        """
        lines = [f"{self.name}: {older}"] if older else []
        if self.is_damaged:
            lines += self._losses()
        lines += more_lines
        lines.append("  what is left is written as a new snapshot; the old files go to set-aside")
        return RepairStep(self.name, lines, lambda: self._apply(aside))

    def _losses(self) -> list[str]:
        lines = []
        for hole in self.survey.holes:
            offsets = offsets_text(hole.offset, hole.end_offset)
            place = f"{hole.path} at byte {hole.file_pos}: {hole.reason}"
            if not self.survey.segments:
                lines.append(f"{self.name}: everything in it is lost ({place})")
            elif hole.header is not None or hole.end_offset <= self._start:
                lines.append(f"{self.name}: nothing is lost by this ({place})")
            else:
                lines.append(f"{self.name}: the changes at {offsets} are lost ({place})")
        if self._unended is not None:
            lines.append(f"{self._unended}: what the snapshot would have said further is lost")
        if not lines:
            lines.append(f"{self.name}: changes that cannot be read are lost")
        shown = self._left_out[:TOLD_MAX]
        lines += [f"  with them goes: {record.reason} (offset {record.offset})" for record in shown]
        if len(self._left_out) > TOLD_MAX:
            lines.append(f"  and {len(self._left_out) - TOLD_MAX} more changes")
        return lines

    def _apply(self, aside: SetAside) -> None:
        files, identity = self._files, self._identity
        if not os.path.isdir(self._folder):
            files.make_folder(self._folder)
            files.sync_folder(self._data_dir)
        bases = segment_bases(files.names(self._folder))
        survey: Survey = self.survey
        base = max(survey.end_offset, survey.proven, *(base_offset + 1 for base_offset in bases), 0)
        header = SegmentHeader(identity.kind, new_salt(), 1, base, FLAG_SNAPSHOT)
        with SegmentWriter(files, self._folder, named_header(header, files)) as writer:
            end = writer.snapshot(self.journal.snapshots)
        for old in bases:
            aside.move(segment_path(self._folder, old), f"{self.name}.{old:020d}.log")
        slot_path = os.path.join(self._folder, WATERMARK_NAME)
        slot = SlotFile(files, slot_path, WATERMARK_MAGIC, identity.kind, 1)
        slot.write(base, end)
        assert slot.file is not None, "it was just written"
        slot.file.datasync()
        slot.close()
        files.sync_folder(self._folder)
