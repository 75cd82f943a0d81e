"""Runs the committer: begins the rounds, and does what follows each.

While one round syncs the next gathers; nothing is delayed on purpose. A round begins where the
poller's pass ends that gathered it, or in the task of `run` for what others marked; its end comes
through the poller, so that a request and its sync switch no task. After a round its readers are
woken and the answers that waited for it leave. A failed sync is never retried: it ends `run`, and
with it the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from braidlog.broker.commit.storage_errors import StorageErrorLog
from braidlog.broker.commit.syncing import RoundSyncer
from braidlog.broker.commit.waiters import Awaited, Waiters
from braidlog.broker.metrics import Histogram
from braidlog.broker.runtime.outbox import Outbox
from braidlog.broker.runtime.poller import Poller
from braidlog.storage.errors import StorageError, StorageFailed

if TYPE_CHECKING:
    from braidlog.storage.log.committer import Committer, Round


@dataclass(slots=True)
class _Running:
    """The round under way."""

    commit_round: Round
    appended: set[Awaited]  # partitions with appends in it
    came_s: float  # when the oldest of them came
    begun_s: float


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
        poller: Poller,
        *,
        flush_interval_ms: int,
        sync_seconds: Histogram | None = None,
        append_seconds: Histogram | None = None,
    ) -> None:
        """`poller` tells when a sync is over. `flush_interval_ms` is how long what nobody waits for
        may stay unsynced.
        """
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
        self._failure: Exception | None = None
        self._poller = poller
        self._syncer: RoundSyncer | None = None  # while `run` runs
        self._running: _Running | None = None
        self._outboxes: dict[int, list[Outbox]] = {}  # by the ticket that their first answer awaits
        self._appended: set[Awaited] = set()  # partitions with appends in the gathering round
        committer.on_dirty = self._on_dirty
        poller.pass_listeners.append(self._begin)

    @property
    def durable_ticket(self) -> int:
        """What was marked with this ticket or a lower one is on disk."""
        return self.committer.durable_ticket

    @property
    def ticket(self) -> int:
        """What was marked until now is on disk once `durable_ticket` has reached this."""
        return self.committer.ticket

    def watch(self, outbox: Outbox, ticket: int) -> None:
        """Release the outbox's answers once this ticket is durable."""
        self._outboxes.setdefault(ticket, []).append(outbox)

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
        self._stop(error)

    async def run(self) -> None:
        """Commit round after round until cancelled. Raises StorageFailed when a write or sync
        failed.
        """
        syncer = RoundSyncer(self.committer)
        self._poller.watch(syncer.fd, self._sync_answered, is_client=False)
        self._syncer = syncer
        try:
            while self._failure is None:
                await self._gather_more()
                self._begin_now()
                if self._failure is None:
                    await self._dirty.park()
            raise self._failure
        finally:
            self._syncer = None
            self._poller.unwatch(syncer.fd)
            syncer.close()

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

    def _begin(self) -> None:
        """Begin the next round if one has gathered and none runs; `run` waits where it should
        gather for longer.
        """
        if self._running is not None or (self._quiet and not self.committer.gathers):
            return
        if self.committer.wait_s() > 0:
            self._dirty.unpark_all()
        else:
            self._begin_now()

    def _begin_now(self) -> None:
        if self._syncer is None or self._running is not None or self._failure is not None:
            return
        try:
            commit_round = self.committer.begin()
            if commit_round is None:
                if not self._quiet:
                    self._quiet = True
                    self._round_done.unpark_all()
                return
            appended, self._appended = self._appended, set()
            self._running = _Running(
                commit_round, appended, self._first_append_s, time.perf_counter()
            )
            self._syncer.start(commit_round)
        except Exception as error:  # A bug too: nothing may be acknowledged after it.
            self._stop(error)

    def _sync_answered(self) -> bool:
        """A sync is over: if it was the round's last one, finish the round and begin the next."""
        running, syncer = self._running, self._syncer
        if running is None or syncer is None or self._failure is not None:
            return False
        try:
            if not syncer.collect():
                return False
            synced = time.perf_counter()
            self._sync_seconds.observe(synced - running.begun_s)
            if running.appended:
                self._append_seconds.observe(synced - running.came_s)
            self.committer.finish(running.commit_round)
            self._running = None
            self._round_finished(running.appended)
        except Exception as error:  # A bug too: nothing may be acknowledged after it.
            self._stop(error)
        self._begin()
        return False

    def _stop(self, error: Exception) -> None:
        """Have `run` raise the first such error."""
        self._failure = self._failure or error
        self._dirty.unpark_all()
        self._hurry.unpark_all()

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
        durable = self.durable_ticket
        for ticket in [ticket for ticket in self._outboxes if ticket <= durable]:
            for outbox in self._outboxes.pop(ticket):
                outbox.release()
        self._round_done.unpark_all()

    def _on_dirty(self) -> None:
        self._quiet = False
        if not self._poller.in_pass:  # At whose end a round begins, with all that it has marked.
            self._dirty.unpark_all()
