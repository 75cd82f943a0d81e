"""A broker of a cluster: as in `broker/broker.py`, except that others may own topics.

Knows no ledger and no object: `membership.py` brings shards here and takes them away.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import trio

from braidlog.broker.access.acting import asks
from braidlog.broker.broker import Broker
from braidlog.broker.cluster.changes import CatalogueChanges, LocalChanges
from braidlog.broker.cluster.cluster_peers import ClusterPeers
from braidlog.broker.cluster.following import Following
from braidlog.broker.cluster.links import Hello
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.cluster.placement import ClusterPlacement, Placement
from braidlog.broker.config.settings import ConfigError
from braidlog.broker.errors import NotOwner
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.cluster_namespaces import ClusterNamespaces
from braidlog.broker.topics.cluster_topics import ClusterTopics
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.shard_positions import ShardPositions
from braidlog.storage.shared.shared_dir import SharedDir

if TYPE_CHECKING:
    from braidlog.broker.topics.namespaces import Namespaces
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.broker.topics.registry import NamespaceRegistry, TopicRegistry
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.metadata.names import TopicName
    from braidlog.storage.metadata.positions import Positions

SECRET_VARIABLE = "BRAIDLOG_CLUSTER_SECRET"


class ClusterBroker(Broker):
    """Opened over a `SharedDir` that holds no shard yet. Created by `Broker.open`."""

    placement: ClusterPlacement

    def _open_metadata(self) -> tuple[Placement, LocalCatalogue, Positions]:
        assert isinstance(self._storage, SharedDir)
        shared = self._storage
        cluster = shared.session.cluster
        self.catalogue_state = state = SharedCatalogue(cluster.shards)
        placement = ClusterPlacement(self.config.cluster.node_id, shared.shard_of, shared.holds)
        report = self.durability.report_storage_error
        use_reserve = shared.reserve.use_reserve
        catalogue = LocalCatalogue(state, placement, use_reserve=use_reserve, report=report)
        self.shared = shared
        self.cursors = ShardPositions(state, partial(_refuse, placement))
        # Woken when this broker has followed the catalogue.
        self.followed = trio.lowlevel.ParkingLot()
        # Set once this broker is a member.
        self._leave: Callable[[], Awaitable[None]] | None = None
        self.secret = _secret(self.config.cluster.secret_file, cluster.secret)
        hello = Hello(cluster.cluster_id, shared.session.number, "calls")
        self.cluster_peers = ClusterPeers(placement, hello, self.secret, self.reached)
        self.peers = self.cluster_peers
        return placement, catalogue, self.cursors

    @property
    def partitions(self) -> Partitions:
        """Factory that opens and closes partitions."""
        return self._partitions

    async def reached(self, place: int) -> None:
        """Wait until this broker has followed the catalogue to that place."""
        while self.catalogue_state.place < place:
            await self.followed.park()

    async def published(self, ticket: int) -> None:
        """As `Broker.published`."""
        await self.spread(ticket, None)

    async def spread(self, ticket: int, altered: TopicName | None) -> None:
        """Wait until a change of the catalogue is published, and other brokers have followed the
        change (see `ClusterPeers.spread`).
        """
        await self.durability.reached(ticket)
        await self.cluster_peers.spread(self.catalogue_state.place, altered)

    def _registries(
        self, topics: Topics, namespaces: Namespaces
    ) -> tuple[TopicRegistry, NamespaceRegistry]:
        self.local_topics = topics
        self.following = Following(self.catalogue_state, topics, self._partitions, self.cursors)
        self.local_changes = LocalChanges(topics, namespaces)
        self.changes = CatalogueChanges(
            self.local_changes,
            lambda: self.catalogue.is_owned,
            self.spread,
            ask=self._ask,
            follow=self.cluster_peers.follow,
            place=lambda: self.catalogue_state.place,
        )
        return ClusterTopics(topics, self.changes), ClusterNamespaces(namespaces, self.changes)

    def on_leave(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Have `leave` hand over all shards before a stop."""
        self._leave = leave

    async def _hand_over(self) -> None:
        if self._leave is not None:
            await self._leave()

    async def _ask(self, change: str, *arguments: object) -> None:
        await self.cluster_peers.change(Asker(*asks()), change, *arguments)

    def _recover(self, topics: Topics) -> None:
        """Do nothing: shards come while the broker runs."""


def _refuse(placement: ClusterPlacement, topic_id: int, name: TopicName | None) -> NoReturn:
    """Raise NotOwner, with the owner if there is an owner."""
    if name is not None:
        placement.check(name)
    raise NotOwner(f"no broker owns topic {topic_id} now", 0)


def _secret(file: str | None, from_database: str) -> bytes:
    """Return the secret that all brokers share: from the environment, else the file, else from
    `cluster init`. Raises ConfigError.
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
