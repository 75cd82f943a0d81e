"""Namespaces, topics and their properties: the state in memory, every change in a journal.

A change is written as a record, then applied to memory by the same code that a replay uses. Each
change returns a commit ticket: an answer that waits for the ticket waits for the disk. Callers
check a change first (the name is free, the topic exists): the broker's topics do that. Knows no
partition folder, no client and no clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from braidlog.storage.metadata.catalogue_records import (
    MADE_ID_FIRST,
    CatalogueChange,
    CountersSet,
    EpochSet,
    GroupGone,
    GroupMade,
    GroupMeta,
    NamespaceGone,
    NamespaceMade,
    NamespaceMeta,
    NamespaceRenamed,
    NamespaceSettingsSet,
    PartitionsSet,
    ProducerNamed,
    ProducersForgotten,
    SchemaAdded,
    SchemaMeta,
    Setting,
    SettingsSet,
    TenantChange,
    TopicGone,
    TopicMade,
    TopicMeta,
    TopicRenamed,
)
from braidlog.storage.metadata.catalogue_writer import CatalogueWriter, Changes
from braidlog.storage.metadata.changes import in_records
from braidlog.storage.metadata.history import ChangeHistory
from braidlog.storage.metadata.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, TopicName
from braidlog.storage.metadata.tenants import TENANT_CHANGES, TenantBook
from braidlog.storage.metadata.user_records import UserChange
from braidlog.storage.metadata.users import APPLY as USER_CHANGES
from braidlog.storage.metadata.users import UserBook

NamespaceKey = tuple[str, str]

# Topic ids, partition ids and producer numbers; 0 means "none" in a batch header.
FIRST_NUMBER: Final = 1
# Producer numbers are counted per scope, which is their upper bits. A local store has a single
# scope.
SCOPE_BITS: Final = 40


class Catalogue:
    """All namespaces and topics. Callers must not change the metas returned here.

    Guarantees: memory holds exactly what a replay of the journals gives. No call waits after the
    replay: each change returns a ticket. The writer chooses the journal of a change, and may refuse
    the change (`catalogue_writer.py`).
    Implements `CatalogueState` and `CatalogueWriter`.
    """

    def __init__(self, writer: CatalogueWriter) -> None:
        """Start empty; the writer replays its journal by `apply`."""
        self.writer = writer
        self._producers: dict[tuple[int, bytes], int] = {}  # By scope and name.
        self._next_producers: dict[int, int] = {}  # By scope, but for scope 0.
        self._by_id: dict[int, TopicMeta] = {}
        self.users = UserBook()
        self.history = ChangeHistory()
        self.clear()

    def clear(self) -> dict[int, TopicMeta]:
        """Forget everything but the producers; return the topics by number.

        `users` stays the same object: logins and permissions keep a reference to the object.
        """
        topics = self._by_id
        self._namespaces: dict[NamespaceKey, NamespaceMeta] = {}
        self._streams: dict[int, NamespaceMeta] = {}
        self._topics: dict[TopicName, TopicMeta] = {}
        self._by_id = {}
        self._in_namespace: dict[NamespaceKey, dict[int, TopicMeta]] = {}  # By Iggy's id.
        self.users.clear()
        self.tenants = TenantBook()
        self._counters = CountersSet(FIRST_NUMBER, FIRST_NUMBER, MADE_ID_FIRST, FIRST_NUMBER)
        return topics

    def create_default_namespace(self, now_us: int) -> None:
        """Create `public/default` in a new catalogue."""
        if self._counters.next_made_id == MADE_ID_FIRST and not self._namespaces:
            self.create_namespace(DEFAULT_TENANT, DEFAULT_NAMESPACE, created_us=now_us)

    @property
    def ticket(self) -> int:
        return self.writer.ticket

    # Namespaces.

    def namespaces(self) -> list[NamespaceMeta]:
        """All, by name."""
        return [self._namespaces[key] for key in sorted(self._namespaces)]

    def namespace(self, tenant: str, namespace: str) -> NamespaceMeta | None:
        return self._namespaces.get((tenant, namespace))

    def namespace_by_stream_id(self, stream_id: int) -> NamespaceMeta | None:
        """The namespace that Iggy clients know by this number."""
        return self._streams.get(stream_id)

    def stream_id(self, meta: NamespaceMeta) -> int:
        """Iggy's number for a namespace: chosen by an Iggy client, else made here, from 2^24 up."""
        return meta.made_id if meta.iggy_id is None else meta.iggy_id

    def create_namespace(
        self, tenant: str, namespace: str, *, created_us: int, iggy_id: int | None = None
    ) -> int:
        """Create a namespace whose name, and number if given, are free; return the ticket."""
        assert (tenant, namespace) not in self._namespaces
        assert iggy_id not in self._streams
        made_id = self._free_made_id(self._streams)
        meta = NamespaceMeta(tenant, namespace, created_us, iggy_id, made_id)
        return self._change(NamespaceMade(meta))

    def number_namespace(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """Set the number by which Iggy clients know a namespace: this free number, or a new number
        for None; return the ticket.
        """
        meta = self._namespaces[tenant, namespace]
        assert iggy_id not in self._streams
        made_id = meta.made_id
        if iggy_id is None and meta.iggy_id is not None and made_id in self._streams:
            made_id = self._free_made_id(self._streams)  # A client chose it in the meantime.
        numbered = msgspec.structs.replace(meta, iggy_id=iggy_id, made_id=made_id)
        return self._change(NamespaceMade(numbered))

    def alter_namespace(self, tenant: str, namespace: str, settings: dict[str, Setting]) -> int:
        """Replace all settings of an existing namespace; return the ticket."""
        assert (tenant, namespace) in self._namespaces
        return self._change(NamespaceSettingsSet(tenant, namespace, dict(settings)))

    def delete_namespace(self, tenant: str, namespace: str) -> int:
        """Remove a namespace that has no topics; return the ticket."""
        assert not self._in_namespace.get((tenant, namespace))
        return self._change(NamespaceGone(tenant, namespace))

    def rename_namespace(self, tenant: str, namespace: str, renamed: str) -> int:
        """Give a namespace and all of its topics another, free name; return the ticket."""
        assert (tenant, namespace) in self._namespaces and (tenant, renamed) not in self._namespaces
        return self._change(NamespaceRenamed(tenant, namespace, renamed))

    def change_tenants(self, change: TenantChange) -> int:
        """Set a tenant, or forget an existing tenant; return the ticket."""
        return self._change(change)

    # Topics.

    def topics(self, tenant: str, namespace: str) -> list[TopicMeta]:
        """The topics of a namespace, by name."""
        metas = self._in_namespace.get((tenant, namespace), {}).values()
        return sorted(metas, key=lambda meta: meta.name.topic)

    def all_topics(self) -> list[TopicMeta]:
        """Every topic, in the order they were made."""
        return list(self._by_id.values())

    def topic(self, name: TopicName) -> TopicMeta | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: int) -> TopicMeta | None:
        return self._by_id.get(topic_id)

    def numbered_topics(self, tenant: str, namespace: str) -> Mapping[int, TopicMeta]:
        """The topics of a namespace, by the numbers by which Iggy clients know them."""
        return self._in_namespace.get((tenant, namespace), {})

    def topic_id(self, meta: TopicMeta) -> int:
        """Iggy's number for a topic: chosen by an Iggy client, else made here, from 2^24 up."""
        return meta.made_id if meta.iggy_id is None else meta.iggy_id

    def next_partition_id(self) -> int:
        """Return a partition id that was never given out. The id is stored with its topic, and as
        the name of its folder.
        """
        partition_id = self._counters.next_partition_id
        self._counters.next_partition_id += 1
        return partition_id

    @property
    def partition_ids_end(self) -> int:
        """Partition ids below it were given out."""
        return self._counters.next_partition_id

    def raise_partition_ids(self, highest_seen: int) -> None:
        """Continue above the highest partition id of any folder, even of a folder that the
        catalogue does not name.
        """
        self._counters.next_partition_id = max(self._counters.next_partition_id, highest_seen + 1)

    def raise_topic_ids(self, highest_seen: int) -> None:
        """Continue above the highest topic number of any cursor, even if its topic is unknown."""
        self._counters.next_topic_id = max(self._counters.next_topic_id, highest_seen + 1)

    def create_topic(
        self,
        name: TopicName,
        partition_ids: list[int],
        *,
        partitioned: bool,
        created_us: int,
        settings: dict[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> int:
        """Create a topic whose name is free, in an existing namespace, over existing folders;
        return the ticket.
        """
        key = (name.tenant, name.namespace)
        assert key in self._namespaces and name not in self._topics
        assert iggy_id not in self._in_namespace.get(key, {})
        meta = TopicMeta(
            topic_id=self._counters.next_topic_id,
            name=name,
            partition_ids=partition_ids,
            partitioned=partitioned,
            created_us=created_us,
            settings=dict(settings or {}),
            iggy_id=iggy_id,
            made_id=self._free_made_id(self._in_namespace.get(key, {})),
        )
        return self._change(TopicMade(meta))

    def set_partitions(self, topic_id: int, partition_ids: list[int], *, partitioned: bool) -> int:
        """Give a topic more or fewer partitions: the ids of all, in order; return the ticket."""
        return self._change(PartitionsSet(topic_id, partition_ids, partitioned))

    def delete_topic(self, topic_id: int) -> int:
        """Remove a topic; return the ticket. Once durable, the topic's folders may be removed."""
        return self._change(TopicGone(topic_id))

    def rename_topic(self, topic_id: int, topic: str) -> int:
        """Give a topic another name, which is free in its namespace; return the ticket."""
        return self._change(TopicRenamed(topic_id, topic))

    def alter_settings(self, topic_id: int, settings: dict[str, Setting]) -> int:
        """Replace all settings of a topic; return the ticket."""
        return self._change(SettingsSet(topic_id, dict(settings)))

    def add_schema(self, topic_id: int, schema: SchemaMeta) -> int:
        """Add a schema, whose version is its place in `meta.schemas`; return the ticket."""
        return self._change(SchemaAdded(topic_id, schema))

    def bump_topic_epoch(self, topic_id: int) -> int:
        """Increment the topic's epoch; return the ticket."""
        return self._change(EpochSet(topic_id, self._by_id[topic_id].topic_epoch + 1))

    # Named Iggy groups.

    def groups(self, topic_id: int) -> list[GroupMeta]:
        """The named groups of a topic, in the order they were made."""
        return self._by_id[topic_id].groups

    def create_group(self, topic_id: int, name: str, group_id: int | None = None) -> int:
        """Make a group with a free name and number, or with the next number; return the ticket."""
        meta = self._by_id[topic_id]
        if group_id is None:
            group_id = meta.next_group_id
        assert all(group.group_id != group_id and group.name != name for group in meta.groups)
        return self._change(GroupMade(topic_id, GroupMeta(group_id, name)))

    def delete_group(self, topic_id: int, group_id: int) -> int:
        """Remove a group; return the ticket."""
        return self._change(GroupGone(topic_id, group_id))

    # Producers.

    def scope(self, name: TopicName) -> int:
        return self.writer.scope(name)

    def producer_id(self, name: bytes, scope: int = 0) -> int:
        """Return the number, from 1 on, for a producer's name in batch headers; a new name gets the
        next number of its scope.

        The producer is answered only once `ticket` is durable, so no batch with the number is older
        than its record.
        """
        number = self._producers.get((scope, name))
        if number is None:
            number = self.next_producer(scope)
            self._change(ProducerNamed(number, name))
        return number

    def next_producer(self, scope: int) -> int:
        """Return the next number in a scope of producers."""
        if not scope:
            return self._counters.next_producer
        return self._next_producers.get(scope, (scope << SCOPE_BITS) + FIRST_NUMBER)

    def count_producers(self, scope: int, next_number: int) -> None:
        """Set the next number in a scope of producers."""
        self._next_producers[scope] = next_number

    def producer_numbers(self) -> dict[tuple[int, bytes], int]:
        """The number of every producer that is remembered, by scope and name; read-only."""
        return self._producers

    def forget_producers(self, numbers: list[int]) -> int:
        """Forget producers; their numbers are never used again. Return the ticket."""
        ticket = 0
        for scope in {number >> SCOPE_BITS for number in numbers}:
            in_scope = [number for number in numbers if number >> SCOPE_BITS == scope]
            ticket = self._change(ProducersForgotten(in_scope))
        return ticket

    def forget_scope(self, scope: int) -> None:
        """Drop the producers of a scope from memory: another broker numbers them."""
        self._producers = {key: state for key, state in self._producers.items() if key[0] != scope}
        self._next_producers.pop(scope, None)

    # Users and permissions.

    def change_users(self, *changes: UserChange) -> int:
        """Change users and permissions by a single record, all or none; return the ticket."""
        return self.writer.write(*changes)

    # Changing.

    def _change(self, change: CatalogueChange) -> int:
        topic_id = getattr(change, "topic_id", None)
        assert topic_id is None or topic_id in self._by_id, "it would end the next start"
        return self.writer.write(change)

    def write(
        self,
        changes: Sequence[CatalogueChange],
        journal: Changes,
        state: Iterator[CatalogueChange],
    ) -> int:
        """Write changes as a record to the journal of the history, and apply the changes; return
        the ticket. `state` is all that a snapshot of that journal holds.
        """
        ticket = journal.append(*changes)
        for change in changes:
            self.history.apply(self, change, journal.last_place)
        journal.snapshot_if_due(in_records(state))
        return ticket

    def apply(self, change: CatalogueChange) -> None:
        APPLY[type(change)](self, change)

    def state(self, *, with_data: bool = True) -> Iterator[CatalogueChange]:
        """Yield the changes that make this state; `with_data=False`: without the producers and the
        data of topics, which the journals of other shards hold.
        """
        yield self._counters
        for namespace in self._namespaces.values():
            yield NamespaceMade(namespace)
        for topic in self._by_id.values():
            yield TopicMade(topic if with_data else topic.without_data())
        if with_data:
            for (_, name), number in self._producers.items():
                yield ProducerNamed(number, name)
        yield from self.users.changes()
        yield from self.tenants.changes()

    def _free_made_id(self, used_ids: dict[int, Any]) -> int:
        made_id = self._counters.next_made_id
        while made_id in used_ids:  # An Iggy client may choose any number.
            made_id += 1
        return made_id

    def _count_made_id(self, made_id: int) -> None:
        self._counters.next_made_id = max(self._counters.next_made_id, made_id + 1)

    # Applying: a function for each kind of change, for live changes and for replay.

    def _apply_counters(self, change: CountersSet) -> None:
        self._counters = change

    def _apply_namespace(self, change: NamespaceMade) -> None:
        meta = change.meta
        old = self._namespaces.get((meta.tenant, meta.namespace))
        if old is not None:  # It got another number.
            del self._streams[self.stream_id(old)]
        self._namespaces[meta.tenant, meta.namespace] = meta
        self._streams[self.stream_id(meta)] = meta
        self._count_made_id(meta.made_id)

    def _apply_namespace_gone(self, change: NamespaceGone) -> None:
        meta = self._namespaces.pop((change.tenant, change.namespace))
        del self._streams[self.stream_id(meta)]

    def _apply_namespace_settings(self, change: NamespaceSettingsSet) -> None:
        self._namespaces[change.tenant, change.namespace].settings = change.settings

    def _apply_namespace_renamed(self, change: NamespaceRenamed) -> None:
        before, key = (change.tenant, change.namespace), (change.tenant, change.renamed)
        if key in self._namespaces:
            raise KeyError(key)  # The record of its deletion is lost: skip this record too.
        meta = msgspec.structs.replace(self._namespaces.pop(before), namespace=change.renamed)
        self._namespaces[key] = self._streams[self.stream_id(meta)] = meta
        for topic in list(self._in_namespace.pop(before, {}).values()):
            self._name(topic, TopicName(change.tenant, change.renamed, topic.name.topic))

    def _apply_topic_renamed(self, change: TopicRenamed) -> None:
        meta = self._by_id[change.topic_id]
        name = TopicName(meta.name.tenant, meta.name.namespace, change.topic)
        self._name(meta, name)

    def _name(self, before: TopicMeta, name: TopicName) -> None:
        """Rename with a new meta: holders of the old meta still see the old name."""
        old = self._topics.get(name)
        if old is not None:  # The record of its deletion is lost.
            self._apply_topic_gone(TopicGone(old.topic_id))
        meta = msgspec.structs.replace(before, name=name)
        del self._topics[before.name]
        self._topics[name] = self._by_id[meta.topic_id] = meta
        topics = self._in_namespace.setdefault((name.tenant, name.namespace), {})
        topics[self.topic_id(meta)] = meta

    def _apply_topic(self, change: TopicMade) -> None:
        meta = change.meta
        old = self._topics.get(meta.name)
        if old is not None:  # The record of its deletion is lost.
            self._apply_topic_gone(TopicGone(old.topic_id))
        self._topics[meta.name] = self._by_id[meta.topic_id] = meta
        topics = self._in_namespace.setdefault((meta.name.tenant, meta.name.namespace), {})
        topics[self.topic_id(meta)] = meta
        self._counters.next_topic_id = max(self._counters.next_topic_id, meta.topic_id + 1)
        self._count_made_id(meta.made_id)
        self.raise_partition_ids(max(meta.partition_ids, default=0))

    def _apply_topic_gone(self, change: TopicGone) -> None:
        meta = self._by_id.pop(change.topic_id)
        del self._topics[meta.name]
        del self._in_namespace[meta.name.tenant, meta.name.namespace][self.topic_id(meta)]

    def _apply_partitions(self, change: PartitionsSet) -> None:
        meta = self._by_id[change.topic_id]
        meta.partition_ids = change.partition_ids
        meta.partitioned = change.partitioned
        self.raise_partition_ids(max(change.partition_ids, default=0))

    def _apply_settings(self, change: SettingsSet) -> None:
        self._by_id[change.topic_id].settings = change.settings

    def _apply_schema(self, change: SchemaAdded) -> None:
        self._by_id[change.topic_id].schemas.append(change.schema)

    def _apply_epoch(self, change: EpochSet) -> None:
        self._by_id[change.topic_id].topic_epoch = change.topic_epoch

    def _apply_group(self, change: GroupMade) -> None:
        meta = self._by_id[change.topic_id]
        meta.groups.append(change.group)
        meta.next_group_id = max(meta.next_group_id, change.group.group_id + 1)

    def _apply_group_gone(self, change: GroupGone) -> None:
        meta = self._by_id[change.topic_id]
        meta.groups = [group for group in meta.groups if group.group_id != change.group_id]

    def _apply_producer(self, change: ProducerNamed) -> None:
        scope = change.number >> SCOPE_BITS
        self._producers[scope, change.name] = change.number
        next_number = max(self.next_producer(scope), change.number + 1)
        if scope:
            self._next_producers[scope] = next_number
        else:
            self._counters.next_producer = next_number

    def _apply_producers_forgotten(self, change: ProducersForgotten) -> None:
        gone = set(change.numbers)
        for key in [key for key, number in self._producers.items() if number in gone]:
            del self._producers[key]


APPLY: Final[dict[type, Callable[[Catalogue, Any], None]]] = {
    CountersSet: Catalogue._apply_counters,
    NamespaceMade: Catalogue._apply_namespace,
    NamespaceGone: Catalogue._apply_namespace_gone,
    TopicMade: Catalogue._apply_topic,
    TopicGone: Catalogue._apply_topic_gone,
    PartitionsSet: Catalogue._apply_partitions,
    SettingsSet: Catalogue._apply_settings,
    SchemaAdded: Catalogue._apply_schema,
    EpochSet: Catalogue._apply_epoch,
    GroupMade: Catalogue._apply_group,
    GroupGone: Catalogue._apply_group_gone,
    ProducerNamed: Catalogue._apply_producer,
    ProducersForgotten: Catalogue._apply_producers_forgotten,
    NamespaceSettingsSet: Catalogue._apply_namespace_settings,
    TopicRenamed: Catalogue._apply_topic_renamed,
    NamespaceRenamed: Catalogue._apply_namespace_renamed,
    **dict.fromkeys(USER_CHANGES, lambda catalogue, change: catalogue.users.apply(change)),
    **dict.fromkeys(TENANT_CHANGES, lambda catalogue, change: catalogue.tenants.apply(change)),
}
