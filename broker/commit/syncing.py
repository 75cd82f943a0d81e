"""Syncs the files of a commit round without blocking the event loop.

Uses the kernel's own queue where the file system supports the queue, otherwise a thread. Both
report the end through an eventfd.
"""

from __future__ import annotations

import os
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from braidlog.broker.limits import SYNC_STOP_S
from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.sync_queue import SYNCS_MAX

if TYPE_CHECKING:
    from braidlog.storage.log.committer import Committer, Round
    from braidlog.storage.log.sync_queue import SyncQueue


class RoundSyncer:
    """Syncs a round at a time: call `start`, then `collect` whenever `fd` is readable.

    Guarantees: a round is over only once all its files were synced without an error. Only `close`
    waits.
    """

    def __init__(self, committer: Committer) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._committer = committer
        self._queue: SyncQueue | None = committer.sync_queue(self.fd)
        self._queue_serves = self._queue is not None
        self._thread = SyncThread(committer, self.fd)
        self._left = 0  # answers still missing
        self._queued = 0  # missing answers of the queue

    def start(self, commit_round: Round) -> None:
        """Begin to sync a round that has begun."""
        self._left = self._queued = 0
        files = commit_round.only_files(SYNCS_MAX) if self._queue_serves else []
        if files and self._queue is not None:
            queued = self._queue.submit([(file.path, file.fd) for file in files])
            self._left = self._queued = queued
            if queued == len(files):
                return
            self._queue_serves = False  # A file system without support, or a full kernel queue.
        self._left += 1
        self._thread.start(commit_round)

    def collect(self) -> bool:
        """Collect the kernel's answers; True once a round is synced. Raises StorageFailed."""
        try:
            self._left -= os.eventfd_read(self.fd)
        except BlockingIOError:
            return False
        if self._left:
            return False
        if self._queued and self._queue is not None:
            self._committer.check_synced(self._queue.results())
        self._thread.check()
        return True

    def close(self) -> None:
        """Wait for a sync that may be under way, then close: its files must stay open until then.

        If the sync fails, or does not end in time, the committer begins no further round, because
        the kernel reports an error only once: another sync of the same files would succeed.
        """
        is_over = self._queue is None or self._queue.close(SYNC_STOP_S)
        if self._queued and self._queue is not None:
            with suppress(StorageFailed):  # The last commit, or another caller, raises the error.
                self._committer.check_synced(self._queue.results())
        if self._thread.stop() and is_over:
            os.close(self.fd)
            return
        # The descriptor stays open: a late answer must not reach another file.
        self._committer.give_up(f"a sync did not end within {SYNC_STOP_S:.0f} s of the stop")


class SyncThread:
    """The committer's own thread; only `stop` waits for the thread.

    Twice as quick to reach as a thread of trio's pool, and never queued behind cold reads.
    """

    def __init__(self, committer: Committer, answered: int) -> None:
        """`answered` is an eventfd that counts the finished rounds."""
        self._committer = committer
        self._answered = answered
        self._jobs: queue.SimpleQueue[Round | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self, commit_round: Round) -> None:
        """Sync the round."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="braidlog-sync", daemon=True)
            self._thread.start()
        self._jobs.put(commit_round)

    def check(self) -> None:
        """Raise the error of the last round, StorageFailed, if the round failed."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> bool:
        """End the thread after its current sync; False if the sync takes too long."""
        if self._thread is None:
            return True
        self._jobs.put(None)
        self._thread.join(SYNC_STOP_S)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (commit_round := self._jobs.get()) is not None:
            try:
                self._committer.sync(commit_round)
            except Exception as error:  # `check` raises the error in the loop.
                self._error = error
            os.eventfd_write(self._answered, 1)
