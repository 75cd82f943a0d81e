"""The parts of a broker in a cluster, where other brokers own a part of the topics.

Knows no ledger and no object: `membership.py` brings shards here and takes them away.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import trio

from braidlog.broker.access.acting import asks
from braidlog.broker.cluster.changes import CatalogueChanges, LocalChanges
from braidlog.broker.cluster.cluster_peers import PEER_TIMES, ClusterPeers, PeerTimes
from braidlog.broker.cluster.following import Following
from braidlog.broker.cluster.links import Hello
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.cluster.placement import ClusterPlacement
from braidlog.broker.config.settings import ConfigError
from braidlog.broker.errors import NotOwner
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.cluster_namespaces import ClusterNamespaces
from braidlog.broker.topics.cluster_topics import ClusterTopics
from braidlog.storage.shared.catalogue import SharedCatalogue, Touched
from braidlog.storage.shared.shard_positions import ShardPositions

if TYPE_CHECKING:
    from braidlog.broker.local_parts import Foundation
    from braidlog.broker.topics.namespaces import Namespaces
    from braidlog.broker.topics.registry import NamespaceRegistry, TopicRegistry
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.metadata.changes import Journal
    from braidlog.storage.metadata.names import TopicName
    from braidlog.storage.shared.shared_dir import SharedDir

SECRET_VARIABLE = "BRAIDLOG_CLUSTER_SECRET"


class ClusterParts:
    """The parts of a broker over a `SharedDir` that holds no shard yet. Implements `Parts`."""

    def __init__(
        self, foundation: Foundation, shared: SharedDir, times: PeerTimes = PEER_TIMES
    ) -> None:
        """Raises ConfigError for a bad secret."""
        config, cluster = foundation.config.cluster, shared.session.cluster
        self._durability = foundation.durability
        self.partitions = foundation.partitions
        self.shared = shared
        self.shared_catalogue = SharedCatalogue(cluster.shards)
        self.placement = ClusterPlacement(config.node_id, shared.shard_of, shared.holds)
        self.catalogue = LocalCatalogue(
            self.shared_catalogue.catalogue,
            self.placement,
            use_reserve=shared.reserve.use_reserve,
            report=foundation.durability.report_storage_error,
        )
        self.cursors = ShardPositions(self.shared_catalogue, partial(_refuse, self.placement))
        # Woken when this broker has followed the catalogue.
        self._followed = trio.lowlevel.ParkingLot()
        # While this broker owns the catalogue: the journal of nodes.
        self._owned_nodes: Journal | None = None
        # Set once this broker is a member.
        self._leave: Callable[[], Awaitable[None]] | None = None
        self.secret = _secret(config.secret_file, cluster.secret)
        hello = Hello(cluster.cluster_id, shared.session.number, "calls")
        self.peers = ClusterPeers(self.placement, hello, self.secret, self.reached, times)

    def registries(
        self, topics: Topics, namespaces: Namespaces
    ) -> tuple[TopicRegistry, NamespaceRegistry]:
        self.topics = topics
        self._following = Following(
            self.shared_catalogue.catalogue, topics, self.partitions, self.cursors
        )
        self.local_changes = LocalChanges(topics, namespaces, self._is_deletion_followed)
        changes = CatalogueChanges(
            self.local_changes,
            lambda: self.catalogue.is_owned,
            self.spread,
            ask=self._ask,
            follow=self.peers.follow,
            place=lambda: self.shared_catalogue.place,
        )
        return ClusterTopics(topics, changes), ClusterNamespaces(namespaces, changes)

    def nodes_journal(self) -> Journal:
        """Return the journal of nodes, which belongs to the catalogue's owner. Raises NotOwner."""
        if self._owned_nodes is None:
            raise NotOwner("the nodes of ZooKeeper's clients are owned by another broker")
        return self._owned_nodes

    def own_nodes(self, journal: Journal | None) -> None:
        """Set the journal of nodes while this broker owns the catalogue; None: no longer."""
        self._owned_nodes = journal

    def recover(self, topics: Topics) -> None:
        """Do nothing: shards come while the broker runs."""

    async def reached(self, place: int) -> None:
        """Wait until this broker has followed the catalogue to that place."""
        while self.shared_catalogue.place < place:
            await self._followed.park()

    def followed(self, touched: Touched) -> None:
        """Apply followed changes of the catalogue to the topics, and wake `reached`."""
        if touched.topics or touched.namespaces:
            self._following.follow(touched)
            self.topics.leaving.round_ended(self._durability.durable_ticket)
        self._followed.unpark_all()

    def catch_up(self) -> None:
        """Apply the followed changes that could not be applied at once."""
        self._following.catch_up()

    async def published(self, ticket: int) -> None:
        """As `Parts.published`; other brokers have followed the change too."""
        await self.spread(ticket, None)

    async def spread(self, ticket: int, altered: TopicName | None) -> bool:
        """Wait until a change of the catalogue is published, and other brokers have followed the
        change (see `ClusterPeers.spread`).
        """
        await self._durability.reached(ticket)
        return await self.peers.spread(self.shared_catalogue.place, altered)

    async def _is_deletion_followed(self, name: TopicName) -> bool:
        place = self.shared_catalogue.last_deletion(name)
        return await self.peers.owner_follows(name, place)

    def on_leave(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Have `leave` hand over all shards before a stop."""
        self._leave = leave

    async def hand_over(self) -> None:
        if self._leave is not None:
            await self._leave()

    async def _ask(self, change: str, *arguments: object) -> bool:
        return await self.peers.change(Asker(*asks()), change, *arguments)


def _refuse(placement: ClusterPlacement, topic_id: int, name: TopicName | None) -> NoReturn:
    """Raise NotOwner, with the owner if there is an owner."""
    if name is not None:
        placement.check(name)
    raise NotOwner(f"no broker owns topic {topic_id} now", 0)


def _secret(file: str | None, from_database: str) -> bytes:
    """Return the secret that all brokers share: from the environment, else the file, else from
    `cluster init`. Raises ConfigError.
    """
    if secret_text := os.environ.get(SECRET_VARIABLE):
        return secret_text.encode()
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
