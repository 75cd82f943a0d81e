"""Runs the committer: begins commit rounds and handles the end of each round.

While a round syncs, the next round gathers; nothing is delayed on purpose. A round begins at the
end of the poller pass that gathered the round, or in the task of `run` for changes marked by other
tasks. The poller reports the end of a round, so that a request and its sync need no task switch.
After a round the broker wakes the round's readers and releases the answers that waited for the
round. A failed sync is never retried: `run` ends with the error, and the broker stops.
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
    appended: set[Awaited]  # partitions with appends in the round
    came_s: float  # time of the oldest of these appends
    begun_s: float


class CommitRounds:
    """Commit rounds, and the readers and answers that wait for them. Implements `Tickets`.

    Guarantees: a ticket is reported durable only after every file and folder marked up to the
    ticket was synced; readers wake and answers leave after that, never before. Only `all_durable`,
    `reached` and the task in `run` wait; all other methods return at once.
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
        """`poller` reports the end of a sync. `flush_interval_ms` limits how long a change that no
        client waits for may stay unsynced.
        """
        self.committer = committer
        self.waiters = waiters
        self.round_listeners: list[Callable[[int], None]] = []
        """Called after each round with its ticket, before readers wake and answers leave."""
        self._error_log = StorageErrorLog()
        self._sync_seconds = sync_seconds or Histogram()
        self._append_seconds = append_seconds or Histogram()
        self._first_append_s = 0.0  # Time of the oldest append in the gathering round.
        self._flush_interval_ms = flush_interval_ms
        self._dirty = trio.lowlevel.ParkingLot()
        self._round_done = trio.lowlevel.ParkingLot()
        self._hurry = trio.lowlevel.ParkingLot()
        self._quiet = True  # no round runs and none gathers
        self._failure: Exception | None = None
        self._poller = poller
        self._syncer: RoundSyncer | None = None  # set while `run` runs
        self._running: _Running | None = None
        self._outboxes: dict[int, list[Outbox]] = {}  # by the ticket that their first answer awaits
        self._appended: set[Awaited] = set()  # partitions with appends in the gathering round
        committer.call_when_dirty(self._on_dirty)
        poller.pass_listeners.append(self._begin)

    @property
    def durable_ticket(self) -> int:
        return self.committer.durable_ticket

    @property
    def ticket(self) -> int:
        """All changes marked so far are on disk once `durable_ticket` has reached this ticket."""
        return self.committer.ticket

    def watch(self, outbox: Outbox, ticket: int) -> None:
        self._outboxes.setdefault(ticket, []).append(outbox)

    def appended(self, partition: Awaited) -> int:
        """Wake the partition's readers once the gathering round is on disk; return its ticket."""
        if not self._appended:
            self._first_append_s = time.perf_counter()
        self._appended.add(partition)
        return self.ticket

    def report_storage_error(self, error: StorageError) -> None:
        """Log a storage error that makes a request fail; a fatal error stops the broker."""
        self._error_log.note(error)
        if isinstance(error, StorageFailed):
            self.fail(error)

    def fail(self, error: StorageFailed) -> None:
        """Stop the broker after a permanent write failure outside a round."""
        self._stop(error)

    async def run(self) -> None:
        """Commit rounds until cancelled. Raises StorageFailed after a failed write or sync."""
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
        """Move lazily marked changes into a round every `flush_interval_ms`, until cancelled."""
        while True:
            await trio.sleep(self._flush_interval_ms / 1000)
            self.committer.promote_lazy()

    async def all_durable(self) -> None:
        """Wait until all changes marked so far, including lazy changes, are on disk."""
        self.committer.promote_lazy()
        ticket = self.ticket
        while not self._quiet and self.durable_ticket < ticket:
            await self._round_done.park()

    async def reached(self, ticket: int) -> None:
        """Wait until the changes marked with this ticket are on disk (0: return at once).

        For work that must not begin earlier. An answer alone waits in its outbox.
        """
        while self.durable_ticket < ticket:
            await self._round_done.park()

    def _begin(self) -> None:
        """Begin the next round if a round has gathered and none runs.

        `run` waits if the round should gather for longer.
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
        # Includes bugs: nothing may be acknowledged after an error here.
        except Exception as error:
            self._stop(error)

    def _sync_answered(self) -> bool:
        """Handle the end of a sync: after the round's last sync, finish the round,
        begin the next.
        """
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
        # Includes bugs: nothing may be acknowledged after an error here.
        except Exception as error:
            self._stop(error)
        self._begin()
        return False

    def _stop(self, error: Exception) -> None:
        """Make `run` raise the first such error."""
        self._failure = self._failure or error
        self._dirty.unpark_all()
        self._hurry.unpark_all()

    async def _gather_more(self) -> None:
        """Let the gathering round gather as long as configured: on a local disk not at all."""
        wait_s = self.committer.wait_s()
        if wait_s > 0:
            with trio.move_on_after(wait_s):
                await self._hurry.park()

    def hurry(self) -> None:
        """Stop waiting for more changes: the gathering round is full."""
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
        # The end of a pass begins a round with all changes that the pass marked.
        if not self._poller.in_pass:
            self._dirty.unpark_all()
