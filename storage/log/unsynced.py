"""The files that a log has written since its last round began: its part of the next round.

Files stay open from the first write until the round that syncs them has ended, so that a sync
reports every error (fsync(2), "Errors"). Knows no segment.
"""

from braidlog.storage.errors import StorageFull
from braidlog.storage.log.committer import SyncPoint
from braidlog.storage.log.files import File
from braidlog.storage.log.watermark import SlotFile


class Unsynced:
    """Files and folder of a log that the next round must sync.

    Guarantees: a file written since the last round stays open until a round has synced the file, so
    no write error is lost. Never waits.
    """

    def __init__(self, folder: str) -> None:
        self.files: dict[File, None] = {}  # Always the same dict, so that appends may read it.
        # The process that created these files may have been killed right afterwards.
        self.names_changed = True
        self._folder = folder

    def hold(self, file: File) -> None:
        """Mark a file for the next sync and keep the file open until then.

        Raises StorageFull, StorageFailed.
        """
        if file not in self.files:
            file.hold()
            self.files[file] = None

    def let_go(self, file: File) -> None:
        """Release a file that was held for a write that did not happen."""
        del self.files[file]
        file.release()

    def note_names(self) -> None:
        """Sync the folder with the next round: its names have changed."""
        self.names_changed = True

    def write_slot(self, slot: SlotFile, log_start_offset: int, durable_offset: int) -> None:
        """Write the watermark slot without syncing. On a full disk the slot stays behind, which is
        safe.

        Raises: StorageFailed.
        """
        if slot.says(log_start_offset, durable_offset):
            return
        try:
            self.names_changed |= slot.write(log_start_offset, durable_offset)
        except StorageFull:
            return

    def take(self, end_offset: int) -> SyncPoint:
        """Take everything for the round that begins now; later writes belong to the next round."""
        files = list(self.files)
        folders = [self._folder] if self.names_changed else []
        self.files.clear()
        self.names_changed = False
        return SyncPoint(files, folders, end_offset)

    def synced(self, point: SyncPoint) -> None:
        """Release the files of a finished round."""
        for file in point.files:
            file.release()

    def close(self) -> None:
        """Release the files that no round took, because the log is closed."""
        for file in self.files:
            file.release()
        self.files.clear()
