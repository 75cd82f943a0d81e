"""Keeps this broker a member of the cluster: observes other brokers, follows the catalogue, takes
the shards that this broker should own, and gives up others.

A single task takes each step in turn; threads ask the stores. Only the loop decides whether a shard
is held (`ClusterPlacement.held`), and only while the ledger agrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.cluster.assignment import to_give, to_take
from braidlog.broker.cluster.placement import CATALOGUE_SHARD, Owner
from braidlog.broker.config.settings import parse_address
from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.errors import DamagedLog, StorageError
from braidlog.storage.log.segment_header import KIND_CATALOGUE
from braidlog.storage.metadata.journal_positions import JournalPositions
from braidlog.storage.shared.catalogue import NotFollowed
from braidlog.storage.shared.ledger import LedgerUnanswered

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.cluster.upkeep import Upkeep
    from braidlog.broker.cluster_parts import ClusterParts
    from braidlog.storage.shared.ledger import Ledger
    from braidlog.storage.shared.session import ClusterView
    from braidlog.storage.shared.shared_dir import ShardContents

# Pause between two reads of the ledger without news: part of the time that clients wait for another
# broker.
LOOK_S: Final = 0.25
# Time for other brokers to take this broker's shards at a stop: five times the usual time on a busy
# machine, and below half of the time that supervisors allow.
HAND_OVER_S: Final = 10.0

log = structlog.get_logger()


class Membership:
    """Membership of a broker in the cluster."""

    def __init__(self, broker: Broker, parts: ClusterParts, upkeep: Upkeep, news: Ledger) -> None:
        """`news` is a ledger connection for waiting for news alone."""
        self._broker = broker
        self._parts = parts
        self._shared = parts.shared
        self._session = parts.shared.session
        self._upkeep = upkeep
        self._news = news
        self._looking = trio.Lock()  # Held while a view is read and shown: no older view is last.
        parts.placement.on_look(self.look)
        self._free_since: dict[int, float] = {}
        # Held while the catalogue, or the set of held shards, changes.
        self._changing = trio.Lock()
        self._told_waiting = False
        self._view: ClusterView | None = None  # Of the last look,
        self._looked = trio.lowlevel.ParkingLot()  # woken after each.

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Started once every shard has an owner and the catalogue is known.
        Raises StorageFailed, DamagedLog if the catalogue cannot be read.
        """
        while not await self.step() and not self._broker.stopping.is_set():
            await self._await_news()
        task_status.started()
        while True:
            await self._await_news()
            await self.step()

    async def _await_news(self) -> None:
        try:
            await run_in_thread(self._news.await_news, LOOK_S, abandon_on_cancel=True)
        except LedgerUnanswered:
            await trio.sleep(LOOK_S)

    async def step(self) -> bool:
        """Read the ledger, follow the catalogue, take and give up shards; return whether the broker
        can serve clients. Raises StorageFailed, DamagedLog.
        """
        try:
            async with self._looking:
                view = await run_in_thread(self._session.look)
                await self.follow()
                self._parts.catch_up()
                self._show(view)
        except LedgerUnanswered:
            return False
        if self._session.clock_went_back:
            self._broker.seldom.warning("database_clock_set_back", cause="database_clock_set_back")
        self._view = view
        self._looked.unpark_all()
        number = self._session.number
        if wanted := to_take(view, number, self._free_s(view)):
            await self._take(wanted)
        leaving = to_give(view, number, 2 * self._session.settings.lease_ms)
        held = self._parts.placement.held
        if leaving := [shard for shard in leaving if shard in held]:
            await self._give(leaving)
        return self._check_owners(view)

    async def look(self) -> None:
        """Read the owners of all shards now: each broker that took a shard later follows the
        catalogue later than this call. Raises NotOwner if the ledger does not answer.
        """
        try:
            async with self._looking:
                self._show(await run_in_thread(self._session.look))
        except StorageError as error:  # No answer, or the end of the session.
            raise NotOwner(f"the owners are not known now: {error}", 0) from error

    def _check_owners(self, view: ClusterView) -> bool:
        """Return whether clients can be served: every shard has an owner, and a
        catalogue exists.
        """
        mine = self._session.epochs
        free = [row.shard for row in view.shards if row.session is None and row.shard not in mine]
        if free and not self._told_waiting:
            self._told_waiting = True
            log.info("waiting_for_owners", free_shards=len(free))
        return not free and bool(self._broker.namespaces.all())

    def _show(self, view: ClusterView) -> None:
        """Update the placement from the view."""
        live = view.live
        owners = {
            number: Owner(row.node, _addresses(row.listeners), number)
            for number, row in live.items()
        }
        others = [owner for number, owner in owners.items() if number != self._session.number]
        newest = max((row.session for row in view.sessions), default=0)
        self._parts.placement.show_sessions(frozenset(live), newest)
        self._parts.placement.show(
            {
                row.shard: owners[row.session]
                for row in view.shards
                if row.session is not None and row.session in owners
            },
            others,
            {row.shard: row.epoch for row in view.shards},
        )

    def _free_s(self, view: ClusterView) -> Mapping[int, float]:
        """Return for how many seconds each free shard has had no owner."""
        now = trio.current_time()
        self._free_since = {
            row.shard: self._free_since.get(row.shard, now)
            for row in view.shards
            if row.session is None
        }
        return {shard: now - since for shard, since in self._free_since.items()}

    # The catalogue.

    async def follow(self) -> None:
        """Apply published changes of the catalogue, if another broker owns it. Raises
        LedgerUnanswered, DamagedLog, and storage errors.
        """
        async with self._changing:
            await self._follow()

    async def _follow(self) -> None:
        catalogue = self._parts.shared_catalogue
        if catalogue.is_owned:
            return
        ask = self._session.ledger.journal
        kind = KIND_CATALOGUE
        rows = await run_in_thread(ask, CATALOGUE_SHARD, kind, catalogue.place)
        try:
            touched = catalogue.follow(rows)
        except NotFollowed:
            rows = await run_in_thread(ask, CATALOGUE_SHARD, kind, 0)
            touched = catalogue.follow_anew(rows)
        self._parts.followed(touched)

    # Taking.

    async def _take(self, wanted: Sequence[int]) -> None:
        new = await run_in_thread(self._session.take, wanted)
        begun = trio.current_time()
        contents = await self._read(sorted(new))
        async with self._changing:
            if CATALOGUE_SHARD in contents:
                self._own_catalogue(contents[CATALOGUE_SHARD])
            elif self._parts.shared_catalogue.is_owned:
                # A deletion must be published before the shard drops the remains.
                await self._broker.durability.all_durable()
            elif contents:
                await self._follow_surely()
            for shard in sorted(contents.keys() - {CATALOGUE_SHARD}):
                await self._hold(shard, contents[shard])
        if contents:
            seconds = round(trio.current_time() - begun, 3)
            log.info("shards_taken", session=self._session.number, shards=len(contents), s=seconds)

    async def _read(self, shards: Sequence[int]) -> dict[int, ShardContents]:
        """Read each shard. A damaged shard stays unavailable; if it holds the catalogue, raise
        DamagedLog.
        """
        if not shards:
            return {}
        try:
            contents = await run_in_thread(self._shared.read, shards)
            return dict.fromkeys(shards, contents)
        except DamagedLog:
            if shards == [CATALOGUE_SHARD]:
                raise
        by_shard: dict[int, ShardContents] = {}
        for shard in shards:
            try:
                by_shard[shard] = await run_in_thread(self._shared.read, [shard])
            except DamagedLog as error:
                if shard == CATALOGUE_SHARD:
                    raise
                log.error("shard_stays_shut", shard=shard, reason=str(error))
        return by_shard

    async def _follow_surely(self) -> None:
        """Follow the catalogue as far as earlier owners of a shard did; retry until successful."""
        while True:
            try:
                await self._follow()
                return
            except LedgerUnanswered:
                await trio.sleep(LOOK_S)

    def _own_catalogue(self, shard_contents: ShardContents) -> None:
        broker = self._broker
        journals = self._shared.hold(CATALOGUE_SHARD, shard_contents, broker.committer)
        touched = self._parts.shared_catalogue.own(journals["catalogue"], broker.now_us())
        self._parts.own_nodes(journals["nodes"])
        self._parts.placement.hold(CATALOGUE_SHARD, self._session.epochs[CATALOGUE_SHARD])
        self._parts.followed(touched)

    async def _hold(self, shard: int, shard_contents: ShardContents) -> None:
        broker, shared = self._broker, self._shared
        parts = self._parts
        catalogue, topics = parts.shared_catalogue, parts.topics
        try:
            known = catalogue.topics_of(shard)
            shared.check(
                shard_contents, (number for meta in known for number in meta.partition_ids)
            )
        except DamagedLog as error:
            log.error("shard_stays_shut", shard=shard, reason=str(error))
            return
        journals = shared.hold(shard, shard_contents, broker.committer)
        catalogue.hold(shard, journals["catalogue"])
        cursors = parts.cursors
        store = JournalPositions(journals["cursors"], keeps_history=cursors.is_watched)
        cursors.hold(shard, store)
        for meta in catalogue.topics_of(shard):
            if (topic := topics.find(meta.name)) is not None:
                topics.moves.reopen(topic)
            await trio.lowlevel.checkpoint()
        # No await from here on: first open new topics, then admit clients.
        for meta in catalogue.topics_of(shard):
            if (topic := topics.find(meta.name)) is not None:
                topics.moves.reopen(topic)
        shared.drop_unopened(shard)
        parts.placement.hold(shard, self._session.epochs[shard])

    # Giving up.

    async def hand_over(self) -> None:
        """Let the other brokers take all shards of this broker before a stop, while clients are
        still served. Returns when all are taken, after `HAND_OVER_S`, or if there is no other
        broker. Raises the error that ended the session.
        """
        with trio.move_on_after(HAND_OVER_S) as waiting:
            await run_in_thread(self._session.drain, abandon_on_cancel=True)
            while not self._is_handed_over():
                await self._looked.park()
        if waiting.cancelled_caught:
            log.warning("shards_not_handed_over", waited_s=HAND_OVER_S)

    def _is_handed_over(self) -> bool:
        view, number = self._view, self._session.number
        if view is None or number not in view.live:
            return view is not None
        if not view.live[number].drains:
            return False  # A view from before the drain.
        takers = [row for row in view.live.values() if not row.drains]
        return not takers or all(row.session not in (None, number) for row in view.shards)

    async def _give(self, shards: Sequence[int]) -> None:
        """Refuse new records for these shards, publish the remaining records, and release the
        shards.
        """
        broker, shared = self._broker, self._shared
        parts = self._parts
        catalogue, topics = parts.shared_catalogue, parts.topics
        async with self._changing, self._upkeep.lock:
            for shard in shards:
                parts.placement.let_go(shard)
                for meta in catalogue.topics_of(shard) if shard else ():
                    if (topic := topics.find(meta.name)) is not None:
                        topics.move_away(topic)
                parts.cursors.flush_lazy()
                parts.cursors.give_up(shard)
                if shard == CATALOGUE_SHARD:
                    catalogue.disown()
                    broker.nodes.close()
                    parts.own_nodes(None)
                else:
                    catalogue.give_up(shard)
            await broker.durability.all_durable()
            for shard in shards:
                shared.give_up(shard)
                await run_in_thread(self._session.release, shard)
                for meta in catalogue.topics_of(shard) if shard else ():
                    if (topic := topics.find(meta.name)) is not None:
                        topics.moves.reopen(topic)
            parts.partitions.tidy_soon()
        log.info("shards_given_up", session=self._session.number, shards=len(shards))


def _addresses(listeners: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    return {name: parse_address(text) for name, text in listeners.items()}
