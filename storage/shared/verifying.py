"""Checks a whole shared store: every row's object, every footer, and with `deep` every batch.

Only reads, even beside running brokers: the ledger is read at a single moment, and an object that
is dropped meanwhile stays for as long as the trash keeps it.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.scan import BadBatch, load_checked, walk
from braidlog.storage.log.segment import Segment
from braidlog.storage.log.segment_header import KIND_CATALOGUE, KIND_PARTITION, SEGMENT_HEADER_BYTES
from braidlog.storage.shared.cached_file import Cache, CachedFiles
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.layout import (
    HEADER_BYTES,
    KIND_PACK,
    PACKS,
    ROUNDS,
    SEGMENTS,
    TRAILER_BYTES,
    BadObject,
    pack_name,
    round_name,
    segment_name,
    unpack_entries,
    unpack_footer,
    unpack_header,
)
from braidlog.storage.shared.ledger import (
    Ledger,
    LedgerWentBack,
    PackRow,
    SegmentRow,
    SessionState,
    object_names,
)
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.pieces import PartitionPieces, partitions_of
from braidlog.storage.shared.proofs import check_not_older, open_cluster
from braidlog.storage.shared.takeover import is_unpacked, round_slices

# Bytes that `deep` keeps in its scratch folder at a time.
SCRATCH_BYTES = 256 << 20

T = TypeVar("T")


@dataclass(slots=True)
class StoreReport:
    """The numbers of checked things and of faults. `unnamed` objects have no row: objects of rounds
    and packs under way, and orphans, which a sweep deletes.
    """

    objects: int = 0
    unnamed: int = 0
    partitions: int = 0
    batches: int = 0
    faults: int = 0


def verify_store(
    ledger: Ledger,
    objects: ObjectStore,
    tell: Callable[[str], None],
    *,
    deep: bool = False,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> StoreReport:
    """Check all; `tell` gets a line for each fault, `advance` the checked and all objects. With
    `deep` a partition counts as an object too. Raises NoCluster if ledger and store do not
    belong together; StoreUnanswered, LedgerUnanswered.
    """
    open_cluster(ledger, objects)
    check = _Check(objects, tell)
    try:
        check_not_older(ledger, objects)
    except LedgerWentBack as error:
        check.fault(str(error))
    names = {name for kind in (ROUNDS, PACKS, SEGMENTS) for name in objects.names(kind)}
    contents = ledger.contents([row.shard for row in ledger.shards()])
    probes = {
        round_name(row.session, 0, 0) for row in ledger.sessions() if row.state is SessionState.LIVE
    }
    check.report.unnamed = len(names - probes - set(object_names(contents)) - ledger.trash())
    located = []
    total = sum(len(row.parts) for row in contents.rounds)
    total += len(contents.packs) + len(contents.segments)
    for row in contents.rounds:
        advance(check.report.objects, total)
        slices = check.look(partial(round_slices, objects, row))
        check.report.objects += len(row.parts)
        located += [
            candidate
            for candidate in slices or []
            if is_unpacked(row, [t for t in contents.tenures if t.shard == candidate.entry.shard])
        ]
    for pack in contents.packs:
        advance(check.report.objects, total)
        check.report.objects += 1
        check.look(partial(check.pack, pack))
    for segment in contents.segments:
        advance(check.report.objects, total)
        check.report.objects += 1
        check.look(partial(check.segment, segment))
    partitions = check.look(lambda: partitions_of(contents, located)) or {}
    is_deleted = _deleted(ledger)
    partitions = {number: pieces for number, pieces in partitions.items() if not is_deleted(number)}
    check.report.partitions = len(partitions)
    for pieces in partitions.values():
        check.look(pieces.check)
    if deep:
        with (
            tempfile.TemporaryDirectory(prefix="braidlog-verify-") as folder,
            closing(CachedFiles(folder, objects, Cache(SCRATCH_BYTES))) as files,
        ):
            for number, pieces in enumerate(partitions.values()):
                advance(total + number, total + len(partitions))
                if not pieces.fault:
                    check.batches(files, folder, pieces)
    return check.report


def _deleted(ledger: Ledger) -> Callable[[int], bool]:
    """Return a function that says if the topic of a partition was deleted: slices of a deleted
    topic may remain in packs that others need.
    """
    cluster = ledger.cluster()
    shared_catalogue = SharedCatalogue(0 if cluster is None else cluster.shards)
    shared_catalogue.follow_anew(ledger.journal(0, KIND_CATALOGUE))
    catalogue = shared_catalogue.catalogue
    partition_ids = {number for meta in catalogue.all_topics() for number in meta.partition_ids}
    return lambda number: number < catalogue.partition_ids_end and number not in partition_ids


class _Check:
    def __init__(self, objects: ObjectStore, tell: Callable[[str], None]) -> None:
        self.report = StoreReport()
        self._objects = objects
        self._tell = tell

    def look(self, at: Callable[[], T]) -> T | None:
        """Return the result of `at`; report a fault and return None."""
        try:
            return at()
        except (BadObject, ObjectMissing, DamagedLog, BadBatch) as error:
            self.fault(str(error))
            return None

    def pack(self, pack: PackRow) -> None:
        """Check object and footer, which the row repeats. Raises BadObject, ObjectMissing."""
        name = pack_name(pack.shard, pack.epoch, pack.pack)
        size = self._objects.size(name)
        if size != pack.size:
            raise BadObject(f"object {name} has {size} bytes, not {pack.size}")
        head = self._objects.get(name, 0, HEADER_BYTES)
        footer_bytes = len(pack.index) + TRAILER_BYTES
        try:
            header = unpack_header(head)
            entries = unpack_footer(
                head, self._objects.get(name, size - footer_bytes, footer_bytes)
            )
            place = (header.kind, header.owner, header.number, header.mark)
            if place != (KIND_PACK, pack.shard, pack.pack, pack.epoch):
                raise BadObject("its header says that it is another object")
            if entries != unpack_entries(pack.index):
                raise BadObject("its footer is not what the ledger says")
        except BadObject as error:
            raise BadObject(f"object {name}: {error}") from error

    def segment(self, row: SegmentRow) -> None:
        """Check a segment's object and its size. Raises BadObject, ObjectMissing."""
        name = segment_name(row.partition_id, row.base, row.epoch, row.generation)
        size = self._objects.size(name)
        if size != row.size + row.index_bytes:
            raise BadObject(f"object {name} has {size} bytes, not {row.size + row.index_bytes}")

    def batches(self, files: CachedFiles, folder: str, log_pieces: PartitionPieces) -> None:
        """Check every batch of a partition, header and body."""
        place = os.path.join(folder, str(log_pieces.partition_id))
        os.mkdir(place)
        for pieces in log_pieces.segments:
            segment = Segment(files, place, pieces.base, KIND_PARTITION, log_pieces.partition_id)
            segment.use_file(files.segment_file(segment.path, pieces))
            segment.set_extent(pieces.size, pieces.last_append_us)
            end = self.look(partial(self._walk, segment))
            if end is not None and end != pieces.end_offset:
                self.fault(f"{segment.path} ends at offset {end}, not {pieces.end_offset}")
            segment.remove()

    def _walk(self, segment: Segment) -> int:
        load_checked(segment)
        end = segment.base_offset
        for _, header in walk(
            segment, SEGMENT_HEADER_BYTES, end, check_bodies_from=0, end_pos=segment.size
        ):
            self.report.batches += 1
            end = header.next_offset
        return end

    def fault(self, text: str) -> None:
        """Report a fault."""
        self.report.faults += 1
        self._tell(text)
