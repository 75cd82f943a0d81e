"""Slot files: the watermark of a partition and the reservation of `written` mode.

Layout in FORMAT.md section 6. Knows nothing of segments; readers beside the broker use
`read_watermark` without any lock.
"""

import os
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from braidlog.storage.log.files import FULL, File, Files, storage_error

WATERMARK_NAME = "watermark"
RESERVED_NAME = "reserved"
WATERMARK_MAGIC = b"BRAIDWMK"
RESERVED_MAGIC = b"BRAIDRSV"

VERSION = 1
SLOT_BYTES = 64

# A sector each, so that a write torn by a power cut harms a single slot at most.
SLOT_DISTANCE = 512

# magic, version, kind, reserved, partition_id, sequence, log_start_offset, offset, reserved
SLOT = Struct("<8sHHIQQqq12s")
CRC = Struct("<I")

assert SLOT.size + CRC.size == SLOT_BYTES


@dataclass(slots=True)
class Watermark:
    """The values of a slot. In a reservation `durable_offset` is the first offset not reserved."""

    log_start_offset: int = 0
    durable_offset: int = 0
    sequence: int = 0


def pack_slot(magic: bytes, kind: int, partition_id: int, mark: Watermark) -> bytes:
    fields = (mark.sequence, mark.log_start_offset, mark.durable_offset)
    rest = SLOT.pack(magic, VERSION, kind, 0, partition_id, *fields, bytes(12))
    return rest + CRC.pack(crc32c(rest))


def unpack_slot(data: bytes, magic: bytes, kind: int, partition_id: int) -> Watermark | None:
    """Return the values of a slot, None if it is not a good slot of that partition."""
    if len(data) < SLOT_BYTES or CRC.unpack_from(data, SLOT.size)[0] != crc32c(data[: SLOT.size]):
        return None
    fields = SLOT.unpack_from(data)
    if fields[:5] != (magic, VERSION, kind, 0, partition_id) or any(fields[8]):
        return None
    return Watermark(log_start_offset=fields[6], durable_offset=fields[7], sequence=fields[5])


def best_slot(data: bytes, magic: bytes, kind: int, partition_id: int) -> Watermark | None:
    """The newest good slot of a whole slot file, None if there is none."""
    first = unpack_slot(data[:SLOT_BYTES], magic, kind, partition_id)
    other = data[SLOT_DISTANCE : SLOT_DISTANCE + SLOT_BYTES]
    second = unpack_slot(other, magic, kind, partition_id)
    if first is None or second is None:
        return first or second
    return first if first.sequence >= second.sequence else second


def read_watermark(folder: str, partition_id: int, kind: int = 1) -> Watermark:
    """The watermark of a partition's folder; all zero where none can be read. For any process."""
    try:
        with open(os.path.join(folder, WATERMARK_NAME), "rb") as file:
            data = file.read(SLOT_DISTANCE + SLOT_BYTES)
    except OSError:
        return Watermark()
    return best_slot(data, WATERMARK_MAGIC, kind, partition_id) or Watermark()


class SlotFile:
    """Writes two slots in turn. `mark` is the newest state; a round has to sync `file`.

    Guarantees: a write that a crash cuts off leaves the other slot whole. No write is synced.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        magic: bytes,
        kind: int,
        partition_id: int,
        *,
        may_exist: bool = True,
    ) -> None:
        """Raises StorageFull if no descriptor is left."""
        self.path = path
        self.mark = Watermark()
        self.has_mark = False
        self.unreadable: OSError | None = None
        self.file: File | None = None
        self._files = files
        self._identity = (magic, kind, partition_id)
        if may_exist:
            self._load()

    def _load(self) -> None:
        try:
            data = self._files.read_head(self.path, SLOT_DISTANCE + SLOT_BYTES)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in FULL:
                raise storage_error(error, "read", self.path) from error
            self.unreadable = error  # The watermark is then too low, which is safe.
            self.file = self._files.open(self.path)
            return
        self.file = self._files.open(self.path)
        mark = best_slot(data, *self._identity)
        if mark is not None:
            self.mark = mark
            self.has_mark = True

    def says(self, log_start_offset: int, offset: int) -> bool:
        """Return True if the newest slot already holds these values."""
        mark = self.mark
        return mark.sequence > 0 and (
            (mark.log_start_offset, mark.durable_offset) == (log_start_offset, offset)
        )

    def write(self, log_start_offset: int, offset: int) -> bool:
        """Write new values into the older slot, unsynced; True if this created the file.

        Raises: StorageFull, StorageFailed.
        """
        is_new = self.file is None
        if self.file is None:
            self.file = self._files.create(self.path)
        mark = Watermark(log_start_offset, offset, self.mark.sequence + 1)
        pos = mark.sequence % 2 * SLOT_DISTANCE
        self.file.overwrite_at(pack_slot(self._identity[0], *self._identity[1:], mark), pos)
        self.mark = mark
        return is_new

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
