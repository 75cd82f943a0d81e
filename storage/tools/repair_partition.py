"""Repairs a partition's damaged log: gaps in place of lost records, everything else unchanged.

Offsets are kept. A damaged segment is copied to `set-aside`, then rewritten without the bad bytes;
in place of a missing file a new file holds the gap. Knows no topic and no journal.
"""

from collections.abc import Sequence

from braidlog.storage.log.files import Files
from braidlog.storage.log.reservation import RESERVE_OFFSETS, OffsetReservation
from braidlog.storage.log.segment import Segment, empty_header
from braidlog.storage.log.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    named_header,
    new_salt,
)
from braidlog.storage.tools.repair_step import RepairPlan, RepairStep, offsets_text
from braidlog.storage.tools.rewriting import SegmentWriter, SetAside
from braidlog.storage.tools.survey import Hole, Survey


class PartitionRepair:
    """The repair of a log, planned from its survey."""

    def __init__(self, files: Files, aside: SetAside, name: str, survey: Survey) -> None:
        self._files = files
        self._aside = aside
        self._name = name
        self._survey = survey
        self._identity = survey.identity

    def plan(self, plan: RepairPlan, *, first_free: int) -> None:
        """Add the needed steps. `first_free` is the lowest offset that, as far as others know, was
        never given out: for a log without segments and slot, or with a foreign end.
        """
        survey = self._survey
        if not survey.segments:
            self._plan_beginning(plan, first_free)
            return
        for hole in survey.holes:
            if hole.is_foreign and hole.end_offset >= survey.end_offset:
                # The lost content is unknown: offsets that readers saw must not be used again.
                hole.next_offset = max(hole.end_offset, first_free)
        refused = [hole for hole in survey.holes if hole.overlaps or hole.is_newer]
        for hole in refused:
            why = "a later version of this program wrote it" if hole.is_newer else hole.reason
            place = f"{hole.path} at byte {hole.file_pos}"
            plan.refusals.append(f"{self._name}: {place}: {why}; nothing of this log is changed")
        if not refused:
            self._plan_holes(plan)

    def _plan_holes(self, plan: RepairPlan) -> None:
        segments = {segment.base_offset: segment for segment in self._survey.segments}
        by_segment: dict[int, list[Hole]] = {}
        for hole in self._survey.holes:
            if hole.segment is not None:
                by_segment.setdefault(hole.segment.base_offset, []).append(hole)
            else:  # A segment of that name, if any, has only its header.
                plan.steps.append(self._step_for_missing(hole))
        for base, holes in by_segment.items():
            plan.steps.append(self._step_for_segment(segments[base], holes))

    def _plan_beginning(self, plan: RepairPlan, first_free: int) -> None:
        survey = self._survey
        known = bool(survey.slot.sequence)
        base = survey.log_start_offset if known else first_free
        end = survey.proven if known else first_free
        lines = [f"{self._name}: all records are lost, there is no segment file"]
        if not known:
            lines.append(f"  the log begins again at offset {base}, above all that is known of it")

        def apply() -> None:
            self._write_gap(base, base, end)

        plan.steps.append(RepairStep(self._name, lines, apply))

    def _step_for_missing(self, hole: Hole) -> RepairStep:
        next_offset = hole.end_offset
        lines = [self._loss(hole), "  a new segment file covers them with a gap"]
        return RepairStep(
            self._name, lines, lambda: self._write_gap(hole.offset, hole.offset, next_offset)
        )

    def _write_gap(self, base: int, offset: int, next_offset: int) -> None:
        """Write a segment that holds nothing but a gap."""
        identity = self._identity
        header = SegmentHeader(identity.kind, new_salt(), identity.partition_id, base)
        header = named_header(header, self._files)
        with SegmentWriter(self._files, identity.folder, header) as writer:
            writer.gap(offset, next_offset)

    def _step_for_segment(self, segment: Segment, holes: Sequence[Hole]) -> RepairStep:
        lines = [self._loss(hole) for hole in holes]
        lines.append(f"  {segment.path} is copied to set-aside and rewritten")
        return RepairStep(self._name, lines, lambda: self._rewrite(segment, holes))

    def _loss(self, hole: Hole) -> str:
        offsets = offsets_text(hole.offset, hole.end_offset)
        place = f"{hole.path} at byte {hole.file_pos}: {hole.reason}"
        if hole.header is not None:
            return f"{self._name}: nothing is lost, the segment's header is written again ({place})"
        count = hole.end_offset - hole.offset if hole.records is None else hole.records
        records = f"{'at most ' if hole.records is None else ''}{count} records"
        return f"{self._name}: {offsets} are lost, {records} ({place})"

    def _rewrite(self, segment: Segment, holes: Sequence[Hole]) -> None:
        """Rewrite a segment: its good batches unchanged, gaps in place of bad bytes."""
        self._aside.copy(segment.path, f"{segment.partition_id}.{segment.name.file_name}")
        is_lost = holes[0].segment is not None and holes[0].file_pos == 0 and not holes[0].header
        identity = self._identity
        header = named_header(empty_header(segment, new_salt()), self._files)
        if not is_lost:
            assert segment.header is not None, "its batches were found with it"
            header = segment.header
        newest_us = segment.newest_append_us
        with SegmentWriter(self._files, identity.folder, header, newest_us, segment.path) as writer:
            pos = SEGMENT_HEADER_BYTES
            for hole in holes:
                if hole.header is not None:
                    continue
                writer.copy(segment, pos, max(hole.file_pos, pos))
                writer.gap(hole.offset, hole.end_offset)
                pos = hole.end_pos
            writer.copy(segment, pos, segment.size)
        segment.close()


class ReservationRepair:
    """A lost reservation: nothing says which offsets were given out above the log's end."""

    def __init__(self, files: Files, aside: SetAside, name: str, survey: Survey) -> None:
        self._files = files
        self._aside = aside
        self._name = name
        self._survey = survey

    def step(self, path: str) -> RepairStep:
        """Reserve as much as can have been given out, and more."""
        lines = [
            f"{self._name}: {path}: the reservation is lost",
            "  offsets go on far above the log's end, behind a gap; no record is lost by it",
        ]
        return RepairStep(self._name, lines, lambda: self._apply(path))

    def _apply(self, path: str) -> None:
        identity, survey = self._survey.identity, self._survey
        self._aside.copy(path, f"{identity.partition_id}.reserved")
        reservation = OffsetReservation(self._files, identity.folder, identity.partition_id)
        # A reservation reaches at most RESERVE_OFFSETS above the log end of the sync before.
        end = max(survey.end_offset, survey.proven)
        reservation.reserve_now(end + RESERVE_OFFSETS)
        reservation.close()
