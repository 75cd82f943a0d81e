"""The local implementation of `TopicRegistry`: this broker makes every change.

Also applies a change to memory and notifies listeners, for changes made here or at another broker
(`broker/cluster/following.py`). Knows no connection, no file (`Partitions` creates and
removes files) and of protocols only the shapes of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker import errors
from braidlog.broker.commit.storage_errors import Report, as_broker_errors
from braidlog.broker.limits import STATE_LIMITS, TOPIC_PARTITIONS_MAX, StateLimits
from braidlog.broker.topics.auto_creation import AutoCreation
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.client_limits import check_topics
from braidlog.broker.topics.deletion import HeldNames, Leaving
from braidlog.broker.topics.moves import Moves
from braidlog.broker.topics.registry import TopicDefaults
from braidlog.broker.topics.topic import (
    PlacedTopic,
    Topic,
    TopicEvent,
    TopicListener,
    changed_settings,
    check_count,
    check_new_name,
)
from braidlog.storage.metadata.catalogue_records import TERMINATED, Setting, TopicMeta
from braidlog.storage.metadata.names import (
    InvalidTopicName,
    TopicName,
    parse_topic,
    split_partition,
)
from braidlog.storage.metadata.positions import Positions

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.partition_factory import Partitions

log = structlog.get_logger()

# Tries to create partitions while other clients change the namespace's settings.
CREATE_ATTEMPTS: Final = 5


class Topics:
    """All topics of the catalogue, in memory."""

    def __init__(
        self,
        catalogue: LocalCatalogue,
        cursors: Positions,
        factory: Partitions,
        *,
        defaults: TopicDefaults,
        now_us: Callable[[], int],
        report: Report,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """`report` is called with each storage error before the broker error is raised."""
        self.defaults = defaults
        self._catalogue = catalogue
        self.listeners: set[TopicListener] = set()
        self._cursors = cursors
        self._factory = factory
        self._now_us = now_us
        self._report = report
        self._limits = limits
        self._topics: dict[TopicName, Topic] = {}
        self._partition_count = 0
        self.held_names = HeldNames()
        self.auto_create = AutoCreation(self, self.held_names)
        self.altering = trio.Lock()  # Held while settings or names change.
        self.leaving = Leaving(cursors, factory)
        self.moves = Moves(factory, catalogue.placement, report)

    def open_all(self) -> None:
        """Open every topic of the catalogue and align the cursors with the catalogue: after a power
        cut either journal may be behind the other. Raises storage errors.
        """
        metas = list(self._catalogue.state.all_topics())
        numbers = self._factory.in_turn([number for meta in metas for number in meta.partition_ids])
        for meta in metas:
            topic = self.named(meta)
            for index, partition_id in enumerate(islice(numbers, len(meta.partition_ids))):
                topic.partitions.append(self._factory.open(topic, index, partition_id))
            self._topics[meta.name] = topic
            self._partition_count += len(topic.partitions)
            self._cursors.resize(meta.topic_id, len(meta.partition_ids))
        for topic_id in self._cursors.topic_ids():
            if self._catalogue.state.topic_by_id(topic_id) is None:
                self._cursors.drop_topic(topic_id)

    # Finding.

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: TopicName) -> Topic | None:
        return self._topics.get(name)

    def get(self, name: TopicName) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise errors.TopicNotFound(f"no topic {name}")
        return topic

    def find_numbered(self, tenant: str, namespace: str, number: int) -> Topic | None:
        meta = self._catalogue.state.numbered_topics(tenant, namespace).get(number)
        return None if meta is None else self._topics.get(meta.name)

    def number(self, topic: Topic) -> int:
        return self._catalogue.state.topic_id(topic.meta)

    def find_by_id(self, topic_id: int) -> Topic | None:
        meta = self._catalogue.state.topic_by_id(topic_id)
        return None if meta is None else self._topics.get(meta.name)

    def partition(self, name: TopicName, index: int) -> Partition:
        return self.get(name).partition(index)

    def list(self, tenant: str, namespace: str) -> Sequence[Topic]:
        return [self._topics[meta.name] for meta in self._catalogue.state.topics(tenant, namespace)]

    def all(self) -> Sequence[Topic]:
        return list(self._topics.values())

    def resolve_pulsar(self, text: str) -> tuple[TopicName, int | None]:
        try:
            name = parse_topic(text)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        split = split_partition(name.topic)
        if split is None:
            return name, None
        return TopicName(name.tenant, name.namespace, split[0]), split[1]

    def pulsar_partition(self, name: TopicName, index: int | None) -> Partition:
        topic = self.get(name)
        if index is None and topic.partitioned:
            raise errors.InvalidRequest(f"{name} is partitioned: name one of its partitions")
        return topic.partition(index or 0)

    def is_deduplicated(self, topic: Topic) -> bool:
        return bool(topic.settings.get("deduplication", self.defaults.deduplication))

    # Changing.

    async def create(
        self,
        name: TopicName,
        partitions: int,
        *,
        partitioned: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
        iggy_id: int | None = None,
    ) -> Topic:
        self.check_new(name, partitions, iggy_id)
        if partitioned is None:
            partitioned = partitions > 1
        elif partitions > 1 and not partitioned:
            raise errors.InvalidRequest("an unpartitioned topic has one partition")
        topic_settings = dict(settings or {})
        planned = TopicMeta(0, name, [], partitioned, self._now_us(), topic_settings, iggy_id, 0)
        topic = self.named(planned)
        partitions_made = await self._make_partitions(topic, partitions)
        with self._discarded_if_it_fails(partitions_made):
            # Another client may have created the topic meanwhile.
            self.check_new(name, partitions, iggy_id)
            ids = [partition.partition_id for partition in partitions_made]
            ticket = self._catalogue.change(
                self._catalogue.state.create_topic,
                name,
                ids,
                partitioned=partitioned,
                created_us=planned.created_us,
                settings=planned.settings,
                iggy_id=iggy_id,
            )
            topic.note_ticket(ticket)
        meta = self._catalogue.state.topic(name)
        assert meta is not None
        topic.add_partitions(partitions_made)
        # The catalogue's own record, which follows every change.
        topic.describe(meta, topic.ticket)
        self.show(topic)
        return topic

    async def add_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        check_count(self.get(name), seen)
        topic = self._growing(name, total)
        count = len(topic.partitions)
        new_partitions = await self._make_partitions(topic, total - count)
        with self._discarded_if_it_fails(new_partitions):
            if (self._growing(name, total), len(topic.partitions)) != (topic, count):
                raise errors.Conflict(f"{name} was changed meanwhile")
            self._enter(topic, new_partitions)
        self.extend(topic, new_partitions)
        return topic.ticket

    async def keep_partitions(self, name: TopicName, total: int, *, seen: int | None = None) -> int:
        topic = self.get(name)
        check_count(topic, seen)
        if total >= len(topic.partitions):
            return 0
        if topic.layout_users:
            raise errors.TopicInUse(f"{name} is used as an unpartitioned topic")
        self._set_partitions(topic, topic.meta.partition_ids[:total], topic.partitioned)
        self.shrink(topic, total)
        return topic.ticket

    async def alter_settings(self, name: TopicName, changes: Mapping[str, Setting | None]) -> int:
        async with self.altering:
            topic = self.get(name)
            settings = changed_settings(topic.meta.settings, changes)
            before = topic.settings
            with as_broker_errors(self._report):
                self._factory.check({**topic.inherited, **settings})
            try:
                with as_broker_errors(self._report):
                    await self._alter_partitions(topic, {**topic.inherited, **settings})
                alter = self._catalogue.state.alter_settings
                ticket = self._catalogue.free(alter, topic.meta.topic_id, settings)
                topic.describe(topic.meta, ticket)
                self.tell(topic, TopicEvent.ALTERED)
            except BaseException:  # Includes cancellation: a client may disconnect meanwhile.
                if not topic.deleted:
                    self._factory.alter(topic, before)
                raise
            return topic.ticket

    async def alter_namespace(
        self, tenant: str, namespace: str, changes: Mapping[str, Setting | None]
    ) -> int:
        async with self.altering:
            meta = self._catalogue.state.namespace(tenant, namespace)
            if meta is None:
                raise errors.NamespaceNotFound(f"no namespace {tenant}/{namespace}")
            settings = changed_settings(meta.settings, changes)
            with as_broker_errors(self._report):
                self._factory.check(settings)
            alter = self._catalogue.state.alter_namespace
            ticket = self._catalogue.free(alter, tenant, namespace, settings)
            inherited = self.inherited(tenant, namespace)
            with trio.CancelScope(shield=True):  # The client may disconnect meanwhile.
                for topic in self.list(tenant, namespace):
                    topic.inherit(inherited)
                    await self._follow_namespace(topic)
                    self.tell(topic, TopicEvent.ALTERED)
            return ticket

    async def _follow_namespace(self, topic: Topic) -> None:
        """Apply the settings of the namespace. The change is published: a topic that cannot follow
        now (only a full disk prevents that) follows with its next change or start.
        """
        try:
            with as_broker_errors(self._report):
                await self._alter_partitions(topic, topic.settings)
        except errors.TopicNotFound:
            pass  # The topic was deleted meanwhile.
        except errors.StorageFull as error:
            log.warning("settings_not_applied", topic=topic.name.full, reason=str(error))

    def named(self, meta: TopicMeta) -> Topic:
        """Return a topic without partitions, with the settings of its namespace."""
        placement = self._catalogue.placement
        topic = Topic(meta) if placement.is_alone else PlacedTopic(meta, placement)
        topic.inherit(self._inherited(meta.name))
        return topic

    def _inherited(self, name: TopicName) -> Mapping[str, Setting]:
        return self.inherited(name.tenant, name.namespace)

    def inherited(self, tenant: str, namespace: str) -> Mapping[str, Setting]:
        return {**self.defaults.settings, **(self.namespace_settings(tenant, namespace) or {})}

    def namespace_settings(self, tenant: str, namespace: str) -> Mapping[str, Setting] | None:
        """Return the settings of a namespace; None if the namespace does not exist."""
        meta = self._catalogue.state.namespace(tenant, namespace)
        return None if meta is None else meta.settings

    async def _alter_partitions(self, topic: Topic, settings: Mapping[str, Setting]) -> None:
        for partition in topic.partitions:  # Includes partitions added meanwhile.
            if not partition.removed:
                await self._factory.alter_one(partition, settings)
            await trio.lowlevel.checkpoint()
        if topic.deleted:
            raise errors.TopicNotFound(f"{topic.name} was deleted")
        self._factory.alter(topic, settings)

    async def terminate(self, name: TopicName) -> int:
        topic = self.get(name)
        ticket = await self.alter_settings(name, {TERMINATED: True})
        self.end(topic)  # Nothing may raise from here on: the change is made.
        return ticket

    async def delete(self, name: TopicName, *, holds_name: bool = False) -> int:
        topic = self.get(name)
        ticket = self._catalogue.free(self._catalogue.state.delete_topic, topic.meta.topic_id)
        if holds_name:
            self.held_names.hold([name])
        self.forget(topic, ticket)
        await trio.lowlevel.checkpoint()  # A request may delete ten thousand topics.
        return topic.ticket

    # Effects of a change of the catalogue, made here or at another broker.

    def show(self, topic: Topic) -> None:
        """Publish a new topic in memory."""
        self.moves.reopen_changed(topic)
        self._topics[topic.name] = topic
        self._partition_count += len(topic.partitions)
        self.tell(topic, TopicEvent.CREATED)

    def extend(self, topic: Topic, new_partitions: Sequence[Partition]) -> None:
        """Publish further partitions of a topic."""
        topic.add_partitions(new_partitions)
        self._partition_count += len(new_partitions)
        self.tell(topic, TopicEvent.GROWN)
        self.moves.reopen_changed(topic)

    def shrink(self, topic: Topic, left: int) -> None:
        """Keep only the first `left` partitions of a topic."""
        gone = topic.partitions[left:]
        del topic.partitions[left:]
        self._partition_count -= len(gone)
        self.leaving.add_partitions(topic, gone)
        for partition in gone:
            partition.remove()
        self.tell(topic, TopicEvent.SHRUNK)

    def end(self, topic: Topic) -> None:
        """Refuse further records of a topic."""
        for partition in topic.partitions:
            partition.terminate()
        self.tell(topic, TopicEvent.TERMINATED)

    def forget(self, topic: Topic, ticket: int) -> None:
        """Remove a topic with a deletion that is durable with `ticket`."""
        topic.note_ticket(ticket)
        del self._topics[topic.name]
        topic.mark_deleted()
        self._partition_count -= len(topic.partitions)
        self.leaving.add(topic)
        for partition in topic.partitions:
            partition.remove()
        self.tell(topic, TopicEvent.DELETED)

    def inherit(self, tenant: str, namespace: str) -> None:
        """Apply the settings of a namespace to its topics. Raises storage errors."""
        is_there = self.namespace_settings(tenant, namespace) is not None
        inherited = self.inherited(tenant, namespace)
        for topic in self.list(tenant, namespace) if is_there else ():
            topic.inherit(inherited)
            self._factory.alter(topic, topic.settings)
            self.tell(topic, TopicEvent.ALTERED)

    def move_away(self, topic: Topic) -> None:
        """Close the clients of a topic that another broker now owns."""
        for partition in topic.partitions:
            partition.move_away()
        self.tell(topic, TopicEvent.MOVED)

    def replace(self, topic: Topic, meta: TopicMeta) -> Topic:
        """Replace a renamed topic by a new object, with new partitions over the same logs; the old
        topic behaves as deleted. Listeners receive both events within this call.
        """
        renamed_topic = self.named(meta)
        renamed_topic.note_ticket(topic.ticket)
        renamed_topic.partitions.extend(partition.renamed(meta) for partition in topic.partitions)
        del self._topics[topic.name]
        topic.mark_deleted()
        for partition in topic.partitions:
            partition.remove()
        self._topics[meta.name] = renamed_topic
        self.tell(topic, TopicEvent.RENAMED)
        self.tell(renamed_topic, TopicEvent.CREATED)
        return renamed_topic

    def check_new(self, name: TopicName, partitions: int, iggy_id: int | None = None) -> None:
        check_new_name(name)
        if not 0 <= partitions <= TOPIC_PARTITIONS_MAX:
            raise errors.InvalidRequest(f"a topic has at most {TOPIC_PARTITIONS_MAX} partitions")
        if self._catalogue.state.namespace(name.tenant, name.namespace) is None:
            raise errors.NamespaceNotFound(f"no namespace {name.tenant}/{name.namespace}")
        if iggy_id is not None and self.find_numbered(name.tenant, name.namespace, iggy_id):
            raise errors.TopicExists(f"a topic of that namespace has the number {iggy_id}")
        if name in self._topics:
            raise errors.TopicExists(f"topic {name} already exists")
        if len(self._topics) >= self._limits.topics:
            raise errors.LimitExceeded(f"limit of {self._limits.topics} topics reached")
        metas = self._catalogue.state.topics(name.tenant, name.namespace)
        check_topics(metas, self._inherited(name), partitions)
        self._check_partitions(partitions)

    def _check_partitions(self, more: int) -> None:
        if self._partition_count + more > self._limits.partitions:
            raise errors.LimitExceeded(
                f"all topics together have at most {self._limits.partitions} partitions"
            )

    def _check_cursors(self, topic: Topic, more: int) -> None:
        """Check that each subscription can have a cursor on each new partition."""
        wanted = self._cursors.count(topic.meta.topic_id) * more
        if self._cursors.totals.cursors + wanted > self._limits.cursors:
            raise errors.LimitExceeded(
                f"all subscriptions together have at most {self._limits.cursors} cursors"
            )

    def check_growth(self, name: TopicName, total: int) -> None:
        self._growing(name, total)

    def _growing(self, name: TopicName, total: int) -> Topic:
        """Return the topic, if it can grow to `total` partitions.

        Raises TopicNotFound, TopicTerminated, InvalidRequest, LimitExceeded, TopicInUse.
        """
        topic = self.get(name)
        count = len(topic.partitions)
        if topic.is_terminated:
            raise errors.TopicTerminated(f"{name} was terminated")
        if not count < total <= TOPIC_PARTITIONS_MAX:
            raise errors.InvalidRequest(
                f"{name} has {count} partitions and can have up to {TOPIC_PARTITIONS_MAX}"
            )
        metas = self._catalogue.state.topics(name.tenant, name.namespace)
        check_topics(metas, topic.inherited, total - count)
        self._check_partitions(total - count)
        self._check_cursors(topic, total - count)
        if topic.layout_users and (topic.partitioned or total > 1) != topic.partitioned:
            raise errors.TopicInUse(f"{name} is used as an unpartitioned topic")
        return topic

    def _enter(self, topic: Topic, new_partitions: Sequence[Partition]) -> None:
        """Register further partitions of a topic in cursors and catalogue."""
        topic_id, count = topic.meta.topic_id, len(topic.partitions)
        total = count + len(new_partitions)
        ids = [*topic.meta.partition_ids, *(partition.partition_id for partition in new_partitions)]
        with as_broker_errors(self._report):
            # Cursors first: no reader may see a partition without cursors.
            self._cursors.resize(topic_id, total)
        try:
            self._set_partitions(topic, ids, topic.partitioned or total > 1)
        except errors.StorageFull:
            with as_broker_errors(self._report):
                self._cursors.resize(topic_id, count, lazy=True)
            raise

    def _set_partitions(self, topic: Topic, ids: Sequence[int], partitioned: bool) -> None:
        change, topic_id = self._catalogue.state.set_partitions, topic.meta.topic_id
        ticket = self._catalogue.change(change, topic_id, [*ids], partitioned=partitioned)
        topic.note_ticket(ticket)

    async def _make_partitions(self, topic: Topic, count: int) -> Sequence[Partition]:
        """Create `count` further partitions, not yet published, with the settings in force.

        The partitions are created again if another client changes the settings meanwhile. Raises
        Conflict if that happens each time.
        """
        for _ in range(CREATE_ATTEMPTS):
            settings = topic.settings
            numbers = [self._catalogue.state.next_partition_id() for _ in range(count)]
            with as_broker_errors(self._report):
                new_partitions = await self._factory.create(topic, len(topic.partitions), numbers)
            if not topic.partitions:  # A topic that nobody sees yet follows its namespace here.
                topic.inherit(self._inherited(topic.name))
            if topic.settings == settings:
                return new_partitions
            for partition in new_partitions:
                self._factory.discard(partition)
        raise errors.Conflict(
            f"settings of {topic.name} changed during {CREATE_ATTEMPTS} attempts to create"
            " partitions, expected no change"
        )

    @contextmanager
    def _discarded_if_it_fails(self, new_partitions: Sequence[Partition]) -> Iterator[None]:
        """Discard new partitions if the wrapped registration fails."""
        try:
            yield
        except errors.BrokerError as error:
            # After StorageFailed a record may name the partitions.
            if not isinstance(error, errors.StorageFailed):
                for partition in new_partitions:
                    self._factory.discard(partition)
            raise

    def tell(self, topic: Topic, event: TopicEvent) -> None:
        """Notify every listener of a change."""
        for listener in tuple(self.listeners):
            listener.topic_changed(topic, event)
