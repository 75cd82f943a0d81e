"""Renames a topic, or a namespace with all topics in it. Records, positions and numbers stay, as
all stored data refers to the catalogue's own numbers.

To clients a rename is a deletion and a creation: clients of the old name are closed as after a
deletion, and that name is not auto-created for a while. Permissions go by name and stay with the
old name. Knows no protocol and no file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.topics.topic import check_new_name
from braidlog.storage.log.files import FileGone
from braidlog.storage.metadata.names import (
    DEFAULT_NAMESPACE,
    InvalidTopicName,
    TopicName,
    check_namespace,
)

if TYPE_CHECKING:
    from braidlog.broker.commit.durability import CommitRounds
    from braidlog.broker.delivery.non_persistent.topics import NonPersistentTopics
    from braidlog.broker.topics.catalogue import LocalCatalogue
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.broker.topics.topic import Topic
    from braidlog.broker.topics.topics import Topics

Names = Sequence[tuple["Topic", TopicName]]


@dataclass(slots=True)
class _Taking:
    """Folders that get their new names once the catalogue's change is on disk."""

    ticket: int
    names: Names
    is_over: trio.Event = field(default_factory=trio.Event)


class Renaming:
    """Changes names. A crash leaves either the old or the new name; for a namespace, in all topics
    alike.
    """

    def __init__(
        self,
        topics: Topics,
        non_persistent: NonPersistentTopics,
        catalogue: LocalCatalogue,
        factory: Partitions,
        durability: CommitRounds,
        *,
        is_possible: bool,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """`is_possible`: names do not decide which broker owns a topic."""
        self._topics = topics
        self._non_persistent = non_persistent
        self._catalogue = catalogue
        self._factory = factory
        self._durability = durability
        self._report: Report = durability.report_storage_error
        self._is_possible = is_possible
        self._partitions_max = limits.renamed_partitions
        self._taking: deque[_Taking] = deque()
        self._arrived = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Rename folders after the catalogue, until cancelled; the next start renames the remaining
        folders, also after a crash. Raises StorageFailed.
        """
        while True:
            while self._taking:
                first = self._taking[0]
                await self._durability.reached(first.ticket)
                await self._factory.take_names(first.names)
                self._taking.popleft().is_over.set()
            await self._arrived.park()

    async def rename_topic(self, before: TopicName, name: TopicName) -> int:
        """Rename a topic within its namespace; return the ticket. On return the new name is on
        disk, and in the folders that the tools read.

        Raises TopicNotFound, TopicExists, InvalidName, LimitExceeded, NotSupported, Conflict,
        StorageFull, StorageFailed.
        """
        self.check_possible()
        assert (before.tenant, before.namespace) == (name.tenant, name.namespace)
        check_new_name(name)
        async with self._topics.altering:
            topic = self._topics.get(before)
            self._check_free(name)
            names = [(topic, name)]
            await self._prepare(names)
            self._check_free(name)
            # Atomic: no wait until every reader sees the new name.
            rename = self._catalogue.state.rename_topic
            ticket = self._catalogue.change(rename, topic.meta.topic_id, name.topic)
            taking = self._replace(names, ticket)
        await taking.is_over.wait()
        return ticket

    async def rename_namespace(self, tenant: str, before: str, renamed: str) -> int:
        """Rename a namespace, and so its topics; return the ticket. Non-persistent topics end.
        Otherwise as `rename_topic`. `default` cannot be renamed: Kafka's and Pulsar's clients
        use it if they name no namespace.

        Raises NamespaceNotFound, NamespaceExists, InvalidName, LimitExceeded, NotSupported,
        Conflict, StorageFull, StorageFailed.
        """
        self.check_possible()
        if before == DEFAULT_NAMESPACE:
            raise errors.NotSupported(f"{tenant}/{before} keeps its name")
        try:
            check_namespace(tenant, renamed)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        async with self._topics.altering:
            self._check_namespaces(tenant, before, renamed)
            names = self._within(tenant, before, renamed)
            await self._prepare(names)
            self._check_namespaces(tenant, before, renamed)
            if [topic for topic, _ in names] != list(self._topics.list(tenant, before)):
                raise errors.Conflict(f"{tenant}/{before} was changed meanwhile")
            # Atomic: no wait until every reader sees the new names.
            rename = self._catalogue.state.rename_namespace
            ticket = self._catalogue.change(rename, tenant, before, renamed)
            self._non_persistent.end_all(tenant, before)
            taking = self._replace(names, ticket)
        await taking.is_over.wait()
        return ticket

    def check_possible(self, topics: Sequence[Topic] = ()) -> None:
        """Check that these topics can be renamed together. Raises NotSupported, LimitExceeded."""
        if not self._is_possible:
            raise errors.NotSupported(
                "over a shared store the name says which broker owns a topic: it stays"
            )
        count = sum(1 + len(topic.partitions) for topic in topics)
        if count > self._partitions_max:
            raise errors.LimitExceeded(
                f"at most {self._partitions_max} topics and partitions get a name at once"
            )

    def _within(self, tenant: str, before: str, renamed: str) -> Names:
        return [
            (topic, TopicName(tenant, renamed, topic.name.topic))
            for topic in self._topics.list(tenant, before)
        ]

    async def _prepare(self, names: Names) -> None:
        """Write the new names to the folders' disk before the catalogue changes. Raises Conflict if
        the topics changed meanwhile, LimitExceeded.
        """
        while self._taking:  # A folder has room for one prepared name.
            await self._taking[-1].is_over.wait()
        self.check_possible([topic for topic, _ in names])
        partition_lists = [tuple(topic.partitions) for topic, _ in names]
        try:
            with as_broker_errors(self._report):
                await self._factory.prepare_names(names)
        except FileGone as error:
            raise errors.Conflict("a topic was deleted meanwhile") from error
        for (topic, _), partitions in zip(names, partition_lists, strict=True):
            if topic.deleted or tuple(topic.partitions) != partitions:
                raise errors.Conflict(f"{topic.name} was changed meanwhile")

    def _replace(self, names: Names, ticket: int) -> _Taking:
        """Publish the new names in memory."""
        self._topics.held_names.hold([topic.name for topic, _ in names])
        heirs = []
        for topic, name in names:
            meta = self._catalogue.state.topic(name)
            assert meta is not None, "the catalogue has just said so"
            topic.note_ticket(ticket)
            heirs.append((self._topics.replace(topic, meta), name))
        taking = _Taking(ticket, heirs)
        self._taking.append(taking)
        self._arrived.unpark_all()
        return taking

    def _check_free(self, name: TopicName) -> None:
        if self._topics.find(name) is not None:
            raise errors.TopicExists(f"topic {name} already exists")

    def _check_namespaces(self, tenant: str, before: str, renamed: str) -> None:
        state = self._catalogue.state
        if state.namespace(tenant, before) is None:
            raise errors.NamespaceNotFound(f"no namespace {tenant}/{before}")
        if state.namespace(tenant, renamed) is not None:
            raise errors.NamespaceExists(f"namespace {tenant}/{renamed} already exists")
