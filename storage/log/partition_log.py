"""One partition's log: appends, reads, retention, and its part in the committer's rounds.

Appends, rounds and retention belong to one thread, the owner's; readers (`readable_log.py`) may run
in any thread beside them. Knows segments and offsets, no topic name and no protocol.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import pack as struct_pack
from time import time_ns

from braidlog.storage.errors import LogClosed, StorageFull
from braidlog.storage.formats.api import BatchFlag, BodyFormat, BodyInfo
from braidlog.storage.log.batch import (
    ABSENT_US,
    BATCH_OFFSETS_MAX,
    HEADER_BYTES,
    VERSION,
    Buffer,
    body_checksum,
    header_of,
    pack,
    pack_fields,
)
from braidlog.storage.log.committer import Committer, SyncPoint
from braidlog.storage.log.files import Files
from braidlog.storage.log.recovery import LogIdentity, Recovered
from braidlog.storage.log.reservation import RESERVE_OFFSETS, Reservation
from braidlog.storage.log.segment import Segment, SegmentHeader, new_salt
from braidlog.storage.log.segment_set import SegmentSet
from braidlog.storage.log.settings import Durability, LogSettings
from braidlog.storage.log.shrinking_log import ShrinkingLog
from braidlog.storage.log.unsynced import Unsynced
from braidlog.storage.log.watermark import SlotFile


@dataclass(slots=True, frozen=True)
class LogPlace:
    """Place of a log, and the committer that syncs it."""

    files: Files
    identity: LogIdentity
    committer: Committer
    # Called with partition id and durable offset once a full segment is durable.
    on_rolled: Callable[[int, int], None] | None = None


class PartitionLog(ShrinkingLog):
    """The log of one partition. An append is stored whole or not at all, and no offset ever names
    two records. Appends wait for no sync, reads with `wait=False` for no disk."""

    def __init__(
        self,
        place: LogPlace,
        settings: LogSettings,
        recovered: Recovered,
        slot: SlotFile,
        reservation: Reservation,
    ) -> None:
        identity = place.identity
        self.partition_id = identity.partition_id
        self.settings = settings
        self.recovery = recovered.report
        self.takes_appends = recovered.takes_appends
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.durable_offset = self._shown_offset = recovered.durable_offset
        self.owner_epoch = 0
        self._is_written_mode = settings.durability == Durability.WRITTEN
        self._files = place.files
        self._identity = identity
        self._committer = place.committer
        self._slot = slot
        self._reservation = reservation
        self._segments = SegmentSet(recovered.segments, settings.index_interval_bytes)
        self._unsynced = Unsynced(identity.folder)
        self._marked = self._was_marked = False  # For the gathering round; for any so far.
        self._sealed = False
        self._closed = False
        self._on_rolled = place.on_rolled
        self._has_rolled = False
        self._segments_to_delete: list[Segment] = []
        self._to_delete_in_round = 0
        self._replaced: list[Segment] = []
        self._replaced_in_round: list[Segment] = []
        self._view = None
        self.cleaned_offset = self.views_dropped = 0
        self._pending_limit: int | None = None
        self._slots_to_lower = 0  # Of the reservation, since `written` mode was left.
        self._begin(recovered)

    def _begin(self, recovered: Recovered) -> None:
        """Finish recovery: begin the first segment, sync the tail, fill the gap, finish an
        interrupted retention.
        """
        if self.takes_appends and not self._segments.view.segments:
            self._segments.show([self._new_segment()])
            self._mark()
        for segment in recovered.unsynced:
            self._unsynced.hold(segment.file)
            self._mark()
        if recovered.below_start:
            # Reading the slot does not make it durable, nor the segments that follow these.
            with suppress(StorageFull):  # It stays behind, which is safe.
                self._slot.write(self.log_start_offset, self.durable_offset)
            self._remove_when_durable(recovered.below_start)
            self._unsynced.hold(self._segments.view.segments[0].file)
        self._take_views(recovered)
        reserved = self._reservation.limit
        if self.takes_appends and reserved > self.log_end_offset:
            self.recovery.gap = (self.log_end_offset, reserved)
            with suppress(StorageFull):  # Appends are refused until there is room for it.
                self._fill_gap()
        if self._is_written_mode and self.takes_appends:
            self._reservation.reserve_now(self.log_end_offset)
        self._write_slot()

    def _fill_gap(self) -> None:
        """Continue above the reservation. Raises StorageFull, and then the log takes no appends."""
        self.takes_appends = True
        try:
            self.append_gap(self._reservation.limit, time_ns() // 1000)
        except StorageFull:
            self.takes_appends = False
            raise

    # Append

    def append(
        self,
        body: Sequence[Buffer],
        info: BodyInfo,
        *,
        body_format: int,
        body_version: int = 1,
        append_us: int,
        last_offset_delta: int | None = None,
        positions: Sequence[int] | None = None,
    ) -> int:
        """Store a batch with a single write; return its base offset, the log end before. # hot

        `last_offset_delta` is record_count - 1 unless given. Durable once the committer has
        finished the round that gathers now. Raises: StorageFull, with nothing changed;
        StorageFailed; DamagedLog if the log's end is damaged; LogClosed.
        """
        delta = info.record_count - 1 if last_offset_delta is None else last_offset_delta
        if not 0 <= delta < BATCH_OFFSETS_MAX:
            raise ValueError(f"a batch cannot cover {delta + 1} offsets")
        table = struct_pack(f"<{len(positions)}I", *positions) if positions else b""
        parts = [table, *body] if table else body
        base_offset = self.log_end_offset
        next_offset = base_offset + delta + 1
        body_bytes = len(body[0]) if len(body) == 1 else sum(map(len, body))
        stored_bytes = HEADER_BYTES + len(table) + body_bytes
        segment = self._segment_for(stored_bytes, next_offset, append_us)
        first_us, latest_us = info.first_publish_us, info.max_publish_us
        head = pack_fields(
            segment.salt,
            VERSION,
            body_version,
            body_format,
            info.flags,
            self.partition_id,
            self.owner_epoch,
            base_offset,
            delta,
            info.record_count,
            self.durable_offset,
            ABSENT_US if first_us is None else first_us,
            ABSENT_US if latest_us is None else latest_us,
            append_us,
            info.producer_id,
            info.producer_epoch,
            info.first_sequence,
            info.last_sequence,
            len(table),
            body_bytes,
            body_checksum(parts),
            0,
        )
        before_us = segment.max_time_us
        time_us = append_us if latest_us is None else latest_us
        file_pos = segment.append([head, *parts], stored_bytes, append_us, time_us)
        self.log_end_offset = next_offset
        if file_pos - segment.indexed_pos >= self._segments.interval_bytes:
            segment.note_in_index(base_offset, file_pos, before_us, self._segments.interval_bytes)
        self._segments.remember(next_offset, segment, file_pos + stored_bytes)
        if not self._marked:
            self._mark()
        return base_offset

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> int:
        """Store several bodies as a batch each, with a single write; return the base offset of the
        first. All batches lie in a single segment, which may become larger than others.

        Raises: as `append`, with nothing stored.
        """
        base_offset = offset = self.log_end_offset
        counts = [info.record_count for _, info in pieces]
        stored_bytes = sum(HEADER_BYTES + len(body) for body, _ in pieces)
        segment = self._segment_for(stored_bytes, base_offset + sum(counts), append_us)
        headers, parts = [], []
        place = (self.partition_id, self.owner_epoch, self.durable_offset, body_format)
        for body, info in pieces:
            header = header_of(body, info, place, base_offset=offset, append_us=append_us)
            headers.append(header)
            parts += [pack(header, segment.salt), body]
            offset = header.next_offset
        before_us = segment.max_time_us
        time_us = max(header.time_us for header in headers)
        file_pos = segment.append(parts, stored_bytes, append_us, time_us)
        self.log_end_offset = offset
        for header in headers:
            interval_bytes = self._segments.interval_bytes
            segment.note_in_index(header.base_offset, file_pos, before_us, interval_bytes)
            before_us = header.time_us if before_us is None else max(before_us, header.time_us)
            file_pos += header.stored_bytes
        self._segments.remember(offset, segment, file_pos)
        self._mark()
        return base_offset

    def _segment_for(self, stored_bytes: int, next_offset: int, append_us: int) -> Segment:
        """Return the segment that takes a batch, held for the next round."""
        if not self.takes_appends:
            self._refuse_append()
        segment = self._segments.last
        if segment.is_full_for(stored_bytes, append_us, self.settings):
            segment = self._roll(segment)
        if self._is_written_mode and next_offset > self._reservation.limit:
            self._reservation.reserve_now(next_offset)
        if segment.file not in self._unsynced.files:
            self._unsynced.hold(segment.file)
        return segment

    def _refuse_append(self) -> None:
        if self._sealed:
            raise LogClosed(self.folder)
        if self.recovery.damages:
            raise self.recovery.damages[-1].error()
        self._fill_gap()  # There is room for it now: the next append can be taken.
        raise StorageFull(f"{self.folder} had no room to go on above its reservation")

    def _roll(self, segment: Segment) -> Segment:
        """Begin a new segment at the log end. Raises StorageFull, StorageFailed."""
        following = self._new_segment()
        segment.end_index(self.log_end_offset)
        self._segments.show([*self._segments.view.segments, following])
        self._segments.note_loaded(segment)
        self._has_rolled = True
        return following

    def _new_segment(self) -> Segment:
        kind, end_offset = self._identity.kind, self.log_end_offset
        header = SegmentHeader(kind, new_salt(), self.partition_id, end_offset)
        segment = Segment.create(self._files, self.folder, header)
        self._unsynced.hold(segment.file)
        self._unsynced.names_changed = True
        return segment

    def append_gap(self, end_offset: int, append_us: int) -> None:
        """Cover the offsets from the log end up to `end_offset` with empty batches.

        Raises: as `append`.
        """
        while self.log_end_offset < end_offset:
            covered = min(end_offset - self.log_end_offset, BATCH_OFFSETS_MAX)
            self.append(
                (),
                BodyInfo(record_count=0, flags=BatchFlag.GAP),
                body_format=BodyFormat.GAP,
                append_us=append_us,
                last_offset_delta=covered - 1,
            )

    # Rounds

    def begin_sync(self) -> SyncPoint:
        """Return, for the committer, the files to sync now. Raises StorageFailed."""
        self._marked = False
        if self._is_written_mode and not self._sealed:
            self._extend_reservation()
        if self._unsynced.names_changed:
            self._replaced_in_round, self._replaced = self._replaced, []
        if self._slot.file in self._unsynced.files:
            self._to_delete_in_round = len(self._segments_to_delete)
        return self._unsynced.take(self.log_end_offset)

    def _extend_reservation(self) -> None:
        try:
            extended = self._reservation.extend(self.log_end_offset)
            if extended is not None:
                self._unsynced.hold(extended[0])
                self._pending_limit = extended[1]
        except StorageFull:
            return  # Appends go on up to the limit and are refused there.

    def finish_sync(self, point: SyncPoint) -> None:
        """Note for the committer that the point of `begin_sync` is durable. Raises
        StorageFailed.
        """
        self._unsynced.synced(point)
        if self._closed:
            return
        self.durable_offset = max(self.durable_offset, point.end_offset)
        self._shown_offset = max(self._shown_offset, self.durable_offset)
        if self._has_rolled and self._on_rolled is not None:
            self._has_rolled = False
            self._on_rolled(self.partition_id, self.durable_offset)
        if self._slots_to_lower and self.durable_offset >= self._shown_offset:
            self._lower_reservation()
        if self._pending_limit is not None:
            self._confirm_reservation(self._pending_limit)
        if self._to_delete_in_round:
            self._delete_segments()
        if self._replaced_in_round:
            self._delete_replaced()
        self._write_slot()

    def _confirm_reservation(self, limit: int) -> None:
        try:
            self._reservation.confirm(limit)
        except StorageFull:
            return  # A later round tries again. Until then appends go on up to the old limit.
        self._pending_limit = None

    def _write_slot(self) -> None:
        self._unsynced.write_slot(self._slot, self.log_start_offset, self.durable_offset)

    def _mark(self) -> None:
        if self._marked:
            return
        self._marked = self._was_marked = True
        if self._is_written_mode:
            self._committer.mark_lazy(self)
        else:
            self._committer.mark(self)

    # Ending

    @property
    def was_used(self) -> bool:
        """True if anything was written since this start."""
        return self._was_marked

    def alter(self, settings: LogSettings) -> None:
        """Apply other settings. Changing to `written` waits for the disk, unless `reserve_ahead`
        already did. When a log becomes `synced`, what it wrote before is durable with the gathering
        round.

        Raises: StorageFull, with nothing changed; StorageFailed.
        """
        if settings.durability != self.settings.durability:
            if settings.durability == Durability.WRITTEN:
                self._become_written()
            else:
                self._become_synced()
        self._segments.interval_bytes = settings.index_interval_bytes
        self.settings = settings
        self._is_written_mode = settings.durability == Durability.WRITTEN

    def keep_reservation(self) -> None:
        """Leave the reservation to `reserve_ahead` from now on. Owner's thread."""
        self._slots_to_lower = 0

    def reserve_ahead(self) -> None:
        """Reserve what `written` mode wants, before `alter`; for any thread, after
        `keep_reservation`. Waits for the disk. Raises: StorageFull, StorageFailed, FileGone.
        """
        self._reservation.reserve_now(self.log_end_offset)

    def _become_written(self) -> None:
        self.keep_reservation()
        if self._reservation.limit < self.log_end_offset + RESERVE_OFFSETS // 2:
            self._reservation.reserve_now(self.log_end_offset)

    def _become_synced(self) -> None:
        """Keep the shown offset; the next round makes it durable, and then the reservation is
        returned.
        """
        self._shown_offset = self.log_end_offset
        self._pending_limit = None
        self._slots_to_lower = 2
        self._marked = True  # A lazy mark is not enough for a synced append.
        self._committer.mark(self)

    def _lower_reservation(self) -> None:
        """Write into a slot that nothing above the durable offset was given out, and into the other
        slot after the next round: a write torn by a power cut then harms one slot at most.
        """
        with suppress(StorageFull):  # The slot stays unchanged: a start after a crash leaves a gap.
            file = self._reservation.lower(self.durable_offset)
            self._slots_to_lower -= 1
            if self._slots_to_lower and file is not None:
                self._unsynced.hold(file)
                self._committer.mark_lazy(self)

    def seal(self) -> None:
        """Prepare a clean stop after a commit, so that the next start is trivial; write nothing if
        nothing has changed since this start.

        A second commit makes the result durable; then `close`. Appends get LogClosed from now on.
        Raises: StorageFull, StorageFailed.
        """
        if not self.takes_appends:
            return
        self.takes_appends = False
        self._sealed = True
        segment = self._segments.last
        is_new = segment.end_index(self.log_end_offset)
        self._write_slot()
        if not (is_new or self._was_marked or self._reservation.is_used):
            return
        self._reservation.settle(self.durable_offset)
        for file in (segment.index.file, self._slot.file):
            if file is not None:
                self._unsynced.hold(file)
        self._unsynced.names_changed = True
        self._marked = True
        self._committer.mark(self)

    def close(self) -> None:
        """Close the files without a sync; readers and appends get LogClosed from now on."""
        self._closed = self._sealed = True
        self.takes_appends = False
        self._committer.forget(self)
        self._unsynced.close()
        self._segments.close()
        if self._view is not None:
            self._view.close()
        self._slot.close()
        self._reservation.close()
