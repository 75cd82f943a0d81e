"""Topics and namespaces in a cluster: the owner of the catalogue changes them; all others ask it
to, and follow what it has published.

A request carries the wanted state and the place in the catalogue that it is based on, never a step.
Knows no socket: `Asking` has a change made there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from braidlog.broker import errors
from braidlog.broker.cluster.asking import Asking
from braidlog.broker.topics.namespaces import Namespaces
from braidlog.broker.topics.topic import PlacedTopic, Topic, TopicEvent, check_count
from braidlog.broker.topics.topics import Topics
from braidlog.storage.metadata.catalogue_records import Setting, TopicMeta
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Placement
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.shared.catalogue import SharedCatalogue, Subject, Touched


Spread = Callable[[int], Awaitable[None]]
"""Returns once the change with that ticket is published, and the other brokers that answer have
followed it: a client that goes on at another one finds it there.
"""


class ClusterTopics(Topics):
    """All topics: those of other brokers too, with partitions that hold nothing."""

    is_owner: Callable[[], bool]  # Whether this broker changes the catalogue.
    holds: Callable[[TopicName], bool]  # Whether this broker keeps the records of a topic.
    asking: Asking
    spread: Spread
    placement: Placement

    def _topic(self, meta: TopicMeta) -> PlacedTopic:
        return PlacedTopic(meta, self.placement)

    # Changing, as `Topics`; brokers that do not own the catalogue ask the owner to do it.

    async def create(
        self,
        name: TopicName,
        partitions: int,
        *,
        partitioned: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> Topic:
        """As `Topics.create`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            topic = await super().create(
                name, partitions, partitioned=partitioned, settings=settings, iggy_id=iggy_id
            )
            await self.spread(topic.ticket)
            return topic
        kept = dict(settings or {})
        was_there = self.find(name) is not None

        def is_made() -> bool:
            found = self.find(name)
            if was_there or found is None:
                return False
            return (len(found.partitions), found.meta.iggy_id) == (partitions, iggy_id)

        request = (_parts(name), partitions, partitioned, kept, iggy_id)
        await self.asking("create", *request, is_made=is_made)
        made = self.find(name)
        if made is None:
            raise errors.Unanswered(f"{name} was made, but this broker does not know of it yet")
        return made

    async def add_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        """As `Topics.add_partitions`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().add_partitions(name, total, seen=seen))
        await self._resize("add_partitions", name, total, seen)
        return 0

    async def keep_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        """As `Topics.keep_partitions`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().keep_partitions(name, total, seen=seen))
        await self._resize("keep_partitions", name, total, seen)
        return 0

    async def _resize(self, change: str, name: TopicName, total: int, seen: int | None) -> None:
        def check() -> None:
            topic = self.find(name)
            if topic is not None:
                check_count(topic, seen)

        is_made = self._on(name, lambda meta: len(meta.partition_ids) == total)
        await self.asking(change, _parts(name), total, is_made=is_made, check=check)

    def _on(self, name: TopicName, is_wanted: Callable[[TopicMeta], bool]) -> Callable[[], bool]:
        """Whether a topic is as wanted, if it is still the topic that has that name now."""
        before = self.find(name)

        def is_made() -> bool:
            now = self.find(name)
            if before is None or now is None or now.meta.topic_id != before.meta.topic_id:
                return False
            return is_wanted(now.meta)

        return is_made

    async def alter_settings(self, name: TopicName, changes: Mapping[str, Setting | None]) -> int:
        """As `Topics.alter_settings`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().alter_settings(name, changes))
        is_made = self._on(name, lambda meta: _has(meta.settings, changes))
        await self.asking("alter_settings", _parts(name), dict(changes), is_made=is_made)
        return 0

    async def alter_namespace(
        self, tenant: str, namespace: str, changes: Mapping[str, Setting | None]
    ) -> int:
        """As `Topics.alter_namespace`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().alter_namespace(tenant, namespace, changes))

        def is_made() -> bool:
            meta = self._catalogue.state.namespace(tenant, namespace)
            return meta is not None and _has(meta.settings, changes)

        request = (tenant, namespace, dict(changes))
        await self.asking("alter_namespace", *request, is_made=is_made)
        return 0

    async def terminate(self, name: TopicName) -> int:
        """As `Topics.terminate`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().terminate(name))
        is_made = self._on(name, lambda meta: meta.is_terminated)
        await self.asking("terminate", _parts(name), is_made=is_made)
        return 0

    async def delete(self, name: TopicName, *, holds_name: bool = False) -> int:
        """As `Topics.delete`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().delete(name, holds_name=holds_name))
        before = self.find(name)

        def is_made() -> bool:
            return before is not None and self.find_by_id(before.meta.topic_id) is None

        await self.asking("delete", _parts(name), holds_name, is_made=is_made)
        return 0

    async def _spread(self, change: Awaitable[int]) -> int:
        ticket = await change
        await self.spread(ticket)
        return ticket

    # Following.

    def follow(self, touched: Touched) -> None:
        """Change topics to what the catalogue says. Raises errors of storage."""
        state = self._catalogue.state
        for name in touched.topics:
            self._follow_topic(name, state.topic(name))
        for tenant, namespace in touched.namespaces:
            meta = state.namespace(tenant, namespace)
            for topic in self.list(tenant, namespace) if meta else ():
                topic.inherited = meta.settings if meta else {}
                self._factory.alter(topic, topic.settings)

    def _follow_topic(self, name: TopicName, meta: TopicMeta | None) -> None:
        topic = self.find(name)
        if topic is not None and (meta is None or meta.topic_id != topic.meta.topic_id):
            topic.ticket = 0
            self._forget(topic)
            topic = None
        if meta is not None and topic is None:
            topic = self._named(meta)
            topic.partitions.extend(self._opened(topic, 0))
            self._show(topic)
        elif meta is not None and topic is not None:
            self._follow_meta(topic, meta)

    def _follow_meta(self, topic: Topic, meta: TopicMeta) -> None:
        topic.meta = meta
        topic.ticket = 0
        for partition in topic.partitions:
            partition.topic = meta
        count = len(meta.partition_ids)
        if count < len(topic.partitions):
            self._shrink(topic, count)
        elif count > len(topic.partitions):
            self._cursors.resize(meta.topic_id, count)
            self._extend(topic, self._opened(topic, len(topic.partitions)))
        self._factory.alter(topic, topic.settings)
        if topic.is_terminated and not all(one.is_terminated for one in topic.partitions):
            self._end(topic)

    def _opened(self, topic: Topic, first: int) -> Sequence[Partition]:
        """Open the partitions of a topic from `first` on."""
        numbers = topic.meta.partition_ids[first:]
        return [self._factory.open(topic, index, one) for index, one in enumerate(numbers, first)]

    # Shards that come and go.

    def reopen(self, topic: Topic) -> None:
        """Open the partitions again if the topic's shard has come here or gone. Raises errors of
        storage.
        """
        is_here = self.holds(topic.name)
        for index, partition in enumerate(topic.partitions):
            if self._factory.is_open(partition) != is_here:
                partition.move_away()
                topic.partitions[index] = self._factory.open(topic, index, partition.partition_id)

    def move_away(self, topic: Topic) -> None:
        """Another broker owns the topic from now on: its clients here have to go."""
        for partition in topic.partitions:
            partition.move_away()
        self._tell(topic, TopicEvent.MOVED)

    def _show(self, topic: Topic) -> None:
        self.reopen(topic)  # Its shard may have come or gone while it was made.
        super()._show(topic)

    def _extend(self, topic: Topic, made: Sequence[Partition]) -> None:
        super()._extend(topic, made)
        self.reopen(topic)


class ClusterNamespaces(Namespaces):
    """Namespaces and tenants, changed by the owner of the catalogue."""

    is_owner: Callable[[], bool]
    asking: Asking
    spread: Spread

    async def create(self, tenant: str, namespace: str, *, iggy_id: int | None = None) -> int:
        """As `Namespaces.create`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().create(tenant, namespace, iggy_id=iggy_id))
        was_there = self.find(tenant, namespace) is not None
        is_made = self._has_number(tenant, namespace, iggy_id)
        await self.asking(
            "create_namespace",
            *(tenant, namespace, iggy_id),
            is_made=lambda: not was_there and is_made(),
        )
        self._check_known(tenant, namespace)
        return 0

    async def renumber(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """As `Namespaces.renumber`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().renumber(tenant, namespace, iggy_id))
        is_made = self._has_number(tenant, namespace, iggy_id)
        await self.asking("renumber_namespace", tenant, namespace, iggy_id, is_made=is_made)
        self._check_known(tenant, namespace)
        return 0

    def _has_number(self, tenant: str, namespace: str, iggy_id: int | None) -> Callable[[], bool]:
        def is_made() -> bool:
            meta = self.find(tenant, namespace)
            return meta is not None and meta.iggy_id == iggy_id

        return is_made

    def _check_known(self, tenant: str, namespace: str) -> None:
        """Callers look up the namespace that was made."""
        if self.find(tenant, namespace) is None:
            text = f"{tenant}/{namespace} was made, but this broker does not know of it yet"
            raise errors.Unanswered(text)

    async def delete(self, tenant: str, namespace: str) -> int:
        """As `Namespaces.delete`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().delete(tenant, namespace))
        was_there = self.find(tenant, namespace) is not None

        def is_made() -> bool:
            return was_there and self.find(tenant, namespace) is None

        await self.asking("delete_namespace", tenant, namespace, is_made=is_made)
        return 0

    async def create_tenant(self, tenant: str, admin_roles: Sequence[str]) -> int:
        """As `Namespaces.create_tenant`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().create_tenant(tenant, admin_roles))
        was_there, has_roles = self.has_tenant(tenant), self._has_roles(tenant, admin_roles)
        await self.asking(
            "create_tenant",
            *(tenant, [*admin_roles]),
            is_made=lambda: not was_there and has_roles(),
        )
        return 0

    def _has_roles(self, tenant: str, admin_roles: Sequence[str]) -> Callable[[], bool]:
        def is_made() -> bool:
            return self.has_tenant(tenant) and [*self.admin_roles(tenant)] == [*admin_roles]

        return is_made

    async def alter_tenant(self, tenant: str, admin_roles: Sequence[str]) -> int:
        """As `Namespaces.alter_tenant`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().alter_tenant(tenant, admin_roles))
        is_made = self._has_roles(tenant, admin_roles)
        await self.asking("alter_tenant", tenant, [*admin_roles], is_made=is_made)
        return 0

    async def delete_tenant(self, tenant: str) -> int:
        """As `Namespaces.delete_tenant`. Raises NotOwner, Unanswered too."""
        if self.is_owner():
            return await self._spread(super().delete_tenant(tenant))
        was_there = self.has_tenant(tenant)

        def is_made() -> bool:
            return was_there and not self.has_tenant(tenant)

        await self.asking("delete_tenant", tenant, is_made=is_made)
        return 0

    async def _spread(self, change: Awaitable[int]) -> int:
        ticket = await change
        await self.spread(ticket)
        return ticket


async def carry_out(
    topics: Topics, namespaces: Namespaces, change: str, arguments: Sequence[Any]
) -> int:
    """Make a change that another broker asks for; returns the ticket that publishes it.

    Raises broker errors; LookupError, TypeError, ValueError for a call that no broker makes.
    """
    if change in OF_NAMESPACES:
        return await OF_NAMESPACES[change](namespaces, *arguments)
    if change == "alter_namespace":
        tenant, namespace, changes = arguments
        return await Topics.alter_namespace(topics, tenant, namespace, changes)
    named, *rest = arguments
    return await OF_TOPICS[change](topics, TopicName(*named), *rest)


def check_unchanged(
    state: SharedCatalogue, change: str, arguments: Sequence[Any], based_on: int
) -> None:
    """Check that what a change is about was not changed after that place in the catalogue: the
    request may be late, or come from a broker that is behind. Raises Conflict.

    What is to be made does not exist: the change itself finds out.
    """
    if change.startswith("create"):
        return
    subject: Subject
    if change in OF_TOPICS:
        meta = state.topic(TopicName(*arguments[0]))
        if meta is None:
            return
        subject = meta.topic_id
    else:
        tenant, *rest = arguments
        subject = tenant if change.endswith("tenant") else (tenant, rest[0])
    if state.last_change(subject) > based_on:
        raise errors.Conflict("the catalogue was changed meanwhile")


async def _create(
    topics: Topics,
    name: TopicName,
    partitions: int,
    partitioned: bool | None,
    settings: Mapping[str, Setting],
    iggy_id: int | None,
) -> int:
    topic = await Topics.create(
        topics, name, partitions, partitioned=partitioned, settings=settings, iggy_id=iggy_id
    )
    return topic.ticket


async def _delete(topics: Topics, name: TopicName, holds_name: bool) -> int:
    return await Topics.delete(topics, name, holds_name=holds_name)


async def _create_namespace(
    namespaces: Namespaces, tenant: str, namespace: str, iggy_id: int | None
) -> int:
    return await Namespaces.create(namespaces, tenant, namespace, iggy_id=iggy_id)


def _has(settings: Mapping[str, Setting], changes: Mapping[str, Setting | None]) -> bool:
    """Whether settings are as after these changes."""
    return all(settings.get(key) == value for key, value in changes.items())


def _parts(name: TopicName) -> list[str]:
    return [name.tenant, name.namespace, name.topic]


Change = Callable[..., Awaitable[int]]

OF_TOPICS: Mapping[str, Change] = {
    "create": _create,
    "add_partitions": Topics.add_partitions,
    "keep_partitions": Topics.keep_partitions,
    "alter_settings": Topics.alter_settings,
    "terminate": Topics.terminate,
    "delete": _delete,
}
OF_NAMESPACES: Mapping[str, Change] = {
    "create_namespace": _create_namespace,
    "renumber_namespace": Namespaces.renumber,
    "delete_namespace": Namespaces.delete,
    "create_tenant": Namespaces.create_tenant,
    "alter_tenant": Namespaces.alter_tenant,
    "delete_tenant": Namespaces.delete_tenant,
}
