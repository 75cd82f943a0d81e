"""A member of commit rounds whose sync lasts as long as a test decides."""

import threading

import trio

from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.committer import SyncPoint
from tests.waiting import HANG_S


class HeldDisk:
    """A file that syncs on the test's request, as a member of rounds."""

    def __init__(self, folders=()):
        """Create the member; with `folders`, rounds are synced in a thread even if there is a
        queue.
        """
        self.folders = folders
        self.syncs = 0
        self.threads = set()
        self.failing = False
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncing = threading.Event()
        self.marked = self.durable = 0
        self.waits = {}
        self.removed = False

    @property
    def high_watermark(self):
        return self.durable

    def datasync(self):
        self.syncing.set()
        assert self.may_sync.wait(HANG_S)
        self.threads.add(threading.current_thread().name)
        if self.failing:
            raise StorageFailed("fdatasync of 0.log: Input/output error")
        self.syncs += 1

    def begin_sync(self):
        return SyncPoint([self], self.folders, self.marked)

    def finish_sync(self, point):
        self.durable = point.end_offset

    async def is_syncing(self):
        """Wait until a round is in this member's sync."""
        await trio.to_thread.run_sync(self.syncing.wait)
        self.syncing.clear()
