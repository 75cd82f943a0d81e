"""Reads the shared store beside its brokers: no session, nothing changed, any process.

For Spark. A look includes all rounds published until then; the reader looks again for objects that
a broker packs, uploads or deletes during the read. Bytes are read in ranges and kept in memory
only. Knows no SQL, no S3 and no broker.
"""

import errno
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, partial

from braidlog.storage.errors import DamagedLog
from braidlog.storage.log.files import File
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.places import place_of_offset
from braidlog.storage.log.read_only_log import LOOKS_MAX, READ_BYTES, ReadOnlyLog, SegmentLook
from braidlog.storage.log.segment import Segment, segment_path
from braidlog.storage.log.segment_header import KIND_CATALOGUE, KIND_PARTITION
from braidlog.storage.log.segment_names import SegmentName
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.layout import BadObject, shard_of
from braidlog.storage.shared.ledger import Cluster, Contents, JournalRow, Ledger, Tenure
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.over_local import FileOverLocal, FilesOverLocal
from braidlog.storage.shared.pieces import (
    Located,
    PartitionPieces,
    Piece,
    SegmentPieces,
    partitions_of,
)
from braidlog.storage.shared.proofs import open_cluster
from braidlog.storage.shared.publisher import Patience
from braidlog.storage.shared.takeover import (
    READS_AT_ONCE,
    for_a_while,
    is_unpacked,
    read_rounds,
    surely,
)

# Read at once if less is asked for: a search for a place makes many small reads close together.
AHEAD_BYTES = 1 << 20

# A folder that exists everywhere: `Files` needs a folder, and nothing in it is used.
ANY_FOLDER = "/"


class StoreLook:
    """The partitions of a cluster, by ledger and objects, neither of which is changed.

    The ledger's connection is closed after each look: a Spark task needs the connection for a
    moment only, and there may be more tasks than PostgreSQL has connections.
    """

    def __init__(
        self,
        ledger: Ledger,
        objects: ObjectStore,
        patience: Callable[[], Patience] = for_a_while,
    ) -> None:
        """`patience`: how to retry without an answer, made for each request."""
        self._ledger = ledger
        self._objects = objects
        self._patience = patience

    @cached_property
    def _cluster(self) -> Cluster:
        return open_cluster(self._ledger, self._objects)

    def catalogue(self, with_data_of: Collection[str] = ()) -> Catalogue:
        """All topics; those named in `with_data_of` (full names) with their schemas.

        Raises: LedgerUnanswered, LedgerRefused, NoCluster; DamagedLog.
        """
        with closing(self._ledger):
            shared_catalogue = SharedCatalogue(self._cluster.shards)
            shared_catalogue.follow_anew(self._journal(0))
            for shard in self._shards_of(with_data_of):
                shared_catalogue.follow_topic_data(shard, self._journal(shard))
            return shared_catalogue.catalogue

    def _journal(self, shard: int) -> list[JournalRow]:
        return surely(partial(self._ledger.journal, shard, KIND_CATALOGUE), self._patience())

    def _shards_of(self, topics: Collection[str]) -> list[int]:
        return sorted({shard_of(topic, self._cluster.shards) for topic in topics})

    def partitions(self, wanted: Mapping[str, Collection[int]]) -> dict[int, PartitionPieces]:
        """Return the places of the records of partitions, by partition id, leaving out partitions
        without records. `wanted` has ids by the topics' full names.

        Raises: as `catalogue`; StoreUnanswered.
        """
        numbers = {number for topic_numbers in wanted.values() for number in topic_numbers}
        before: Contents | None = None
        for _ in range(LOOKS_MAX):
            with closing(self._ledger):
                ask = partial(self._ledger.contents, self._shards_of(wanted))
                contents = surely(ask, self._patience())
            try:
                located = self._located(contents, numbers)
                for log_pieces in located.values():
                    log_pieces.check()
                return located
            except BadObject as error:  # An object was packed and deleted since: look again.
                failure = DamagedLog("the shared store", 0, 0, str(error))
            except DamagedLog as error:
                failure = error
            if contents == before:
                break
            before = contents
        raise failure

    def _located(self, contents: Contents, numbers: Collection[int]) -> dict[int, PartitionPieces]:
        """Raises BadObject."""
        tenures: dict[int, list[Tenure]] = {}
        for tenure in contents.tenures:
            tenures.setdefault(tenure.shard, []).append(tenure)
        rounds: list[Located] = []
        footers = read_rounds(self._objects, contents.rounds, self._patience(), READS_AT_ONCE)
        for row, slices in footers:
            rounds += [
                stored_round
                for stored_round in slices
                if is_unpacked(row, tenures.get(stored_round.entry.shard, ()))
            ]
        return partitions_of(contents, rounds, numbers)

    def open(self, topic: str, partition_id: int) -> ReadOnlyLog:
        """Return the log of a partition, empty if it has no records. Raises as `partitions`."""

        def look() -> PartitionPieces:
            by_id = self.partitions({topic: (partition_id,)})
            return by_id.get(partition_id) or PartitionPieces(partition_id, 0)

        return ReadOnlyLog(StoreSource(look, StoredFiles(self._objects, self._patience)))


class StoreSource:
    """The segments of a partition in the shared store. Implements `LogSource`."""

    def __init__(self, look: Callable[[], PartitionPieces], files: "StoredFiles") -> None:
        """`look` returns the present places of the records; every method may raise the errors of
        `look`.
        """
        self._look = look
        self._files = files
        self._pieces = PartitionPieces(0, 0)

    @property
    def partition_id(self) -> int:
        return self._pieces.partition_id

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._pieces.segments)

    def look(self) -> SegmentLook:
        return self._show(self._look())

    def look_if_changed(self) -> SegmentLook | None:
        """As `LogSource.look_if_changed`. Raises FileNotFoundError if the topic was deleted."""
        pieces = self._look()
        if pieces == self._pieces:
            return None
        if not pieces.log_end:  # A log that had records has an end until its topic is deleted.
            raise FileNotFoundError(f"partition {self.partition_id} is gone")
        return self._show(pieces)

    def _show(self, pieces: PartitionPieces) -> SegmentLook:
        self._pieces = pieces
        self._folder = f"partitions/{pieces.partition_id}"
        self._files.show(
            {segment_path(self._folder, segment.base): segment for segment in pieces.segments}
        )
        names = [SegmentName(segment.base) for segment in pieces.segments]
        return SegmentLook(names, pieces.log_start, pieces.log_end)

    def segment(self, name: SegmentName) -> Segment:
        return Segment(
            self._files, self._folder, name.base_offset, KIND_PARTITION, self.partition_id, name
        )

    def place(self, segment: Segment, offset: int) -> tuple[int, int]:
        """By the index, if that is in an object too; else by looking at some places."""
        return place_of_offset(segment, offset, READ_BYTES)

    def close(self) -> None:
        self._files.close()


class StoredFiles(FilesOverLocal):
    """The segment files of a partition, and their indexes, as stored in objects."""

    def __init__(self, objects: ObjectStore, patience: Callable[[], Patience]) -> None:
        super().__init__(LocalFiles(ANY_FOLDER, read_only=True))
        self._pieces: dict[str, SegmentPieces] = {}  # By path.
        self._objects = objects
        self._patience = patience
        self._pool: ThreadPoolExecutor | None = None

    def show(self, pieces: dict[str, SegmentPieces]) -> None:
        """Offer these segment files, by path, and their indexes."""
        self._pieces = pieces

    def open(self, path: str) -> File:
        """The segment file of that path, or for an index a file that nobody reads."""
        pieces = self._pieces.get(path)
        return self.local.open(path) if pieces is None else StoredFile(self, path, pieces)

    def read_whole(self, path: str) -> bytes:
        """An index. Raises OSError, also if it is in no object; StoreUnanswered."""
        segment = self._pieces.get(path.removesuffix(".index") + ".log")
        if segment is None or segment.index is None:
            raise FileNotFoundError(errno.ENOENT, "it is in no object", path)
        return self.fetch(segment.index, 0, segment.index.size)

    def fetch(self, piece: Piece, pos: int, end: int) -> bytes:
        """Return the bytes of a piece between two places of its file.

        Raises: OSError where the object is wrong; StoreUnanswered.
        """
        first, last = max(pos, piece.file_pos), min(end, piece.file_end)
        object_pos = piece.object_pos + first - piece.file_pos
        get = partial(self._objects.get, piece.object, object_pos, last - first)
        try:
            return surely(get, self._patience())
        except (ObjectMissing, BadObject) as error:
            raise OSError(errno.EIO, str(error)) from error

    def fetch_all(self, pieces: SegmentPieces, pos: int, end: int) -> Iterator[bytes]:
        """The same across pieces, in order: pieces in rounds are small, and fetched at once."""
        wanted = pieces.overlapping(pos, end - pos)
        if len(wanted) == 1:
            return iter([self.fetch(wanted[0], pos, end)])
        self._pool = self._pool or ThreadPoolExecutor(READS_AT_ONCE)
        return self._pool.map(lambda piece: self.fetch(piece, pos, end), wanted)

    def close(self) -> None:
        """Read no more."""
        if self._pool is not None:
            self._pool.shutdown()
        self.local.close()


class StoredFile(FileOverLocal):
    """A segment file in objects. The bytes read last are kept: the next read continues in them."""

    __slots__ = ("_buffered", "_buffered_pos", "_pieces", "_stored")

    def __init__(self, files: StoredFiles, path: str, pieces: SegmentPieces) -> None:
        super().__init__(files.local.open(path))
        self._stored = files
        self._pieces = pieces
        self._buffered = memoryview(b"")
        self._buffered_pos = 0

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes | memoryview:
        """Read as `File.read_at`, but always wait.

        Raises: OSError where an object is wrong; StoreUnanswered.
        """
        end = min(pos + size, self._pieces.size)
        if end <= pos:
            return b""
        start = pos - self._buffered_pos
        buffered = self._buffered[start:] if 0 <= start <= len(self._buffered) else memoryview(b"")
        if pos + len(buffered) < end:
            more_pos = pos + len(buffered)
            more_end = min(max(end, more_pos + AHEAD_BYTES), self._pieces.size)
            parts = self._stored.fetch_all(self._pieces, more_pos, more_end)
            buffered = memoryview(b"".join([buffered, *parts]))
        self._buffered, self._buffered_pos = buffered, pos
        return buffered[: end - pos]

    def size(self) -> int:
        """Bytes of it."""
        return self._pieces.size
