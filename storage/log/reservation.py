"""Offsets reserved ahead, for durability `written`: no offset ever names two records.

In that mode records are shown before they are synced, so after an unclean stop it is unknown which
offsets were seen. All of them are below the reservation, which is synced before they are given out
(FORMAT.md section 6). Knows no segment.
"""

from braidlog.storage.log.files import File, Files, storage_error
from braidlog.storage.log.segment_header import KIND_PARTITION
from braidlog.storage.log.watermark import RESERVED_MAGIC, RESERVED_NAME, SlotFile

# Offsets reserved at once: at a million records a second still a second between two extensions,
# and a gap of a million offsets after a crash is nothing out of 2^63.
RESERVE_OFFSETS = 1 << 20


class OffsetReservation:
    """The reservation of a partition. `limit`: offsets below it may be given out.

    Guarantees: after a crash no offset that a reader may have seen is used again. `reserve_now` and
    `release_unused` wait for the disk, the other methods only write.
    """

    def __init__(
        self, files: Files, folder: str, partition_id: int, *, may_exist: bool = True
    ) -> None:
        """`may_exist` is False where the folder is known to hold no reservation.

        Raises StorageFailed if a reservation exists but cannot be read.
        """
        self._files = files
        self._folder = folder
        self._is_named = False  # Whether the file's name is known to be durable.
        path = f"{folder}/{RESERVED_NAME}"
        owner = (RESERVED_MAGIC, KIND_PARTITION, partition_id)
        self._slots = SlotFile(files, path, *owner, may_exist=may_exist)
        if self._slots.unreadable is not None:
            # Otherwise offsets that readers have seen would be used again.
            raise storage_error(self._slots.unreadable, "read", path)
        self.limit = self._slots.mark.durable_offset

    @property
    def is_used(self) -> bool:
        """True if there is, or was, a reservation."""
        return self._slots.file is not None

    def reserve_now(self, needed_offset: int) -> None:
        """Reserve at least up to that offset and wait for the disk.

        Raises: StorageFull, StorageFailed.
        """
        self._write_now(needed_offset + RESERVE_OFFSETS)

    def release_unused(self, log_end_offset: int) -> None:
        """Give back the offsets above the log end; all below are durable. Waits for the disk.

        Raises: StorageFull, StorageFailed.
        """
        if self.is_used:
            self._write_now(log_end_offset)

    def lower(self, limit: int) -> File | None:
        """Write, without a sync, that nothing at or above `limit` was given out; everything below
        must be durable. Returns the file to sync, or None.

        Raises: StorageFull, StorageFailed.
        """
        if self.is_used:
            self._slots.write(0, limit)
            self.limit = limit
        return self._slots.file

    def extend(self, log_end_offset: int) -> tuple[File, int] | None:
        """Write, without a sync, a further reservation when half of the present reservation is
        used.

        Returns the file to sync and the limit to `confirm` then, None when there is no need yet.
        Raises: StorageFull, StorageFailed.
        """
        if self.limit - log_end_offset > RESERVE_OFFSETS // 2 or self._slots.file is None:
            return None
        limit = log_end_offset + RESERVE_OFFSETS
        self._slots.write(0, limit)
        return self._slots.file, limit

    def confirm(self, limit: int) -> None:
        """Use a reservation, which is durable now. Raises StorageFull, StorageFailed."""
        if limit > self.limit:
            self._slots.write(0, limit)  # Into the other slot too: neither may hold a lower limit.
            self.limit = limit

    def _write_now(self, limit: int) -> None:
        is_new = self._slots.write(0, limit)
        assert self._slots.file is not None
        self._slots.file.datasync()
        if is_new or not self._is_named:
            self._files.sync_folder(self._folder)
            self._is_named = True
        self.limit = limit
        self._slots.write(0, limit)

    def close(self) -> None:
        """Close the file."""
        self._slots.close()
