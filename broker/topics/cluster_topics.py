"""Implementation of `TopicRegistry` in a cluster: the owner of the catalogue makes all changes.

Knows no socket: `CatalogueChanges` (`broker/cluster/changes.py`) makes a change here or at the
owner; a broker follows the changes that the owner has published (`broker/cluster/following.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from braidlog.broker import errors
from braidlog.broker.topics.auto_creation import AutoCreation
from braidlog.broker.topics.topic import check_count

if TYPE_CHECKING:
    from braidlog.broker.cluster.changes import CatalogueChanges
    from braidlog.broker.topics.registry import TopicDefaults
    from braidlog.broker.topics.topic import Topic
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.metadata.catalogue_records import Setting, TopicMeta
    from braidlog.storage.metadata.names import TopicName


class ClusterTopics:
    """All topics of the cluster. Partitions of other brokers' topics have no log here."""

    def __init__(self, local: Topics, changes: CatalogueChanges) -> None:
        """`local` has the topics in memory, and makes the changes if this broker owns the
        catalogue.
        """
        self._local = local
        self._changes = changes
        self.listeners = local.listeners
        self.altering = local.altering
        self.leaving = local.leaving
        self.auto_create = AutoCreation(self, local.held_names)
        # The local registry finds topics. Its methods are bound here, so a lookup needs no further
        # call.
        self.find, self.get = local.find, local.get
        self.find_numbered, self.number = local.find_numbered, local.number
        self.find_by_id, self.partition = local.find_by_id, local.partition
        self.list, self.all = local.list, local.all
        self.inherited = local.inherited
        self.check_new, self.check_growth = local.check_new, local.check_growth
        self.resolve_pulsar, self.pulsar_partition = local.resolve_pulsar, local.pulsar_partition
        self.is_deduplicated = local.is_deduplicated

    def __len__(self) -> int:
        return len(self._local)

    @property
    def defaults(self) -> TopicDefaults:
        return self._local.defaults

    async def create(
        self,
        name: TopicName,
        partitions: int,
        *,
        partitioned: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> Topic:
        was_there = self.find(name) is not None

        def is_made() -> bool:
            topic = self.find(name)
            if was_there or topic is None:
                return False
            return (len(topic.partitions), topic.meta.iggy_id) == (partitions, iggy_id)

        request = (_parts(name), partitions, partitioned, dict(settings or {}), iggy_id)
        await self._changes.make("create", *request, is_made=is_made)
        topic = self.find(name)
        if topic is None:
            raise errors.Unanswered(f"{name} was created, but is not known to this broker now")
        return topic

    async def add_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        return await self._resize("add_partitions", name, total, seen)

    async def keep_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        return await self._resize("keep_partitions", name, total, seen)

    async def _resize(self, change: str, name: TopicName, total: int, seen: int | None) -> int:
        def check() -> None:
            topic = self.find(name)
            if topic is not None:
                check_count(topic, seen)

        is_made = self._on(name, lambda meta: len(meta.partition_ids) == total)
        return await self._changes.make(change, _parts(name), total, is_made=is_made, check=check)

    async def alter_settings(self, name: TopicName, changes: Mapping[str, Setting | None]) -> int:
        is_made = self._on(name, lambda meta: _has(meta.settings, changes))
        request = (_parts(name), dict(changes))
        return await self._changes.make("alter_settings", *request, is_made=is_made)

    async def alter_namespace(
        self, tenant: str, namespace: str, changes: Mapping[str, Setting | None]
    ) -> int:

        def is_made() -> bool:
            settings = self._local.namespace_settings(tenant, namespace)
            return settings is not None and _has(settings, changes)

        request = (tenant, namespace, dict(changes))
        return await self._changes.make("alter_namespace", *request, is_made=is_made)

    async def terminate(self, name: TopicName) -> int:
        is_made = self._on(name, lambda meta: meta.is_terminated)
        return await self._changes.make("terminate", _parts(name), is_made=is_made)

    async def delete(self, name: TopicName, *, holds_name: bool = False) -> int:
        before = self.find(name)
        is_marked = before is not None and before.meta.is_being_deleted

        def is_made() -> bool:
            return before is not None and self.find_by_id(before.meta.topic_id) is None

        def check() -> None:
            if before is not None and self.find(name) is not None and is_made():
                raise errors.Conflict(f"{name} was deleted and created again meanwhile")
            if is_marked and before is not None and not before.meta.is_being_deleted:
                raise errors.Conflict(f"{name} takes records again")

        request = (_parts(name), holds_name)
        return await self._changes.make("delete", *request, is_made=is_made, check=check)

    def _on(self, name: TopicName, is_wanted: Callable[[TopicMeta], bool]) -> Callable[[], bool]:
        """Return a check: the topic that now has the name still exists and has the wanted form."""
        before = self.find(name)

        def is_made() -> bool:
            now = self.find(name)
            if before is None or now is None or now.meta.topic_id != before.meta.topic_id:
                return False
            return is_wanted(now.meta)

        return is_made


def _has(settings: Mapping[str, Setting], changes: Mapping[str, Setting | None]) -> bool:
    """Return whether the settings already contain these changes."""
    return all(settings.get(key) == value for key, value in changes.items())


def _parts(name: TopicName) -> list[str]:
    return [name.tenant, name.namespace, name.topic]
