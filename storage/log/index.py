"""The sparse index of a segment: starts of batches by offset and time (FORMAT.md section 4).

The log does not depend on the index. A look-up checks the entries it uses; for missing or wrong
entries it raises `BadIndex`, and the segment builds the index again from the log. Entries are kept
and searched in their stored form, so that loading an index is a single read.
"""

import threading
from struct import Struct

from crc32c import crc32c

from braidlog.storage.errors import StorageFull, reason_of
from braidlog.storage.formats.batch import ABSENT_US
from braidlog.storage.log.files import File, FileGone, Files

MAGIC = b"BRAIDIDX"
VERSION = 1

# magic, version, reserved, salt, base_offset, reserved
HEADER = Struct("<8sHHIqI")
# offset, file_pos, max_time_us, reserved
ENTRY = Struct("<qQqI")
CRC = Struct("<I")
OFFSET = Struct("<q")
TIME = Struct("<q")
TIME_POS = 16
HEADER_BYTES = HEADER.size + CRC.size
ENTRY_BYTES = ENTRY.size + CRC.size

# Entries gathered before they are written: at the default interval a small write per MiB of log.
PENDING_ENTRIES_MAX = 64
PENDING_BYTES_MAX = PENDING_ENTRIES_MAX * ENTRY_BYTES


class BadIndex(Exception):
    """The index lacks a needed entry, or is wrong: build it again."""


class SparseIndex:
    """Index of a segment. The owner's thread adds entries, any thread looks up."""

    def __init__(self, files: Files, path: str, salt: int, base_offset: int) -> None:
        self.path = path
        self._files = files
        self._salt = salt
        self._base_offset = base_offset
        self._entries = bytearray()
        # Bytes of entries that are in the file; -1: the file has to be written again from the
        # start.
        self._written = 0
        self._file: File | None = None
        self._lock = threading.Lock()

    def create(self) -> None:
        """Start an empty index, for a new segment or before a rebuild. No file is made yet."""
        with self._lock:
            self._entries = bytearray()
            self._written = -1

    def load(self) -> None:
        """Load the file; only its header is checked. Raises BadIndex."""
        try:
            data = self._files.read_whole(self.path)
        except OSError as error:
            raise BadIndex(f"cannot be read: {reason_of(error)}") from error
        if len(data) < HEADER_BYTES or data[:HEADER_BYTES] != self._header():
            raise BadIndex("its header is wrong")
        whole = (len(data) - HEADER_BYTES) // ENTRY_BYTES * ENTRY_BYTES
        with self._lock:
            self._entries = bytearray(data[HEADER_BYTES : HEADER_BYTES + whole])
            self._written = whole
            self._file = self._file or self._files.open(self.path)

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_BYTES

    def entry(self, number: int) -> tuple[int, int, int]:
        """(offset, file_pos, max_time_us) of an entry. Raises BadIndex if its checksum is wrong."""
        pos = number * ENTRY_BYTES
        data = bytes(self._entries[pos : pos + ENTRY_BYTES])
        if crc32c(data[: ENTRY.size], self._salt) != CRC.unpack_from(data, ENTRY.size)[0]:
            raise BadIndex(f"entry {number} is wrong")
        offset, file_pos, max_time_us, _ = ENTRY.unpack_from(data)
        return offset, file_pos, max_time_us

    def last(self) -> tuple[int, int, int] | None:
        """The last entry, None if there is none. Raises BadIndex."""
        return self.entry(len(self) - 1) if self._entries else None

    def add(self, offset: int, file_pos: int, max_time_us: int | None) -> bool:
        """Note that the batch with that base offset begins at `file_pos`; owner's thread only.

        Return True if enough entries wait to be written.
        """
        packed = self._packed(offset, file_pos, max_time_us)
        with self._lock:
            self._entries += packed
            return len(self._entries) - self._written >= PENDING_BYTES_MAX

    def fill(self, entries: list[tuple[int, int, int | None]]) -> None:
        """Replace all entries by freshly built entries, and write the file again."""
        with self._lock:
            self._entries = bytearray(b"".join(self._packed(*entry) for entry in entries))
            self._written = -1

    def floor(self, offset: int) -> tuple[int, int] | None:
        """Return (offset, file_pos) of the last entry at or below `offset`, None without such an
        entry.

        Raises: BadIndex.
        """
        return self._checked_floor(offset, OFFSET, 0)

    def floor_time(self, time_us: int) -> tuple[int, int] | None:
        """(offset, file_pos) of the last entry before which every batch is older than `time_us`.

        Raises: BadIndex.
        """
        return self._checked_floor(time_us - 1, TIME, TIME_POS)

    def _checked_floor(self, wanted: int, field: Struct, field_pos: int) -> tuple[int, int] | None:
        entries = self._entries
        low, high = 0, len(entries) // ENTRY_BYTES
        count = high
        while low < high:
            middle = (low + high) // 2
            if field.unpack_from(entries, middle * ENTRY_BYTES + field_pos)[0] <= wanted:
                low = middle + 1
            else:
                high = middle
        # If a wrong entry misled the search, a neighbour is bad or does not fit.
        column = 0 if field_pos == 0 else 2
        if low < count and self.entry(low)[column] <= wanted:
            raise BadIndex("entries are out of order")
        if low == 0:
            return None
        nearest = self.entry(low - 1)
        if nearest[column] > wanted:
            raise BadIndex("entries are out of order")
        return nearest[0], nearest[1]

    def cut(self, file_pos: int) -> None:
        """Drop the entries for batches after `file_pos`: they are added again or were cut off."""
        with self._lock:
            while self._entries and self._last_pos() > file_pos:
                del self._entries[-ENTRY_BYTES:]
            if self._written > len(self._entries):
                self._written = -1

    def _last_pos(self) -> int:
        return int(ENTRY.unpack_from(self._entries, len(self._entries) - ENTRY_BYTES)[1])

    def flush(self) -> bool:
        """Write the waiting entries; return True if there were any. A full disk is no error here.

        Raises StorageFailed.
        """
        if self._written == len(self._entries):
            return False
        try:
            if self._written < 0:
                self._replace()
            else:
                assert self._file is not None
                data = bytes(self._entries[self._written :])
                self._file.write_at([data], HEADER_BYTES + self._written)
        except (StorageFull, FileGone):
            return True  # They stay in memory, and can always be built again from the log.
        self._written = len(self._entries)
        return True

    def _packed(self, offset: int, file_pos: int, max_time_us: int | None) -> bytes:
        entry = ENTRY.pack(offset, file_pos, ABSENT_US if max_time_us is None else max_time_us, 0)
        return entry + CRC.pack(crc32c(entry, self._salt))

    def _replace(self) -> None:
        if self._file is not None:
            self._file.close()
        self._files.unlink(self.path)
        self._file = self._files.create(self.path)
        self._file.write_at([self._header(), bytes(self._entries)], 0)

    def remove(self) -> None:
        """Remove the file; the next flush writes it again. Raises StorageFailed, StorageFull."""
        self.close()
        self._files.unlink(self.path)
        self._written = -1

    def close(self) -> None:
        """Close the file; look-ups still work on the entries in memory."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def file(self) -> File | None:
        """The index file, or None; a clean stop syncs the file."""
        return self._file

    def _header(self) -> bytes:
        header = HEADER.pack(MAGIC, VERSION, 0, self._salt, self._base_offset, 0)
        return header + CRC.pack(crc32c(header))
