"""Runs the committer: one task, one thread of its own that syncs, and what follows each round.

While one round syncs the next gathers; nothing is delayed on purpose. After a round its readers
are woken and the answers that waited for it leave. A failed sync is never retried: it ends
`run`, and with it the broker.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from broker.commit.storage_errors import StorageErrorLog
from broker.commit.waiters import Awaited, Waiters
from broker.limits import SYNC_STOP_S
from broker.metrics import Histogram
from broker.server.outbox import Outbox
from storage.errors import StorageError, StorageFailed

if TYPE_CHECKING:
    from storage.log.committer import Committer, Round


class Durability:
    """Commit rounds and those who wait for them.

    Guarantees: a ticket is reported durable only after every file and folder marked up to it was
    synced; readers wake and answers leave after that, never before. Only `settled`, `reached` and
    the task in `run` wait; everything else returns at once.
    """

    def __init__(
        self,
        committer: Committer,
        waiters: Waiters,
        *,
        flush_interval_ms: int,
        sync_seconds: Histogram | None = None,
        append_seconds: Histogram | None = None,
    ) -> None:
        """`flush_interval_ms` is how long what nobody waits for may stay unsynced."""
        self.committer = committer
        self.waiters = waiters
        self.round_listeners: list[Callable[[int], None]] = []
        """Called after each round with its ticket, before readers wake and answers leave."""
        self._error_log = StorageErrorLog()
        self._sync_seconds = sync_seconds or Histogram()
        self._append_seconds = append_seconds or Histogram()
        self._first_append_s = 0.0  # When the oldest append of the gathering round came.
        self._flush_interval_ms = flush_interval_ms
        self._dirty = trio.lowlevel.ParkingLot()
        self._round_done = trio.lowlevel.ParkingLot()
        self._hurry = trio.lowlevel.ParkingLot()
        self._quiet = True  # no round runs and none gathers
        self._failure: StorageFailed | None = None
        self._outboxes: set[Outbox] = set()
        self._appended: set[Awaited] = set()  # partitions with appends in the gathering round
        committer.on_dirty = self._on_dirty

    @property
    def durable_ticket(self) -> int:
        """What was marked with this ticket or a lower one is on disk."""
        return self.committer.durable_ticket

    @property
    def ticket(self) -> int:
        """What was marked until now is on disk once `durable_ticket` has reached this."""
        return self.committer.ticket

    def watch(self, outbox: Outbox) -> None:
        """Release the outbox's answers after each round for as long as it has pending ones."""
        self._outboxes.add(outbox)

    def appended(self, partition: Awaited) -> int:
        """Wake the partition's readers once the gathering round is on disk; return its ticket."""
        if not self._appended:
            self._first_append_s = time.perf_counter()
        self._appended.add(partition)
        return self.ticket

    def report_storage_error(self, error: StorageError) -> None:
        """Log a storage error that a request fails with; a fatal one stops the broker."""
        self._error_log.note(error)
        if isinstance(error, StorageFailed):
            self.fail(error)

    def fail(self, error: StorageFailed) -> None:
        """A write failed for good outside a round: the broker has to stop."""
        self._failure = self._failure or error
        self._dirty.unpark_all()
        self._hurry.unpark_all()

    async def run(self) -> None:
        """Commit round after round until cancelled. Raises StorageFailed when a write or sync
        failed.
        """
        worker = SyncThread(self.committer)
        try:
            await self._commit_rounds(worker)
        finally:
            worker.stop()

    async def promote(self) -> None:
        """Bring what was marked lazily into a round every `flush_interval_ms`, until cancelled."""
        while True:
            await trio.sleep(self._flush_interval_ms / 1000)
            self.committer.promote_lazy()

    async def settled(self) -> None:
        """Wait until everything marked so far, lazily too, is on disk."""
        self.committer.promote_lazy()
        ticket = self.ticket
        while not self._quiet and self.durable_ticket < ticket:
            await self._round_done.park()

    async def reached(self, ticket: int) -> None:
        """Wait until what was marked with this ticket is on disk (0: at once), before something
        that must not come earlier is begun. An answer alone waits in its outbox.
        """
        while self.durable_ticket < ticket:
            await self._round_done.park()

    async def _commit_rounds(self, worker: SyncThread) -> None:
        committer = self.committer
        while True:
            if self._failure is not None:
                raise self._failure
            await self._gather_more()
            commit_round = committer.begin()
            if commit_round is None:
                self._quiet = True
                self._round_done.unpark_all()
                await self._dirty.park()
                continue
            appended, self._appended = self._appended, set()
            came, begun = self._first_append_s, time.perf_counter()
            await worker.sync(commit_round)
            synced = time.perf_counter()
            self._sync_seconds.observe(synced - begun)
            if appended:
                self._append_seconds.observe(synced - came)
            committer.finish(commit_round)
            self._round_finished(appended)

    async def _gather_more(self) -> None:
        """Let the gathering round gather as long as it should: on a local disk not at all."""
        wait_s = self.committer.wait_s()
        if wait_s > 0:
            with trio.move_on_after(wait_s):
                await self._hurry.park()

    def hurry(self) -> None:
        """The gathering round is full: do not wait for more."""
        self._hurry.unpark_all()

    def _round_finished(self, appended: set[Awaited]) -> None:
        for listener in self.round_listeners:
            listener(self.durable_ticket)
        for partition in appended:
            self.waiters.wake(partition)
        outboxes, self._outboxes = self._outboxes, set()
        for outbox in outboxes:
            if outbox.release():
                self._outboxes.add(outbox)
        self._round_done.unpark_all()

    def _on_dirty(self) -> None:
        self._quiet = False
        self._dirty.unpark_all()


class SyncThread:
    """The committer's own thread: twice as quick to reach as a thread of trio's pool, and never
    behind cold reads. It answers through an eventfd, which wakes the waiting task itself.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._jobs: queue.SimpleQueue[Round | None] = queue.SimpleQueue()
        self._results: list[Exception | None] = []
        self._answered = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._work, name="braidlog-sync", daemon=True)
        self._thread.start()

    async def sync(self, commit_round: Round) -> None:
        """Sync the round's files. Raises StorageFailed."""
        self._jobs.put(commit_round)
        await trio.lowlevel.wait_readable(self._answered)
        os.eventfd_read(self._answered)
        error = self._results.pop()
        if error is not None:
            raise error

    def stop(self) -> None:
        """End the thread, waiting for the sync it may be in: files must not be closed under it."""
        self._jobs.put(None)
        self._thread.join(SYNC_STOP_S)
        if not self._thread.is_alive():  # Else it may still answer: into no other file, then.
            os.close(self._answered)

    def _work(self) -> None:
        while (commit_round := self._jobs.get()) is not None:
            try:
                self._committer.sync(commit_round)
            except Exception as error:  # Raised in the task that waits for this round.
                self._results.append(error)
            else:
                self._results.append(None)
            os.eventfd_write(self._answered, 1)
