"""A broker of a cluster: as in `broker/broker.py`, except that others may own topics.

Knows no ledger and no object: `membership.py` brings shards here and takes them away.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.acting import asks
from braidlog.broker.broker import Broker
from braidlog.broker.cluster.asking import Asking
from braidlog.broker.cluster.calls import Home
from braidlog.broker.cluster.cursors import ShardCursors
from braidlog.broker.cluster.links import Hello
from braidlog.broker.cluster.placement import ClusterPlacement, Placement
from braidlog.broker.cluster.siblings import Asker
from braidlog.broker.cluster.topics import ClusterNamespaces, ClusterTopics
from braidlog.broker.config.settings import ConfigError
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.shared_dir import SharedDir

if TYPE_CHECKING:
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.storage.metadata.catalogue_records import SchemaMeta
    from braidlog.storage.metadata.cursor_book import CursorBook
    from braidlog.storage.metadata.user_records import UserChange

SECRET_VARIABLE = "BRAIDLOG_CLUSTER_SECRET"


class ClusterCatalogue(LocalCatalogue):
    """The catalogue in a cluster: what belongs to a topic is changed by the topic's owner."""

    state: SharedCatalogue
    placement: ClusterPlacement

    @property
    def is_owned(self) -> bool:
        """Whether this broker changes it."""
        return self.placement.catalogue_owner() is None

    def change_users(self, change: UserChange) -> int:
        """As `LocalCatalogue.change_users`. Raises NotOwner."""
        self.placement.check_catalogue()
        return super().change_users(change)

    def create_group(self, topic_id: int, name: str, group_id: int | None) -> int:
        """As `LocalCatalogue.create_group`. Raises NotOwner."""
        self._check(topic_id)
        return super().create_group(topic_id, name, group_id)

    def delete_group(self, topic_id: int, group_id: int) -> int:
        """As `LocalCatalogue.delete_group`. Raises NotOwner."""
        self._check(topic_id)
        return super().delete_group(topic_id, group_id)

    def add_schema(self, topic_id: int, schema: SchemaMeta) -> int:
        """As `LocalCatalogue.add_schema`. Raises NotOwner."""
        self._check(topic_id)
        return super().add_schema(topic_id, schema)

    def raise_topic_epoch(self, topic_id: int) -> int:
        """As `LocalCatalogue.raise_topic_epoch`. Raises NotOwner."""
        self._check(topic_id)
        return super().raise_topic_epoch(topic_id)

    def _check(self, topic_id: int) -> None:
        meta = self.state.topic_by_id(topic_id)
        if meta is not None:
            self.placement.check(meta.name)


class ClusterBroker(Broker):
    """Opened over a `SharedDir` that holds no shard yet. Made by `Broker.open`."""

    topics: ClusterTopics
    namespaces: ClusterNamespaces
    catalogue: ClusterCatalogue
    placement: ClusterPlacement

    def _open_metadata(self) -> tuple[Placement, LocalCatalogue, CursorBook]:
        assert isinstance(self._storage, SharedDir)
        shared = self._storage
        cluster = shared.session.cluster
        state = SharedCatalogue(cluster.shards)
        placement = ClusterPlacement(self.config.cluster.node_id, shared.shard_of)
        report = self.durability.report_storage_error
        use_reserve = shared.reserve.use_reserve
        catalogue = ClusterCatalogue(state, use_reserve=use_reserve, report=report)
        catalogue.placement = placement
        self.shared = shared
        self.cursors = ShardCursors(state, placement.check)
        self.followed = trio.lowlevel.ParkingLot()  # Woken when the catalogue has come further.
        self.hand_over: Callable[[], Awaitable[None]] | None = None  # Once it takes part.
        self.secret = _secret(self.config.cluster.secret_file, cluster.secret)
        hello = Hello(cluster.cluster_id, shared.session.number, "calls")
        self.home = Home(placement, hello, self.secret, self.reached)
        self.siblings = self.home
        return placement, catalogue, self.cursors

    @property
    def partitions(self) -> Partitions:
        """What opens and closes partitions."""
        return self._partitions

    async def reached(self, place: int) -> None:
        """Wait until the catalogue was followed that far."""
        while self.catalogue.state.place < place:
            await self.followed.park()

    async def spread(self, ticket: int) -> None:
        """Wait until a change of the catalogue is published, and the other brokers that answer have
        followed it.
        """
        await self.durability.reached(ticket)
        await self.home.spread(self.catalogue.state.place)

    def _make_topics(self, cursors: CursorBook) -> ClusterTopics:
        topics = ClusterTopics(
            self.catalogue,
            cursors,
            self._partitions,
            defaults=self._topic_defaults(),
            now_us=self.now_us,
            report=self.durability.report_storage_error,
        )
        shared = self.shared
        topics.placement = self.placement
        topics.is_owner = self._is_owner
        topics.asking, topics.spread = self._asking(), self.spread
        topics.holds = lambda name: shared.holds(shared.shard_of(name.full))
        return topics

    def _make_namespaces(self) -> ClusterNamespaces:
        namespaces = ClusterNamespaces(self.catalogue, self.now_us)
        namespaces.is_owner, namespaces.asking = self._is_owner, self._asking()
        namespaces.spread = self.spread
        return namespaces

    async def _hand_over(self) -> None:
        if self.hand_over is not None:
            await self.hand_over()

    def _is_owner(self) -> bool:
        return self.catalogue.is_owned

    def _asking(self) -> Asking:
        return Asking(self._ask, self.home.follow, lambda: self.catalogue.state.place)

    async def _ask(self, change: str, *arguments: object) -> None:
        await self.home.change(Asker(*asks()), change, *arguments)

    def _recover(self) -> None:
        """Nothing: shards come while the broker runs."""


def _secret(file: str | None, from_database: str) -> bytes:
    """The secret that all brokers share: from the environment, from the file, else the one that
    `cluster init` drew. Raises ConfigError.
    """
    if found := os.environ.get(SECRET_VARIABLE):
        return found.encode()
    if file is None:
        return from_database.encode()
    try:
        with open(file, "rb") as opened:
            secret = opened.read().strip()
    except OSError as error:
        raise ConfigError(f"cluster.secret_file {file}: {error.strerror}") from error
    if not secret:
        raise ConfigError(f"cluster.secret_file {file} is empty")
    return secret
