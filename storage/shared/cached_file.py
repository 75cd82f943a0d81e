"""A segment file that is stored in objects; bytes once read are kept in a local file.

Local files are a cache: never synced, emptied at start, the least recently used removed first when
there is too much. An error of the cache's disk fails no read that may wait: the objects have the
same bytes. `storage/log/` reads such a file like any other. Safe in several threads.
"""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from braidlog.storage.errors import (
    DamagedLog,
    StorageFailed,
    StorageFull,
    StoreUnanswered,
    WouldBlock,
)
from braidlog.storage.log.files import FileGone
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.shared.layout import BadObject
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.over_local import FileOverLocal, FilesOverLocal
from braidlog.storage.shared.pieces import Piece, SegmentPieces

# Bytes of a fetch: a twentieth of a second at the speed of a connection.
BLOCK_BYTES = 4 << 20
# Gets of a block at the same time. A slow topic has a piece in each pack until its segment is full:
# 1,440 pieces after a day, which take 40 s in sequence at 30 ms each.
GETS_AT_ONCE = 16


class Cache:
    """The bytes that all cached files hold together, at most about `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.hits = 0
        self.misses = 0
        self._held: OrderedDict[CachedFile, int] = OrderedDict()  # Least recently used first.
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes held now."""
        return self._bytes

    def used(self, file: "CachedFile", grown: int) -> None:
        """Note that a file was read, and holds `grown` bytes more; empty others if need be."""
        with self._lock:
            if grown == 0:
                self.hits += 1
                if file in self._held:
                    self._held.move_to_end(file)
                return
            self.misses += 1
            self._held[file] = self._held.get(file, 0) + grown
            self._held.move_to_end(file)
            self._bytes += grown
            candidates = [reader for reader in self._held if reader is not file]
        for candidate in candidates:
            if self._bytes <= self.bytes_max:
                return
            if candidate.empty():
                self.forget(candidate)

    def give_back(self, reader: "CachedFile") -> None:
        """Empty every file except the file being read."""
        with self._lock:
            candidates = [other for other in self._held if other is not reader]
        for candidate in candidates:
            if candidate.empty():
                self.forget(candidate)

    def forget(self, file: "CachedFile") -> None:
        """Note that a file holds nothing any more."""
        with self._lock:
            self._bytes -= self._held.pop(file, 0)


class CachedFile(FileOverLocal):
    """A segment file in objects. `pieces` may be replaced by others with the same bytes."""

    __slots__ = (
        "_cache",
        "_cached_files",
        "_is_made",
        "_objects",
        "_present",
        "_reading",
        "pieces",
    )

    def __init__(self, files: "CachedFiles", path: str, pieces: SegmentPieces) -> None:
        super().__init__(files.local.open(path))
        self.pieces = pieces
        self._cached_files = files
        self._objects = files.objects
        self._cache = files.cache
        self._present: set[int] = set()  # Blocks in the local file.
        self._is_made = False
        self._reading = threading.Lock()

    def replace_pieces(self, pieces: SegmentPieces) -> None:
        """Read from other objects, which hold the same bytes, from now on."""
        self.pieces = pieces

    def adopt_local(self) -> None:
        """Use the local file for all bytes, because they were written here."""
        self._is_made = True
        self._present = set(range(-(-self.pieces.size // BLOCK_BYTES)))
        self._cache.used(self, self.pieces.size)

    def read_at(self, size: int, pos: int, *, wait: bool = True) -> bytes | memoryview:
        """As `File.read_at`. Missing blocks are fetched, or WouldBlock is raised if `wait=False`.
        While the disk of the cache fails or is full, each read fetches the bytes again.

        Raises: StoreUnanswered; DamagedLog where an object is missing or too short; FileGone once
        the file is closed.
        """
        size = min(size, self.pieces.size - pos)
        if size <= 0:
            return b""
        if not self._reading.acquire(blocking=wait):
            raise WouldBlock(self.path)
        try:
            fetched, data = self._read_local(size, pos, wait=wait)
        finally:
            self._reading.release()
        self._cache.used(self, fetched)
        return data

    def _read_local(self, size: int, pos: int, *, wait: bool) -> tuple[int, bytes | memoryview]:
        """The bytes fetched into the local file, and the data: from there if the disk works."""
        if self._local.gone and self._local.holds == 0:
            raise FileGone(self.path)
        blocks = range(pos // BLOCK_BYTES, (pos + size - 1) // BLOCK_BYTES + 1)
        missing = [block for block in blocks if block not in self._present]
        if missing and not wait:
            raise WouldBlock(self.path)
        try:
            fetched = sum(self._fetch(block) for block in missing)
            data = self._local.read_at(size, pos, wait=wait)
            if len(data) == size or not wait:
                return fetched, data
            self._lose()
        except StoreUnanswered:
            raise  # The disk is not at fault.
        except StorageFull:
            pass  # The blocks that are there stay.
        except (StorageFailed, OSError):
            self._lose()
        except FileGone:
            if self._local.gone:
                raise
            self._lose()  # Another program removed the file.
        if not wait:
            raise WouldBlock(self.path)
        return 0, self._past_the_disk(pos, pos + size)

    def _lose(self) -> None:
        """Forget the local bytes: the disk does not give them back."""
        self._present, self._is_made = set(), False
        self._cache.forget(self)

    def _fetch(self, block: int) -> int:
        """Fetch a block into the local file; return the number of bytes."""
        pos = block * BLOCK_BYTES
        end = min(pos + BLOCK_BYTES, self.pieces.size)
        data = self._from_objects(pos, end)
        self._make()
        self._local.overwrite_at(data, pos)
        self._present.add(block)
        return end - pos

    def _past_the_disk(self, pos: int, end: int) -> bytes:
        """Read from the objects alone, because the cache's disk fails or is full. Other files are
        emptied, so that the next read may find room.
        """
        self._cache.give_back(self)
        return self._from_objects(pos, end)

    def _from_objects(self, pos: int, end: int) -> bytes:
        """Get these bytes from all objects that hold a part, several at the same time."""
        pieces = self.pieces.overlapping(pos, end - pos)
        if len(pieces) == 1:
            return self._part(pieces[0], pos, end)
        with ThreadPoolExecutor(min(GETS_AT_ONCE, len(pieces)), "cached-file") as pool:
            return b"".join(pool.map(lambda piece: self._part(piece, pos, end), pieces))

    def _part(self, piece: Piece, pos: int, end: int) -> bytes:
        first, last = max(pos, piece.file_pos), min(end, piece.file_end)
        object_pos = piece.object_pos + first - piece.file_pos
        try:
            return self._objects.get(piece.object, object_pos, last - first)
        except (ObjectMissing, BadObject) as error:
            raise DamagedLog(piece.object, object_pos, self.pieces.base, str(error)) from error

    def _make(self) -> None:
        """Create the local file, unless a give-up has closed it. The folder may have another name
        by now, or be the next tenure's. Raises FileGone, StorageFull, StorageFailed.
        """
        if not self._is_made:
            if self._local.gone:
                raise FileGone(self.path)
            self._cached_files.local.make(self.path)
            self._is_made = True

    def empty(self) -> bool:
        """Drop the local bytes, unless they are being read now; returns whether it did."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            if self._is_made and not self._local.gone:
                self._local.truncate(0)
        except (FileGone, StorageFull, StorageFailed):
            self._is_made = False  # The file is gone, or its disk fails: no reader needs the file.
        finally:
            self._present = set()
            self._reading.release()
        return True

    def close(self) -> None:
        """Never open it again."""
        self._local.close()
        self._cache.forget(self)


class CachedFiles(FilesOverLocal):
    """Files of a cache folder; an index file may lie in an object too."""

    def __init__(self, root: str, objects: ObjectStore, cache: Cache) -> None:
        # A cached file has holes, and is emptied while an answer may be on its way.
        super().__init__(LocalFiles(root, lends=False))
        self.cache = cache
        self.objects = objects
        self.indexes: dict[str, Piece] = {}  # By the path of the index file.
        self.unwritten: dict[str, bytes] = {}  # Contents of small files until they are written.

    def segment_file(self, path: str, pieces: SegmentPieces) -> CachedFile:
        """The file of a segment that is stored in objects."""
        self.note_index(path, pieces)
        return CachedFile(self, path, pieces)

    def note_index(self, path: str, pieces: SegmentPieces) -> None:
        """Remember where the index of this segment file is."""
        if pieces.index is not None:
            self.indexes[path.removesuffix(".log") + ".index"] = pieces.index

    def read_whole(self, path: str) -> bytes:
        """As `Files.read_whole`, also of an index in an object. Raises OSError, StoreUnanswered."""
        piece = self.indexes.get(path)
        if piece is None:
            try:
                return self.local.read_whole(path)
            except FileNotFoundError:
                if path in self.unwritten:
                    return self.unwritten[path]
                raise
        try:
            return self.objects.get(piece.object, piece.object_pos, piece.size)
        except (ObjectMissing, BadObject) as error:
            raise OSError(str(error)) from error

    def unlink(self, path: str) -> None:
        self.indexes.pop(path, None)
        self.local.unlink(path)
