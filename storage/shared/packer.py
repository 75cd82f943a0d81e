"""Keeps a shard small: uploads whole segments, packs rounds, raises log starts.

A cycle has three steps. `plan` and `apply` belong to the owner's thread, as logs do; `carry_out`
waits for stores and may run in any single thread. Objects that a statement replaces go to the
ledger's trash and are deleted later (`sweeper.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from braidlog.storage.errors import DamagedLog, StorageFull, StoreUnanswered
from braidlog.storage.formats.batch import ABSENT_US
from braidlog.storage.log.files import FileGone, Files
from braidlog.storage.log.places import build_index, stored_index
from braidlog.storage.log.scan import BadBatch, load_checked
from braidlog.storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from braidlog.storage.shared.layout import (
    KIND_PACK,
    BadObject,
    ObjectHeader,
    SliceEntry,
    joined,
    pack_entries,
    pack_footer,
    pack_header,
    pack_name,
    segment_name,
)
from braidlog.storage.shared.ledger import (
    Fenced,
    Ledger,
    LedgerUnanswered,
    PackMove,
    PackRow,
    SegmentRow,
    SessionState,
)
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.pieces import Located, SegmentPieces, whole_segment
from braidlog.storage.shared.points import Slice, read_whole
from braidlog.storage.shared.publisher import NoWatch, Patience, Watch, gather, pauses, put_surely
from braidlog.storage.shared.shard import Key, Shard
from braidlog.storage.shared.shared_log import SharedLog
from braidlog.storage.shared.takeover import surely

# Segments of earlier owners that a cycle uploads for each shard: a takeover of ten thousand
# partitions must not put ten thousand objects at once. Until then packs hold the rest.
INHERITED_MAX = 64


@dataclass(slots=True, frozen=True)
class PackerSettings:
    """Times in milliseconds. Packs are built in memory: about `pack_bytes`, or a single larger
    slice.
    """

    delete_after_ms: int = 3_600_000
    index_interval_bytes: int = 16 * 1024
    pack_bytes: int = 64 << 20


@dataclass(slots=True)
class Upload:
    """A segment that gets an object of its own."""

    log: SharedLog
    segment: Segment
    end_offset: int


@dataclass(slots=True)
class PackingPlan:
    """The work of a cycle on a shard, as seen in the owner's thread."""

    shard: Shard
    moves: list[PackMove]
    uploads: list[Upload]
    slices: list[tuple[SharedLog, Slice]]
    starts: dict[int, int]
    gone: list[int]
    done_uploads: list[tuple[Upload, SegmentPieces]] = field(default_factory=list)
    packed: list[SliceEntry] = field(default_factory=list)
    repacked: dict[Key, SegmentPieces] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        free = self.shard.free_packs
        return not (self.moves or self.uploads or self.starts or self.gone or free)


def plan(shard: Shard, logs: Iterable[SharedLog], round_: int) -> PackingPlan:
    """Return the work to do; `round_` is the last round that the logs know of."""
    cycle = PackingPlan(shard, shard.moves(round_), [], [], {}, sorted(shard.gone))
    inherited = 0
    for log in logs:
        for segment, end_offset in log.segments_to_upload():
            inherited += segment.base_offset not in log.tracks
            if segment.base_offset in log.tracks or inherited <= INHERITED_MAX:
                cycle.uploads.append(Upload(log, segment, end_offset))
        cycle.slices += [(log, cached) for cached in log.slices_to_pack()]
        if log.log_start_offset > shard.starts.get(log.partition_id, 0):
            cycle.starts[log.partition_id] = log.log_start_offset
    return cycle


def apply(done: PackingPlan, logs: dict[int, SharedLog]) -> None:
    """Tell the logs the results of a plan."""
    for upload, pieces in done.done_uploads:
        upload.log.uploaded(upload.segment, pieces)
    for entry in done.packed:
        if entry.partition_id in logs:
            logs[entry.partition_id].packed(entry)
    for (partition_id, base), pieces in done.repacked.items():
        if partition_id in logs:
            logs[partition_id].repacked(base, pieces)
    done.shard.gone.difference_update(done.gone)


class Packer:
    """Carries out plans for a session."""

    def __init__(
        self,
        ledger: Ledger,
        objects: ObjectStore,
        files: Files,
        settings: PackerSettings,
        patience: Patience,
    ) -> None:
        self._ledger = ledger
        self._objects = objects
        self._files = files
        self._settings = settings
        self._patience = patience
        self._watch: Watch = NoWatch()

    def measure(self, watch: Watch) -> None:
        """Report the work of packs and uploads to `watch` from now on."""
        self._watch = watch

    def carry_out(self, todo: PackingPlan) -> None:
        """Upload, pack and drop. Raises Fenced and other StorageFailed, ObjectForged; DamagedLog,
        ObjectMissing or BadObject if an object is missing or wrong.
        """
        try:
            self._carry_out(todo)
        except (DamagedLog, ObjectMissing, BadObject) as error:
            session = todo.shard.owned.session
            state, _ = surely(lambda: self._ledger.session_state(session), self._patience)
            # The next owner has packed the object, and a sweep deleted it.
            if state is not SessionState.LIVE:
                raise Fenced(f"session {session} was ended") from error
            raise

    def _carry_out(self, todo: PackingPlan) -> None:
        # First: a pack omits records below a new start, so the ledger must have that start.
        for partition_id, start in todo.starts.items():
            self._raise_start(todo.shard, partition_id, start)
        for upload in todo.uploads:
            self._upload(todo, upload)
        if todo.moves:
            with suppress(FileGone):  # Retention removed a segment meanwhile: the next cycle packs.
                self._pack(todo)
        if todo.gone or todo.shard.free_packs:
            self._drop(todo.shard, todo.gone)

    # Segments.

    def _upload(self, todo: PackingPlan, upload: Upload) -> None:
        """Put a segment and its index. Leave an unreadable segment for another cycle."""
        shard, segment = todo.shard, upload.segment
        with suppress(FileGone, BadBatch, StorageFull, OSError):  # Another cycle tries again.
            index, max_us = self._index(segment)
            data = bytes(read_whole(segment.file, segment.size, 0))
            row = SegmentRow(
                upload.log.partition_id,
                segment.base_offset,
                shard.owned.shard,
                shard.owned.epoch,
                0,
                upload.end_offset,
                len(data),
                len(index),
                segment.newest_append_us,
                max_us,
            )
            name = segment_name(row.partition_id, row.base, row.epoch, row.generation)
            put_surely(self._objects, name, data + index, self._patience)
            self._watch.uploaded("segment", len(data) + len(index))
            key = row.partition_id, row.base
            packs = shard.freed_by([key])
            self._decide(
                shard,
                lambda: self._ledger.add_segment(
                    shard.owned, row, packs, self._settings.delete_after_ms
                ),
                lambda: row in self._ledger.contents([shard.owned.shard]).segments,
            )
            shard.covered([key], packs)
            todo.done_uploads.append((upload, whole_segment(row)))

    def _index(self, segment: Segment) -> tuple[bytes, int | None]:
        """Return the index file's bytes, and the greatest time of the segment."""
        load_checked(segment)
        with segment.building_index:
            index = segment.index_in_memory or stored_index(segment)
            last = None if index is None else index.last()
            if index is None or last is None or last[1] != segment.size:
                index = build_index(segment, self._settings.index_interval_bytes)
                last = index.last()
            segment.save_index()
        assert last is not None, "an index ends with an entry for the end"
        path = segment.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
        return self._files.read_whole(path), None if last[2] == ABSENT_US else last[2]

    # Packs.

    def _pack(self, todo: PackingPlan) -> None:
        shard = todo.shard
        whole = {(up.log.partition_id, up.segment.base_offset) for up, _ in todo.done_uploads}
        dropped = set(todo.gone)
        wanted = [
            candidate
            for candidate in [*(candidate for _, candidate in todo.slices), *self._inherited(shard)]
            if (candidate.entry.partition_id, candidate.entry.segment_base) not in whole
            and candidate.entry.partition_id not in dropped
            and candidate.entry.end_offset > todo.starts.get(candidate.entry.partition_id, 0)
        ]
        packs: list[PackRow] = []
        packed: list[tuple[SliceEntry, str]] = []
        try:
            for pack_slices in in_packs(wanted, self._settings.pack_bytes):
                pack, entries = self._put_pack(shard, pack_slices)
                packs.append(pack)
                packed += [(entry, _name(pack)) for entry in entries]
        except FileGone:
            self._take_back(packs)
            raise
        self._decide(
            shard,
            lambda: self._ledger.add_packs(shard.owned, todo.moves, packs),
            lambda: self._is_packed(shard, todo.moves),
        )
        shard.moved(todo.moves)
        for pack in packs:
            shard.add_pack(pack)
        todo.repacked = shard.now_packed(packed)
        todo.packed = [entry for entry, _ in packed]

    def _put_pack(self, shard: Shard, slices: Sequence[Slice]) -> tuple[PackRow, list[SliceEntry]]:
        """Put a pack, which counts once the ledger names the pack."""
        owned, number = shard.owned, shard.take_pack_number()
        header = ObjectHeader(KIND_PACK, owned.shard, number, owned.epoch)
        data, entries = pack_object(pack_header(header), slices)
        pack = PackRow(owned.shard, number, owned.epoch, len(data), pack_entries(entries))
        put_surely(self._objects, _name(pack), data, self._patience)
        self._watch.uploaded("pack", len(data))
        return pack, entries

    def _take_back(self, packs: Sequence[PackRow]) -> None:
        """Delete packs that will not count: a sweep would leave them until the next owner."""
        for pack in packs:
            with suppress(StoreUnanswered):  # The next owner's sweep deletes the pack.
                self._objects.delete(_name(pack))

    def _inherited(self, shard: Shard) -> list[Slice]:
        return [
            Slice(source.entry, ObjectSlice(self._objects, source, self._patience))
            for source in shard.inherited()
        ]

    def _is_packed(self, shard: Shard, moves: Sequence[PackMove]) -> bool:
        packed = {
            tenure.epoch: tenure.packed_round
            for tenure in self._ledger.contents([shard.owned.shard]).tenures
        }
        return all(packed.get(move.epoch) == move.new for move in moves)

    # Raising starts and dropping objects.

    def _raise_start(self, shard: Shard, partition_id: int, start: int) -> None:
        old = shard.starts.get(partition_id, 0)
        keys = shard.keys_below(partition_id, start)
        packs = shard.freed_by(keys)
        self._decide(
            shard,
            lambda: self._ledger.set_start(
                shard.owned, (partition_id, old, start), packs, self._settings.delete_after_ms
            ),
            lambda: self._start(shard, partition_id) == start,
        )
        shard.starts[partition_id] = start
        shard.covered(keys, packs)

    def _start(self, shard: Shard, partition_id: int) -> int:
        starts = self._ledger.contents([shard.owned.shard]).starts
        return starts.get(partition_id, (0, 0))[1]

    def _drop(self, shard: Shard, partitions: Sequence[int]) -> None:
        keys = shard.keys_of(set(partitions))
        packs = shard.freed_by(keys)
        self._decide(
            shard,
            lambda: self._ledger.drop_partitions(
                shard.owned, partitions, packs, self._settings.delete_after_ms
            ),
            lambda: False,  # Repeating the statement does no harm.
        )
        for partition_id in partitions:
            shard.starts.pop(partition_id, None)
        shard.covered(keys, packs)

    def _decide(self, shard: Shard, do: Callable[[], bool], is_done: Callable[[], bool]) -> None:
        """Run a statement once. Without an answer, send the statement again; if the second run
        finds nothing to change, `is_done` tells if the first run succeeded. Raises Fenced.
        """
        for pause_s in pauses():
            with suppress(LedgerUnanswered):  # Try again.
                if do():
                    return
                state, _ = self._ledger.session_state(shard.owned.session)
                if state is not SessionState.LIVE:
                    raise Fenced(f"session {shard.owned.session} was ended")
                if is_done():
                    return
                raise Fenced(f"shard {shard.owned.shard} is not as its owner left it")
            self._patience.pause(pause_s)


class ObjectSlice:
    """A slice in an object, read as if from the segment file."""

    def __init__(self, objects: ObjectStore, located: Located, patience: Patience) -> None:
        self._objects = objects
        self._located = located
        self._patience = patience

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes:
        """Return `size` bytes from `pos` of the segment file."""
        entry = self._located.entry
        object_pos = entry.object_pos + pos - entry.file_pos
        return surely(
            lambda: self._objects.get(self._located.object, object_pos, size), self._patience
        )


def in_packs(slices: Iterable[Slice], bytes_max: int) -> Iterator[list[Slice]]:
    """Yield the slices by partition, in lists for packs of about `bytes_max`."""
    pack_slices: list[Slice] = []
    size = 0
    for candidate in sorted(slices, key=_place):
        if pack_slices and size + candidate.entry.size > bytes_max:
            yield pack_slices
            pack_slices, size = [], 0
        pack_slices.append(candidate)
        size += candidate.entry.size
    if pack_slices:
        yield pack_slices


def pack_object(header: bytes, slices: Sequence[Slice]) -> tuple[bytes, list[SliceEntry]]:
    """Return a pack of sorted slices; adjoining slices of a segment become one entry.

    Raises FileGone; StorageFailed if a local file cannot be read.
    """
    pieces, entries = gather(slices)
    entries = joined(entries)
    return b"".join([header, *pieces, pack_footer(header, entries)]), entries


def _place(to_place: Slice) -> tuple[int, int, int]:
    return to_place.entry.partition_id, to_place.entry.segment_base, to_place.entry.file_pos


def _name(pack: PackRow) -> str:
    return pack_name(pack.shard, pack.epoch, pack.pack)
