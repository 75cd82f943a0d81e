"""Joins a broker to a cluster: stores, session, and the cache folder.

Imported only with `storage.mode` shared, as the extra `shared` is required.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog
import trio

from braidlog.broker.config.settings import ConfigError
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.shared.obstore import ObstoreObjects, StoreSetting
from braidlog.storage.shared.packer import PackerSettings
from braidlog.storage.shared.postgres import PostgresLedger
from braidlog.storage.shared.proofs import open_cluster
from braidlog.storage.shared.publisher import RoundSettings
from braidlog.storage.shared.session import ClusterSession, SessionSettings
from braidlog.storage.shared.shared_dir import SharedDir, SharedSettings
from braidlog.storage.shared.takeover import for_a_while, surely

if TYPE_CHECKING:
    from braidlog.broker.config.settings import Config

log = structlog.get_logger()


def stores(config: Config) -> tuple[PostgresLedger, ObstoreObjects]:
    """Return the ledger and object store of the configuration. Raises ConfigError."""
    shared = config.shared
    assert shared.database is not None and shared.store is not None, "checked with the settings"
    try:
        objects = ObstoreObjects(shared.store, shared.endpoint, timeout_ms=shared.put_timeout_ms)
    except StoreSetting as error:
        raise ConfigError(f"shared.store: {error}") from error
    return PostgresLedger(shared.database), objects


def ledger_of(config: Config) -> PostgresLedger:
    """Return another connection to the ledger, for a task that waits for news."""
    assert config.shared.database is not None, "checked with the settings"
    return PostgresLedger(config.shared.database)


async def join_cluster(config: Config) -> SharedDir:
    """Join the cluster; no shard is owned yet.

    Raises ConfigError and storage errors. A cancelled call ends the session.
    """
    session = await run_in_thread(_begin, config)
    shared: SharedDir | None = None
    try:
        shared = await run_in_thread(_open, config, session)
        await trio.lowlevel.checkpoint_if_cancelled()  # The thread was not cut short.
        return shared
    except BaseException:  # Includes cancellation: other brokers need not wait for the lease.
        if shared is not None:
            shared.abandon()
        else:
            session.leave()
            session.close()
        raise


def _begin(config: Config) -> ClusterSession:
    ledger, objects = stores(config)
    cluster = config.cluster
    settings = SessionSettings(
        cluster.node_id, cluster.lease_ms, cluster.beat_ms, cluster.serve_without_beat_ms
    )
    patience = for_a_while(
        sleep=_sleep_unless_cancelled, seconds=cluster.join_ms / 1000, tell=_Told()
    )
    try:
        opened = surely(lambda: open_cluster(ledger, objects), patience)
        session = ClusterSession(ledger, objects, opened, settings)
        session.begin({}, patience)
    except BaseException:  # Includes cancellation.
        ledger.close()
        raise
    log.info("joined", node=cluster.node_id, session=session.number)
    return session


class _Told:
    """Logs each reason of a start that waits for a store, once."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def __call__(self, reason: str) -> None:
        if reason not in self._reasons:
            self._reasons.add(reason)
            log.warning("store_unanswered", reason=reason)


def _sleep_unless_cancelled(seconds: float) -> None:
    """Sleep in a worker thread. Raises trio.Cancelled if the waiting task was cancelled."""
    trio.from_thread.check_cancelled()
    time.sleep(seconds)
    trio.from_thread.check_cancelled()


def _open(config: Config, session: ClusterSession) -> SharedDir:
    shared = config.shared
    settings = SharedSettings(
        RoundSettings(shared.round_ms, shared.round_bytes, config.cluster.stall_ms),
        PackerSettings(shared.delete_after_ms, config.log.index_interval_bytes, shared.pack_bytes),
        cache_bytes=shared.cache_bytes,
        unpublished_bytes_max=shared.unpublished_bytes_max,
    )
    return SharedDir.of_session(config.data_dir, session, settings)
