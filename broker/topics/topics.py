"""Topics and their partitions: making, growing and deleting them, and finding them by name.

Nothing here waits: each call changes memory and journals at once and gives a commit ticket that an
answer may wait for. So no lock is needed, and nobody sees half a topic. Knows no connection, no
file (`PartitionFactory` makes and removes those) and no protocol but for the shapes of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

import storage.errors
from broker import errors
from broker.topics.deletion import Leaving
from broker.topics.partition import broker_error
from broker.topics.topic import PartitionFactory, Topic, TopicEvent, TopicListener
from storage.metadata.catalogue import Catalogue
from storage.metadata.catalogue_records import NamespaceMeta, Setting, TopicMeta
from storage.metadata.cursors import CursorStore
from storage.metadata.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    InvalidTopicName,
    TopicName,
    check_namespace,
    check_topic_name,
    parse_topic,
    split_partition,
)

if TYPE_CHECKING:
    from broker.topics.partition import Partition

# Of one topic. Each costs a folder, files and a cursor of every subscription; Iggy's own bound is
# ten times that.
TOPIC_PARTITIONS_MAX: Final = 10_000


@dataclass(slots=True, frozen=True)
class TopicDefaults:
    """What a topic gets that nobody described."""

    auto_create: bool = True
    num_partitions: int = 1


class Topics:
    """All topics and namespaces."""

    def __init__(
        self,
        catalogue: Catalogue,
        cursors: CursorStore,
        factory: PartitionFactory,
        *,
        defaults: TopicDefaults,
        now_us: Callable[[], int],
        translate: Callable[[storage.errors.StorageError], errors.BrokerError] = broker_error,
    ) -> None:
        """`translate` tells what listeners hear of a storage error (and may stop the broker)."""
        self.catalogue = catalogue
        self.defaults = defaults
        self.listeners: set[TopicListener] = set()
        self._cursors = cursors
        self._factory = factory
        self._now_us = now_us
        self._translate = translate
        self._topics: dict[TopicName, Topic] = {}
        self._under_way: dict[TopicName, trio.Event] = {}  # Topics that are made aside by name.
        self._altering = trio.Lock()
        self.leaving = Leaving(cursors, factory)

    def open_all(self) -> None:
        """Open every topic of the catalogue, and let the cursors agree with it where a power cut
        left one journal behind the other. Raises errors of storage.
        """
        for meta in self.catalogue.all_topics():
            topic = Topic(meta)
            for index, partition_id in enumerate(meta.partition_ids):
                topic.partitions.append(self._factory.open(topic, index, partition_id))
            self._topics[meta.name] = topic
            self._cursors.resize(meta.topic_id, len(meta.partition_ids))
        for topic_id in self._cursors.topic_ids():
            if self.catalogue.topic_by_id(topic_id) is None:
                self._cursors.drop_topic(topic_id)

    # Finding.

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: TopicName) -> Topic | None:
        """The topic of that name, if there is one."""
        return self._topics.get(name)

    def get(self, name: TopicName) -> Topic:
        """The topic of that name. Raises TopicNotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise errors.TopicNotFound(f"no topic {name}")
        return topic

    def partition(self, name: TopicName, index: int) -> Partition:
        """A partition by its number, from 0. Raises TopicNotFound, PartitionNotFound."""
        return self.get(name).partition(index)

    def list(self, tenant: str, namespace: str) -> Sequence[Topic]:
        """The topics of a namespace, by name."""
        return [self._topics[meta.name] for meta in self.catalogue.topics(tenant, namespace)]

    def all(self) -> Sequence[Topic]:
        """Every topic, in the order they were made."""
        return list(self._topics.values())

    def resolve_pulsar(self, text: str) -> tuple[TopicName, int | None]:
        """Read a Pulsar name: the topic, and N where it ends in `-partition-N`.

        No topic is ever called like that, so it always names a partition. Raises InvalidName.
        """
        try:
            name = parse_topic(text)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        split = split_partition(name.topic)
        if split is None:
            return name, None
        return TopicName(name.tenant, name.namespace, split[0]), split[1]

    def pulsar_partition(self, name: TopicName, index: int | None) -> Partition:
        """The partition that a Pulsar producer or consumer means by what `resolve_pulsar` gave.

        `x` and `x-partition-0` are the one partition of an unpartitioned topic. Raises
        TopicNotFound, PartitionNotFound, and InvalidRequest for a partitioned topic without a
        number, which Apache Pulsar refuses too.
        """
        topic = self.get(name)
        if index is None and topic.partitioned:
            raise errors.InvalidRequest(f"{name} is partitioned: name one of its partitions")
        return topic.partition(index or 0)

    # Changing.

    def create(
        self,
        name: TopicName,
        partitions: int,
        *,
        partitioned: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> Topic:
        """Make a topic; with more than one partition it is partitioned, with one if it is said.

        Its folders are on disk when this returns, the topic itself with `topic.ticket`. Raises
        InvalidName, InvalidRequest, NamespaceNotFound, TopicExists, StorageFull, StorageFailed.
        """
        return self._enter(
            self._planned(name, partitions, partitioned, settings, iggy_id), partitions
        )

    async def create_aside(
        self,
        name: TopicName,
        partitions: int,
        *,
        settings: Mapping[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> Topic:
        """As `create`, with the folders made in a thread: a partition takes milliseconds, and other
        clients do not wait for those of a large topic. Nobody sees the topic before.

        Raises what `create` raises.
        """
        topic = self._planned(name, partitions, None, settings, iggy_id)
        made = await self._made_aside(topic, partitions)
        try:
            self._check_new(name, partitions, iggy_id)  # Another client may have been quicker.
        except errors.BrokerError:
            self._discard(made)
            raise
        return self._enter(topic, partitions, made)

    async def auto_create(self, name: TopicName) -> Topic:
        """The topic of that name, made as by `create_aside` if need be and if the configuration
        lets us, once for all who ask meanwhile.

        Raises TopicNotFound and what `create` raises.
        """
        while (under_way := self._under_way.get(name)) is not None:
            await under_way.wait()
        topic = self.find(name)
        if topic is not None:
            return topic
        if not self.defaults.auto_create:
            raise errors.TopicNotFound(f"no topic {name}, and none is made by itself")
        self._under_way[name] = trio.Event()
        try:
            return await self.create_aside(name, self.defaults.num_partitions)
        except errors.TopicExists:
            return self.get(name)
        finally:
            self._under_way.pop(name).set()

    def add_partitions(self, name: TopicName, total: int) -> int:
        """Grow a topic to `total` partitions; return the ticket.

        Every subscription gets a cursor at 0 on the new ones. Raises TopicNotFound,
        InvalidRequest, TopicInUse, StorageFull, StorageFailed.
        """
        return self._grow(self._growing(name, total), total)

    async def add_partitions_aside(self, name: TopicName, total: int) -> int:
        """As `add_partitions`, with the folders made in a thread. Raises what that raises."""
        topic = self._growing(name, total)
        count, settings = len(topic.partitions), topic.meta.settings
        made = await self._made_aside(topic, total - count)
        try:
            now = (self._growing(name, total), len(topic.partitions), topic.meta.settings)
            if now != (topic, count, settings):
                raise errors.TopicInUse(f"{name} was changed meanwhile")
        except errors.BrokerError:
            self._discard(made)
            raise
        return self._grow(topic, total, made)

    def _growing(self, name: TopicName, total: int) -> Topic:
        """The topic, if it can grow to that. Raises TopicNotFound, InvalidRequest, TopicInUse."""
        topic = self.get(name)
        count = len(topic.partitions)
        if not count < total <= TOPIC_PARTITIONS_MAX:
            raise errors.InvalidRequest(
                f"{name} has {count} partitions and can have up to {TOPIC_PARTITIONS_MAX}"
            )
        if topic.layout_users and (topic.partitioned or total > 1) != topic.partitioned:
            raise errors.TopicInUse(f"{name} is used as an unpartitioned topic")
        return topic

    def _grow(self, topic: Topic, total: int, made: Sequence[Partition] | None = None) -> int:
        topic_id = topic.meta.topic_id
        partitioned = topic.partitioned or total > 1
        with self._new_partitions(topic, total - len(topic.partitions), made) as partition_ids:
            # Cursors first: a partition must not be seen without them.
            self._cursors.resize(topic_id, total)
            try:
                topic.ticket = self.catalogue.set_partitions(
                    topic_id, [*topic.meta.partition_ids, *partition_ids], partitioned=partitioned
                )
            except storage.errors.StorageFull:
                self._cursors.resize(topic_id, len(topic.partitions), lazy=True)
                raise
        self._tell(topic, TopicEvent.GROWN)
        return topic.ticket

    def alter_settings(self, name: TopicName, changes: Mapping[str, Setting | None]) -> int:
        """Change some settings of a topic, None takes one back; return the ticket.

        The partitions follow at once. Raises TopicNotFound, InvalidRequest, StorageFull,
        StorageFailed.
        """
        topic = self.get(name)
        before = topic.meta.settings
        settings = _changed(before, changes)
        try:
            self._factory.alter(topic, settings)
            topic.ticket = self._factory.spend_on(
                lambda: self.catalogue.alter_settings(topic.meta.topic_id, settings)
            )
        except storage.errors.StorageFull as error:
            self._factory.alter(topic, before)
            raise self._translate(error) from error
        except storage.errors.StorageError as error:
            raise self._translate(error) from error
        return topic.ticket

    async def alter_settings_in_turns(
        self, name: TopicName, changes: Mapping[str, Setting | None]
    ) -> int:
        """As `alter_settings`, with a turn for everybody else after each partition: another
        durability waits for the disk in each. Raises what `alter_settings` raises.
        """
        async with self._altering:
            topic = self.get(name)
            settings = _changed(topic.meta.settings, changes)
            try:
                for partition in topic.partitions:  # Those that come meanwhile, too.
                    if not partition.removed:
                        self._factory.alter_one(partition, settings)
                    await trio.lowlevel.checkpoint()
            except storage.errors.StorageError as error:
                if isinstance(error, storage.errors.StorageFull):
                    self._factory.alter(topic, topic.meta.settings)
                raise self._translate(error) from error
            return self.alter_settings(name, changes)

    def delete(self, name: TopicName) -> int:
        """Delete a topic with its subscriptions; return the ticket.

        Cursors and files go once that is durable (`leaving`). Raises TopicNotFound,
        StorageFull, StorageFailed.
        """
        topic = self.get(name)
        try:
            topic.ticket = self._factory.spend_on(
                lambda: self.catalogue.delete_topic(topic.meta.topic_id)
            )
        except storage.errors.StorageError as error:
            raise self._translate(error) from error
        del self._topics[name]
        topic.deleted = True
        self.leaving.add(topic)
        for partition in topic.partitions:
            partition.remove()
        self._tell(topic, TopicEvent.DELETED)
        return topic.ticket

    # Namespaces.

    def namespace(self, tenant: str, namespace: str) -> NamespaceMeta:
        """The namespace of that name. Raises NamespaceNotFound."""
        meta = self.catalogue.namespace(tenant, namespace)
        if meta is None:
            raise errors.NamespaceNotFound(f"no namespace {tenant}/{namespace}")
        return meta

    def create_namespace(self, tenant: str, namespace: str, *, iggy_id: int | None = None) -> int:
        """Make a namespace; return the ticket.

        Raises InvalidName, NamespaceExists, StorageFull, StorageFailed.
        """
        try:
            check_namespace(tenant, namespace)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        if iggy_id is not None and self.catalogue.namespace_by_stream_id(iggy_id):
            raise errors.NamespaceExists(f"a namespace has the number {iggy_id}")
        if self.catalogue.namespace(tenant, namespace):
            raise errors.NamespaceExists(f"{tenant}/{namespace} is there already")
        try:
            return self.catalogue.create_namespace(
                tenant, namespace, created_us=self._now_us(), iggy_id=iggy_id
            )
        except storage.errors.StorageError as error:
            raise self._translate(error) from error

    def number_namespace(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """Let Iggy's clients know a namespace by this number, or by the one made here again; return
        the ticket. Raises NamespaceNotFound, NamespaceExists, StorageFull, StorageFailed.
        """
        self.namespace(tenant, namespace)
        if iggy_id is not None and self.catalogue.namespace_by_stream_id(iggy_id):
            raise errors.NamespaceExists(f"a namespace has the number {iggy_id}")
        try:
            return self.catalogue.number_namespace(tenant, namespace, iggy_id)
        except storage.errors.StorageError as error:
            raise self._translate(error) from error

    def delete_namespace(self, tenant: str, namespace: str, *, with_topics: bool = False) -> int:
        """Delete a namespace, and all its topics if that is said; return the ticket.

        Raises NamespaceNotFound, TopicInUse while it has topics, InvalidRequest for
        `public/default`, where Kafka's listener always leads, StorageFull, StorageFailed.
        """
        self.namespace(tenant, namespace)
        if (tenant, namespace) == (DEFAULT_TENANT, DEFAULT_NAMESPACE):
            raise errors.InvalidRequest(f"{tenant}/{namespace} stays")
        topics = self.list(tenant, namespace)
        if topics and not with_topics:
            raise errors.TopicInUse(f"{tenant}/{namespace} has {len(topics)} topics")
        for topic in topics:
            self.delete(topic.name)
        try:
            return self._factory.spend_on(
                lambda: self.catalogue.delete_namespace(tenant, namespace)
            )
        except storage.errors.StorageError as error:
            raise self._translate(error) from error

    def _check_new(self, name: TopicName, partitions: int, iggy_id: int | None) -> None:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        if split_partition(name.topic):
            raise errors.InvalidName(f"{name.topic!r} would be a partition's name")
        if not 0 <= partitions <= TOPIC_PARTITIONS_MAX:
            raise errors.InvalidRequest(f"a topic has at most {TOPIC_PARTITIONS_MAX} partitions")
        self.namespace(name.tenant, name.namespace)
        if iggy_id is not None and self.catalogue.topic_by_iggy_id(
            name.tenant, name.namespace, iggy_id
        ):
            raise errors.TopicExists(f"a topic of that namespace has the number {iggy_id}")
        if name in self._topics:
            raise errors.TopicExists(f"{name} is there already")

    def _planned(
        self,
        name: TopicName,
        partitions: int,
        partitioned: bool | None,
        settings: Mapping[str, Setting] | None,
        iggy_id: int | None,
    ) -> Topic:
        """A topic that could be made now, without a number and partitions."""
        partitioned = partitions > 1 if partitioned is None else partitioned
        self._check_new(name, partitions, iggy_id)
        if partitions > 1 and not partitioned:
            raise errors.InvalidRequest("an unpartitioned topic has one partition")
        kept = dict(settings or {})
        return Topic(TopicMeta(0, name, [], partitioned, self._now_us(), kept, iggy_id, 0))

    def _enter(
        self, topic: Topic, partitions: int, made: Sequence[Partition] | None = None
    ) -> Topic:
        """Make a planned topic one that all see."""
        catalogue, planned = self.catalogue, topic.meta
        with self._new_partitions(topic, partitions, made) as partition_ids:
            topic.ticket = catalogue.create_topic(
                planned.name,
                [*partition_ids],
                partitioned=planned.partitioned,
                created_us=planned.created_us,
                settings=planned.settings,
                iggy_id=planned.iggy_id,
            )
        meta = catalogue.topic(planned.name)
        assert meta is not None
        topic.meta = meta
        self._topics[meta.name] = topic
        self._tell(topic, TopicEvent.CREATED)
        return topic

    def _numbers(self, count: int) -> Sequence[int]:
        return [self.catalogue.next_partition_id() for _ in range(count)]

    async def _made_aside(self, topic: Topic, count: int) -> Sequence[Partition]:
        """`count` further partitions, made in a thread; nobody knows them yet."""
        numbers = self._numbers(count)
        try:
            return await trio.to_thread.run_sync(
                self._factory.create, topic, len(topic.partitions), numbers
            )
        except storage.errors.StorageError as error:
            raise self._translate(error) from error

    def _discard(self, made: Sequence[Partition]) -> None:
        for partition in made:
            self._factory.discard(partition)

    @contextmanager
    def _new_partitions(
        self, topic: Topic, count: int, made: Sequence[Partition] | None
    ) -> Iterator[Sequence[int]]:
        """Give the topic `count` further partitions, made now if they are not, for what happens
        inside; they go again if that fails.
        """
        try:
            if made is None:
                made = self._factory.create(topic, len(topic.partitions), self._numbers(count))
            yield [partition.partition_id for partition in made]
        except storage.errors.StorageError as error:
            if not isinstance(error, storage.errors.StorageFailed):  # Else a record may name them.
                self._discard(made or ())
            raise self._translate(error) from error
        topic.partitions.extend(made)

    def _tell(self, topic: Topic, event: TopicEvent) -> None:
        for listener in tuple(self.listeners):
            listener.topic_changed(topic, event)


def _changed(
    settings: Mapping[str, Setting], changes: Mapping[str, Setting | None]
) -> dict[str, Setting]:
    """Settings with some changed; None takes one back."""
    merged = {**settings, **changes}
    return {name: value for name, value in merged.items() if value is not None}
