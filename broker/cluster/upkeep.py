"""Upkeep of the shared store besides rounds: packing, uploads and deletions.

The loop makes plans, a shard at a time; a worker thread carries them out. Knows no object and no
statement.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.errors import StorageError, StorageFailed, StorageFull
from braidlog.storage.shared.ledger import LedgerUnanswered, LedgerWentBack
from braidlog.storage.shared.proofs import NoCluster

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.config.logging import ThrottledLog
    from braidlog.broker.metrics import Metrics
    from braidlog.storage.shared.shared_dir import SharedDir

# Pause between two checks for `pack_bytes` of uploads since the last packs.
LOOK_S = 1.0
# Pause between two sweeps for orphans, which list the whole store.
SWEEP_S = 3600.0

log = structlog.get_logger()


class StoreWatch:
    """Counts the work of rounds and packs, in any thread."""

    def __init__(self, metrics: Metrics, seldom: ThrottledLog) -> None:
        self._metrics = metrics
        self._seldom = seldom
        self._lock = threading.Lock()

    def phase(self, phase: str, seconds: float) -> None:
        """Record the duration of a phase of a round."""
        self._metrics.histogram(f"braidlog_round_{phase}_seconds").observe(seconds)

    def uploaded(self, kind: str, size: int) -> None:
        """Count an uploaded object."""
        with self._lock:
            self._metrics.number("braidlog_objects", "put", kind).inc()
            self._metrics.number("braidlog_uploaded_bytes", kind).inc(size)

    def unanswered(self, reason: str) -> None:
        """Report a round that waits for an unresponsive store."""
        self._seldom.warning("store_unanswered", cause="store_unanswered", reason=reason)


class Upkeep:
    """Keeps the shared store of a running broker small, and stops the broker at the end of its
    session.
    """

    def __init__(self, broker: Broker, shared: SharedDir) -> None:
        config = broker.config.shared
        self._shared = shared
        self._metrics = broker.metrics
        self._durability = broker.durability
        self._pack_s = config.pack_ms / 1000
        self._pack_bytes = config.pack_bytes
        self._round = shared.publisher.round  # The last round that the logs know.
        self.lock = trio.Lock()  # Held while a shard is packed, or given up.
        broker.durability.round_listeners.append(self._round_ended)
        shared.measure(StoreWatch(broker.metrics, broker.seldom))
        shared.on_round_full(broker.durability.hurry)

    def _round_ended(self, _: int) -> None:
        self._round = self._shared.publisher.round

    async def run(self) -> None:
        """Run until cancelled; the end of the session stops the broker. Raises StorageFailed."""
        token = trio.lowlevel.current_trio_token()

        def ended(reason: StorageFailed) -> None:
            token.run_sync_soon(self._durability.fail, reason)

        self._shared.session.on_end(ended)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pack_again_and_again)
            nursery.start_soon(self._sweep_again_and_again)
            nursery.start_soon(self._measure)

    async def _pack_again_and_again(self) -> None:
        while True:
            await self.pack()
            await self._until_due()

    async def _until_due(self) -> None:
        """Wait for `pack_bytes` or `pack_ms`; while rounds are full for `pack_ms` only: packs would
        take the store's time from rounds, and segments that fill meanwhile need no packs.
        """
        backlog = self._shared.backlog
        bytes_before, full_before = self._uploaded_bytes(), backlog.full_rounds
        deadline = trio.current_time() + self._pack_s
        while trio.current_time() < deadline:
            await trio.sleep(min(LOOK_S, self._pack_s))
            full, full_before = backlog.full_rounds - full_before, backlog.full_rounds
            if not full and self._uploaded_bytes() - bytes_before >= self._pack_bytes:
                return

    def _uploaded_bytes(self) -> int:
        return self._metrics.number("braidlog_uploaded_bytes", "round").value

    async def pack(self) -> None:
        """Run a cycle over all shards. Raises StorageFailed."""
        plans = self._shared.plans(lambda: self._round)
        while True:
            async with self.lock:  # Hold the shard from the plan to the end of the work.
                todo = next(plans, None)
                if todo is None:
                    break
                if not todo.is_empty:
                    await run_in_thread(self._shared.carry_out, todo)
                    self._shared.apply(todo)
            await trio.lowlevel.checkpoint()
        await self._clean(sweep=False)

    async def _sweep_again_and_again(self) -> None:
        while True:
            await trio.sleep(SWEEP_S)
            await self._clean(sweep=True)

    async def _clean(self, *, sweep: bool) -> None:
        sweeper = self._shared.sweeper
        work = sweeper.sweep if sweep else sweeper.clean
        try:
            swept = await run_in_thread(work)
        except (LedgerUnanswered, StorageFull) as error:
            log.warning("not_swept", reason=str(error))
            return
        except (LedgerWentBack, NoCluster) as error:
            self._durability.fail(error)
            return
        except StorageError as error:
            log.error("not_swept", reason=str(error))
            return
        if swept.orphans:
            log.info("orphans_deleted", count=swept.orphans)
        self._metrics.number("braidlog_objects", "delete", "trash").inc(swept.trash)

    async def _measure(self) -> None:
        shared, number = self._shared, self._metrics.number
        while True:
            number("braidlog_unpublished_bytes").value = shared.backlog.bytes
            number("braidlog_beat_age_seconds").value = round(shared.session.beat_age_s)
            number("braidlog_shards", "held").value = len(shared.session.epochs)
            number("braidlog_fenced").value = shared.session.fenced_others
            cache = shared.cache
            number("braidlog_cache_bytes").value = cache.bytes
            number("braidlog_cache_reads", "hit").value = cache.hits
            number("braidlog_cache_reads", "miss").value = cache.misses
            await trio.sleep(LOOK_S)
