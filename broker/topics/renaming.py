"""Giving a topic, or a namespace with all of its topics, another name: records, positions and
numbers stay, for everything stored refers to the catalogue's own numbers.

For clients a renamed topic is one that was deleted and one that was made: clients of the old
name are ended as with a deletion, and that name is not auto-created for a while. Permissions go by
name and stay with the old one. Knows no protocol and no file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.topics.topic import check_new_name
from braidlog.storage.log.files import FileGone
from braidlog.storage.metadata.names import (
    DEFAULT_NAMESPACE,
    InvalidTopicName,
    TopicName,
    check_namespace,
)

if TYPE_CHECKING:
    from braidlog.broker.commit.durability import Durability
    from braidlog.broker.delivery.non_persistent.topics import LiveTopics
    from braidlog.broker.topics.catalogue import LocalCatalogue
    from braidlog.broker.topics.topic import PartitionFactory, Topic
    from braidlog.broker.topics.topics import Topics

# Of one change, which is made in one turn of the loop: some 5 us each.
RENAMED_PARTITIONS_MAX: Final = 5_000

Names = Sequence[tuple["Topic", TopicName]]


@dataclass(slots=True)
class _Taking:
    """Folders that get their new names once the catalogue has them on disk."""

    ticket: int
    names: Names
    is_over: trio.Event = field(default_factory=trio.Event)


class Renaming:
    """Changes names. A crash leaves the old name or the new one; a whole namespace has the same."""

    def __init__(
        self,
        topics: Topics,
        live: LiveTopics,
        catalogue: LocalCatalogue,
        factory: PartitionFactory,
        durability: Durability,
        *,
        is_possible: bool,
    ) -> None:
        """`is_possible`: names do not decide which broker owns a topic."""
        self._topics = topics
        self._live = live
        self._catalogue = catalogue
        self._factory = factory
        self._durability = durability
        self._report: Report = durability.report_storage_error
        self._is_possible = is_possible
        self._taking: deque[_Taking] = deque()
        self._arrived = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Give folders the names that the catalogue has, until cancelled; the next start does what
        is left then, or after a crash. Raises StorageFailed.
        """
        while True:
            while self._taking:
                first = self._taking[0]
                await self._durability.reached(first.ticket)
                await self._factory.take_names(first.names)
                self._taking.popleft().is_over.set()
            await self._arrived.park()

    async def rename_topic(self, before: TopicName, name: TopicName) -> int:
        """Give a topic another name within its namespace; return the ticket. On disk, and in the
        folders that the tools read, when this returns.

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
            # Atomic: no wait until everybody sees the new name.
            ticket = self._catalogue.rename_topic(topic.meta.topic_id, name.topic)
            taking = self._replace(names, ticket)
        await taking.is_over.wait()
        return ticket

    async def rename_namespace(self, tenant: str, before: str, renamed: str) -> int:
        """Give a namespace another name, and all of its topics with it; return the ticket. Live
        topics end. Otherwise as `rename_topic`. `default` keeps its name: Kafka's and Pulsar's
        clients mean it when they name none.

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
            # Atomic: no wait until everybody sees the new names.
            ticket = self._catalogue.rename_namespace(tenant, before, renamed)
            self._live.end_all(tenant, before)
            taking = self._replace(names, ticket)
        await taking.is_over.wait()
        return ticket

    def check_possible(self) -> None:
        """Raises NotSupported if topics and namespaces cannot change their names."""
        if not self._is_possible:
            raise errors.NotSupported(
                "over a shared store the name says which broker owns a topic: it stays"
            )

    def _within(self, tenant: str, before: str, renamed: str) -> Names:
        return [
            (topic, TopicName(tenant, renamed, topic.name.topic))
            for topic in self._topics.list(tenant, before)
        ]

    async def _prepare(self, names: Names) -> None:
        """Put the new names on disk in the folders, before the catalogue has them. On return the
        topics are as they were before. Raises Conflict if they are not.
        """
        while self._taking:  # A folder has room for one prepared name.
            await self._taking[-1].is_over.wait()
        there = [tuple(topic.partitions) for topic, _ in names]
        count = sum(map(len, there)) + len(there)
        if count > RENAMED_PARTITIONS_MAX:
            raise errors.LimitExceeded(
                f"at most {RENAMED_PARTITIONS_MAX} topics and partitions get a name at once"
            )
        try:
            with as_broker_errors(self._report):
                await self._factory.prepare_names(names)
        except FileGone as error:
            raise errors.Conflict("a topic was deleted meanwhile") from error
        for (topic, _), partitions in zip(names, there, strict=True):
            if topic.deleted or tuple(topic.partitions) != partitions:
                raise errors.Conflict(f"{topic.name} was changed meanwhile")

    def _replace(self, names: Names, ticket: int) -> _Taking:
        """Show the new names to everybody."""
        self._topics.held_names.hold([topic.name for topic, _ in names])
        heirs = []
        for topic, name in names:
            meta = self._catalogue.state.topic(name)
            assert meta is not None, "the catalogue has just said so"
            topic.ticket = ticket
            heirs.append((self._topics.replace(topic, meta), name))
        taking = _Taking(ticket, heirs)
        self._taking.append(taking)
        self._arrived.unpark_all()
        return taking

    def _check_free(self, name: TopicName) -> None:
        if self._topics.find(name) is not None:
            raise errors.TopicExists(f"{name} is there already")

    def _check_namespaces(self, tenant: str, before: str, renamed: str) -> None:
        state = self._catalogue.state
        if state.namespace(tenant, before) is None:
            raise errors.NamespaceNotFound(f"no namespace {tenant}/{before}")
        if state.namespace(tenant, renamed) is not None:
            raise errors.NamespaceExists(f"{tenant}/{renamed} is there already")
