"""A partition's log in local segments: appends, and its part in the committer's rounds.

The log owns the offsets; each part has a single job. `LogReader` reads, `Trimmer` drops records at
the log start, `CompactedFiles` replaces segments, `WrittenMode` reserves offsets, and `Rounds` make
the segments durable. Knows segments and offsets, no topic name and no protocol.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from struct import pack as struct_pack
from time import time_ns
from typing import NoReturn

from braidlog.storage.errors import LogClosed, StorageFull
from braidlog.storage.formats.api import OFFSET_MAX, BodyInfo, WriteAtOnce, WrittenBatch
from braidlog.storage.formats.batch import (
    BATCH_OFFSETS_MAX,
    HEADER_BYTES,
    VERSION,
    Buffer,
    head_of,
    header_of,
    pack,
)
from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.log.compacted_files import CompactedFiles
from braidlog.storage.log.gaps import append_gap
from braidlog.storage.log.log_place import LogPlace
from braidlog.storage.log.log_reader import LogReader
from braidlog.storage.log.recovery import Recovered
from braidlog.storage.log.reservation import OffsetReservation
from braidlog.storage.log.rounds import Rounds
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import SegmentHeader, new_salt
from braidlog.storage.log.segment_set import SegmentSet
from braidlog.storage.log.settings import Durability, LogSettings
from braidlog.storage.log.trimming import Trimmer
from braidlog.storage.log.written_mode import WrittenMode


class LocalLog:
    """A `Log` of local segments. Appends wait for no sync, reads with `wait=False` for no disk.

    Implements `RoundParticipant` and `Trimmed`.
    """

    __slots__ = (
        "_active",
        "_has_rolled",
        "_is_marked",
        "_is_sealed",
        "_is_written_mode",
        "_place",
        "_reader",
        "_rounds",
        "_shown_offset",
        "_unsynced",
        "_was_marked",
        "_written",
        "batch_before",
        "bytes_between",
        "compacted",
        "delete_below",
        "drop",
        "drop_below",
        "durable_offset",
        "is_closed",
        "log_end_offset",
        "log_start_offset",
        "offset_at_or_after",
        "owner_epoch",
        "partition_id",
        "places_from",
        "read",
        "read_compacted",
        "read_in_place",
        "recovery",
        "remember_within",
        "retain",
        "segment_set",
        "settings",
        "takes_appends",
        "undated",
    )

    has_records = True  # Rounds with this log have records (`Publisher.wait_s`).

    def __init__(
        self,
        place: LogPlace,
        settings: LogSettings,
        recovered: Recovered,
        rounds: Rounds,
        reservation: OffsetReservation,
    ) -> None:
        """`begin` finishes the recovery of a log whose last segment accepts appends. Without
        `begin` all segments are only read, and the first append begins a segment.
        """
        self.partition_id = place.identity.partition_id
        self.owner_epoch = place.owner_epoch
        self.settings = settings
        self.recovery = recovered.report
        self.takes_appends = recovered.takes_appends
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        # In `synced` mode records below the shown offset may be delivered; it never decreases.
        self.durable_offset = self._shown_offset = recovered.durable_offset
        self.is_closed = self._is_sealed = False
        self._is_written_mode = settings.durability == Durability.WRITTEN
        self._place = place
        self._rounds = rounds
        self._unsynced = rounds.unsynced
        self._written = WrittenMode(reservation, rounds.unsynced)
        self._is_marked = self._was_marked = False  # For the gathering round; for any so far.
        self._has_rolled = False
        self._active: Segment | None = None  # Takes the appends.
        segments = self.segment_set = SegmentSet(recovered.segments, settings.index_interval_bytes)
        reader = self._reader = LogReader(self, segments)
        self.read = reader.read
        self.read_in_place = reader.read_in_place
        self.batch_before = reader.batch_before
        self.offset_at_or_after = reader.offset_at_or_after
        self.bytes_between = reader.bytes_between
        self.places_from = reader.places_from
        self.remember_within = segments.remember_within
        self.compacted = CompactedFiles(self, segments, reader, self._unsynced, self._join_round)
        self.read_compacted = self.compacted.read
        trimmer = Trimmer(self, segments)
        self.retain, self.undated = trimmer.retain, trimmer.undated
        self.drop, self.drop_below = trimmer.drop, trimmer.drop_below
        self.delete_below = trimmer.delete_below

    def begin(self, recovered: Recovered) -> None:
        """Finish recovery: begin the first segment, sync the tail, fill the gap, finish an
        interrupted retention. Raises StorageFull, StorageFailed.
        """
        if self.takes_appends:
            if not self.segment_set.view.segments:
                self.segment_set.show([self._new_segment()])
                self._mark()
            self._active = self.segment_set.last
        for segment in recovered.unsynced:
            self._unsynced.hold(segment.file)
            self._mark()
        if recovered.below_start:
            # Reading the slot does not make it durable, nor the segments that follow these.
            with suppress(StorageFull):  # It stays behind, which is safe.
                self._rounds.move_start(self.log_start_offset, self)
            self._rounds.drop(recovered.below_start)
            self._mark()
            self._unsynced.hold(self.segment_set.view.segments[0].file)
        self.compacted.take_up(recovered)
        reserved = self._written.reserved_offset
        if self.takes_appends and reserved > self.log_end_offset:
            self.recovery.note_gap(self.log_end_offset, reserved)
            with suppress(StorageFull):  # Appends are refused until the gap has room.
                self._fill_gap()
        if self._is_written_mode and self.takes_appends:
            self._written.reserve_ahead(self.log_end_offset)
        self._rounds.note(self)

    def _fill_gap(self) -> None:
        """Continue above the reservation. Raises StorageFull, and then the log takes no appends."""
        self.takes_appends = True
        try:
            append_gap(self, self._written.reserved_offset, time_ns() // 1000)
        except StorageFull:
            self.takes_appends = False
            raise

    # Extent

    @property
    def folder(self) -> str:
        """Folder of the segment files."""
        return self._place.identity.folder

    @property
    def high_watermark(self) -> int:
        """Offset below which records may be delivered."""
        return self.log_end_offset if self._is_written_mode else self._shown_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return self.segment_set.size_bytes

    @property
    def was_used(self) -> bool:
        """True if anything was written since this start."""
        return self._was_marked

    def segments(self) -> list[tuple[int, int, int]]:
        """(base offset, greatest append time in microseconds, size in bytes), oldest first."""
        segments = self.segment_set.view.segments
        return [
            (segment.base_offset, segment.newest_append_us, segment.size) for segment in segments
        ]

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
        """Store a batch with a single write, as `Log.append`. # hot"""
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
        latest_us = info.max_publish_us
        head = head_of(
            segment.salt,
            parts,
            len(table),
            (
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
                info.first_publish_us,
                latest_us,
                append_us,
                info.producer_id,
                info.producer_epoch,
                info.first_sequence,
                info.last_sequence,
            ),
        )
        before_us = segment.max_time_us
        time_us = append_us if latest_us is None else latest_us
        file_pos = segment.append([head, *parts], stored_bytes, append_us, time_us)
        self.log_end_offset = next_offset
        self.segment_set.note_batch(segment, file_pos, before_us, base_offset, next_offset)
        if not self._is_marked:
            self._mark()
        return base_offset

    def append_at_once(self, body: memoryview, once: WriteAtOnce) -> WrittenBatch | None:
        """Store a batch by a call that also checks the body, as `Log.append_at_once`. # hot"""
        segment, append_us = self._active, once.append_us
        if segment is None or not (self._place.files.writes_plainly and self.takes_appends):
            return None
        settings, stored_bytes = self.settings, HEADER_BYTES + once.prefix_bytes + len(body)
        file_pos, first_us = segment.size, segment.first_append_us
        if (
            first_us is None
            or append_us - first_us >= settings.roll_ms * 1000
            or file_pos + stored_bytes > settings.segment_bytes
        ) and segment.is_full_for(stored_bytes, append_us, settings):
            return None
        file, held = segment.file, self._unsynced.files
        was_held = file in held
        if not was_held:
            self._unsynced.hold(file)
        base_offset = self.log_end_offset
        offset_max = self._written.reserved_offset if self._is_written_mode else OFFSET_MAX
        owner = (segment.salt, self.partition_id, self.owner_epoch)
        offsets = (base_offset, offset_max, self.durable_offset)
        numbers = (once.bytes_max, append_us, *once.producer)
        written = once.write(body, file.fd, file_pos, *owner, *offsets, *numbers)
        if written is None:
            if not was_held:  # Otherwise refused sets would keep a file of each partition open.
                self._unsynced.let_go(file)
            return None
        latest_us = written[1]
        before_us = segment.max_time_us
        segment.take_written(stored_bytes, append_us, append_us if latest_us is None else latest_us)
        next_offset = self.log_end_offset = base_offset + written[0]
        self.segment_set.note_batch(segment, file_pos, before_us, base_offset, next_offset)
        if not self._is_marked:
            self._mark()
        return written

    def append_all(
        self, pieces: Sequence[tuple[Buffer, BodyInfo]], *, body_format: int, append_us: int
    ) -> int:
        """Store batches with a single write, as `Log.append_all`. All batches lie in a single
        segment, which may become larger than others.
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
            interval_bytes = self.segment_set.interval_bytes
            segment.note_in_index(header.base_offset, file_pos, before_us, interval_bytes)
            before_us = header.time_us if before_us is None else max(before_us, header.time_us)
            file_pos += header.stored_bytes
        self.segment_set.remember(offset, segment, file_pos)
        self._mark()
        return base_offset

    def _segment_for(self, stored_bytes: int, next_offset: int, append_us: int) -> Segment:
        """Return the segment that takes a batch, held for the next round."""
        if not self.takes_appends:
            self._refuse_append()
        segment = self._active
        if segment is None:
            segment = self._begin_segment()
        elif segment.is_full_for(stored_bytes, append_us, self.settings):
            segment = self._roll(segment)
        if self._is_written_mode:
            self._written.reserve(next_offset)
        if segment.file not in self._unsynced.files:
            self._unsynced.hold(segment.file)
        return segment

    def _refuse_append(self) -> None:
        if self._is_sealed:
            raise LogClosed(self.folder)
        if self.recovery.damages:
            raise self.recovery.damages[-1].error()
        self._fill_gap()  # The gap has room now: the log can take the next append.
        raise StorageFull(f"{self.folder} had no room to go on above its reservation")

    def roll(self) -> None:
        self._roll(self.segment_set.last)
        self._mark()

    def _roll(self, segment: Segment) -> Segment:
        following = self._new_segment()
        segment.end_index(self.log_end_offset)
        self.segment_set.show([*self.segment_set.view.segments, following])
        self._active = following
        self.segment_set.note_loaded(segment)
        self._has_rolled = True
        return following

    def _begin_segment(self) -> Segment:
        """Begin the segment that takes the appends, after segments that are only read."""
        segment = self._active = self._new_segment()
        self.segment_set.show([*self.segment_set.view.segments, segment])
        return segment

    def _new_segment(self) -> Segment:
        kind, end_offset = self._place.identity.kind, self.log_end_offset
        header = SegmentHeader(kind, new_salt(), self.partition_id, end_offset)
        segment = Segment.create(self._place.files, self.folder, header)
        self._rounds.began(segment)
        return segment

    # Trimming

    def begin_at(self, log_start: int, count: int) -> None:
        """Begin the log at an offset, without its `count` oldest segments. Readers are refused at
        once. Raises StorageFull, with nothing changed; StorageFailed.
        """
        segments = self.segment_set.view.segments
        self._rounds.move_start(log_start, self)
        self.log_start_offset = log_start
        self.segment_set.show(segments[count:])
        if self._rounds.drop(segments[:count]):
            self._mark()

    # Rounds

    def _mark(self) -> None:
        """Take part in the next round."""
        if self._is_marked:
            return
        self._is_marked = self._was_marked = True
        if self._is_written_mode:
            self._place.committer.mark_lazy(self)
        else:
            self._place.committer.mark(self)

    def _join_round(self) -> None:
        """Take part in the gathering round, in any durability mode."""
        self._place.committer.mark(self)

    def begin_sync(self) -> SyncPoint:
        self._is_marked = False
        if self._is_written_mode and not self._is_sealed:
            self._written.begin_round(self.log_end_offset)
        if self._unsynced.names_changed:
            self.compacted.begin_round()
        return self._rounds.begin(self.log_end_offset)

    def finish_sync(self, point: SyncPoint) -> None:
        self._rounds.synced(point)
        if self.is_closed:
            return
        self.durable_offset = max(self.durable_offset, point.end_offset)
        self._shown_offset = max(self._shown_offset, self.durable_offset)
        if self._has_rolled and self._place.on_rolled is not None:
            self._has_rolled = False
            self._place.on_rolled(self.partition_id, self.durable_offset)
        is_unfinished = self._written.finish_round(self)
        is_unfinished |= self.compacted.finish_round()
        is_unfinished |= self._rounds.finish(point, self)
        if is_unfinished:
            self._place.committer.mark_lazy(self)

    # Settings

    def alter(self, settings: LogSettings) -> None:
        """Apply settings as `Log.alter`."""
        if settings.durability != self.settings.durability:
            if settings.durability == Durability.WRITTEN:
                self._written.enter(self.log_end_offset)
            else:
                self._become_synced()
        self.segment_set.space_index(settings.index_interval_bytes)
        self.settings = settings
        self._is_written_mode = settings.durability == Durability.WRITTEN

    def _become_synced(self) -> None:
        """Keep the shown offset; the next round makes it durable, and then the reservation is
        returned.
        """
        self._shown_offset = self.log_end_offset
        self._written.leave()
        self._is_marked = True  # A lazy mark is not enough for a synced append.
        self._join_round()

    def keep_reservation(self) -> None:
        """Leave the reservation to `reserve_ahead`, as `Log.keep_reservation`."""
        self._written.keep()

    def reserve_ahead(self) -> None:
        """Reserve offsets as `Log.reserve_ahead`."""
        self._written.reserve_ahead(self.log_end_offset)

    # Ending

    def seal(self) -> None:
        """Prepare a clean stop as `Log.seal`."""
        if not self.takes_appends:
            return
        self.refuse_appends()
        segment = self.segment_set.last
        is_new = segment.end_index(self.log_end_offset)
        self._rounds.note(self)
        if not (is_new or self._was_marked or self._written.is_used):
            return
        self._written.release_unused(self.durable_offset)
        if segment.index.file is not None:
            self._unsynced.hold(segment.index.file)
        self._unsynced.note_names()
        self._rounds.note(self, in_round=True)
        self._is_marked = True
        self._join_round()

    def refuse_appends(self) -> None:
        """Raise LogClosed for appends from now on."""
        self.takes_appends = False
        self._is_sealed = True

    def close(self) -> None:
        """Close the files as `Log.close`."""
        self.is_closed = True
        self.refuse_appends()
        self._place.committer.forget(self)
        self._rounds.close()
        self.segment_set.close()
        self._reader.close()
        self.compacted.close()
        self._written.close()
        refuse = partial(_refuse, self.folder)  # The parts hold this log: no cycle stays.
        self.retain = self.undated = self.drop = self.drop_below = self.delete_below = refuse


def _refuse(folder: str, *_: object, **__: object) -> NoReturn:
    """Raise LogClosed for the log of a folder."""
    raise LogClosed(folder)
