"""The parts of a broker that depend on where its data lies, and those of a single broker.

`Broker` (`broker.py`) is built from such parts: `LocalParts`, over a data directory of this
machine, or `ClusterParts` (`broker/cluster_parts.py`), over a shared store, where other brokers own
a part of the topics. Knows no listener.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from braidlog.broker.cluster.alone import Alone
from braidlog.broker.cluster.placement import Placement
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.known_ends import KnownEnds
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.journal_positions import JournalPositions

if TYPE_CHECKING:
    from braidlog.broker.cluster.peers import Peers
    from braidlog.broker.commit.durability import CommitRounds
    from braidlog.broker.config.settings import Config
    from braidlog.broker.topics.namespaces import Namespaces
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.broker.topics.registry import NamespaceRegistry, TopicRegistry
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.directory.data_dir import DataDir, OpenedJournal
    from braidlog.storage.directory.directory import Directory
    from braidlog.storage.log.committer import Committer
    from braidlog.storage.metadata.changes import Journal
    from braidlog.storage.metadata.positions import Positions

log = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class Foundation:
    """The parts of a broker that all other parts stand on."""

    config: Config
    data_dir: Directory
    committer: Committer
    durability: CommitRounds
    partitions: Partitions
    now_us: Callable[[], int]


class Parts(Protocol):
    """The parts that depend on where the data lies."""

    @property
    def placement(self) -> Placement:
        """The owner of each topic."""

    @property
    def catalogue(self) -> LocalCatalogue:
        """Namespaces, topics and users, as this broker knows them."""

    @property
    def cursors(self) -> Positions:
        """The positions of all subscriptions."""

    @property
    def peers(self) -> Peers:
        """The other brokers."""

    def registries(
        self, topics: Topics, namespaces: Namespaces
    ) -> tuple[TopicRegistry, NamespaceRegistry]:
        """Return the registries that clients use, over the registries of this broker; called once,
        before `recover`.
        """

    def nodes_journal(self) -> Journal:
        """Open the journal of nodes of ZooKeeper's clients. Raises NotOwner, storage errors."""

    def recover(self, topics: Topics) -> None:
        """Open the topics that this broker owns at its start. Raises storage errors."""

    async def published(self, ticket: int) -> None:
        """See `Broker.published`."""

    async def hand_over(self) -> None:
        """Let other brokers take over all topics, if there are other brokers."""


class LocalParts:
    """The parts of a single broker: everything is in its data directory."""

    def __init__(self, foundation: Foundation, data_dir: DataDir) -> None:
        """Open the journals. Raises storage errors."""
        self._data_dir = data_dir
        self._committer = foundation.committer
        self._durability = foundation.durability
        self._data_dir.check_journals()
        stored = JournalCatalogue(self._journal("catalogue"), now_us=foundation.now_us())
        self._data_dir.take_id(stored.rewrite, self._committer)
        self.placement = Placement(foundation.config.cluster.node_id)
        self.catalogue = LocalCatalogue(
            stored.catalogue,
            self.placement,
            use_reserve=self._data_dir.reserve.use_reserve,
            report=self._durability.report_storage_error,
        )
        self.cursors = JournalPositions(self._journal("cursors"))
        self._known_ends = KnownEnds(self.cursors)
        self._data_dir.follow_ends(self._known_ends.note)
        self.peers = Alone()

    def nodes_journal(self) -> Journal:
        """Open the journal of nodes, made if it is not there."""
        return self._journal("nodes")

    def _journal(self, name: str) -> OpenedJournal:
        journal = self._data_dir.open_journal(name, self._committer)
        for cut in journal.recovery.cuts:
            log.warning("torn_tail_cut", journal=name, cut=str(cut))
        return journal

    def registries(
        self, topics: Topics, namespaces: Namespaces
    ) -> tuple[TopicRegistry, NamespaceRegistry]:
        """Return the registries of this broker."""
        return topics, namespaces

    def recover(self, topics: Topics) -> None:
        """Reconcile folders, catalogue and cursors, which a crash may have left out of step."""
        data_dir, state = self._data_dir, self.catalogue.state
        # The catalogue's last entries must be on disk before folders are changed to match them.
        self._committer.commit()
        known = {partition_id for meta in state.all_topics() for partition_id in meta.partition_ids}
        data_dir.check_folders(known, state.partition_ids_end)
        state.raise_partition_ids(data_dir.highest_partition_id())
        for path in data_dir.set_aside_unknown(known):
            log.warning("unknown_folder_set_aside", path=path)
        topics.open_all()
        self._known_ends.compare(topics.all())
        self._committer.commit()  # Only now are records above the watermark slots readable.

    async def published(self, ticket: int) -> None:
        """Wait until a change is on disk."""
        await self._durability.reached(ticket)

    async def hand_over(self) -> None:
        """Do nothing: there is no other broker."""
