"""Syncs the files of one commit round without holding up the loop: by the kernel's own queue where
that serves, in a thread otherwise. Either way an eventfd tells the end.
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
    """One round at a time: `start` it, and whenever `fd` can be read call `collect`.

    Guarantees: a round is over only once every file of it was synced without an error. Only `close`
    waits.
    """

    def __init__(self, committer: Committer) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._committer = committer
        self._queue: SyncQueue | None = committer.sync_queue(self.fd)
        self._queue_serves = self._queue is not None
        self._thread = SyncThread(committer, self.fd)
        self._left = 0  # answers to come
        self._queued = 0  # of them from the queue

    def start(self, commit_round: Round) -> None:
        """Begin to sync a round that has begun."""
        self._left = self._queued = 0
        files = commit_round.only_files(SYNCS_MAX) if self._queue_serves else []
        if files and self._queue is not None:
            queued = self._queue.submit([(file.path, file.fd) for file in files])
            self._left = self._queued = queued
            if queued == len(files):
                return
            self._queue_serves = False  # A file system that it does not serve, or a full kernel.
        self._left += 1
        self._thread.start(commit_round)

    def collect(self) -> bool:
        """Take what the kernel answered; True once a round is all synced. Raises StorageFailed."""
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
        """End, waiting for the sync that may be under way: files must not be closed under it. If it
        fails, the committer begins no further round: the kernel tells an error once.
        """
        is_over = self._queue is None or self._queue.close(SYNC_STOP_S)
        if self._queued and self._queue is not None:
            with suppress(StorageFailed):  # The last commit, or whoever else comes, raises it.
                self._committer.check_synced(self._queue.results())
        if self._thread.stop() and is_over:  # Else it may still answer: into no other file, then.
            os.close(self.fd)


class SyncThread:
    """The committer's own thread: twice as quick to reach as a thread of trio's pool, and never
    behind cold reads. Only `stop` waits for it.
    """

    def __init__(self, committer: Committer, answered: int) -> None:
        """`answered` is an eventfd, which counts the rounds that are over."""
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
        """Raises what became of the last round, StorageFailed, if that failed."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> bool:
        """End the thread, waiting for the sync it may be in; False if that takes too long."""
        if self._thread is None:
            return True
        self._jobs.put(None)
        self._thread.join(SYNC_STOP_S)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (commit_round := self._jobs.get()) is not None:
            try:
                self._committer.sync(commit_round)
            except Exception as error:  # `check` raises it in the loop.
                self._error = error
            os.eventfd_write(self._answered, 1)
