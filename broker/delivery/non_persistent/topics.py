"""All non-persistent topics: made at the first use, removed a while after the last client left.

The number of partitions is a setting of the namespace, which outlives the broker; nothing else of
such a topic does. Other protocols do not see non-persistent topics. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker import errors
from braidlog.broker.delivery.non_persistent.channel import NonPersistentChannel
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.topics.topic import TopicEvent
from braidlog.storage.metadata.catalogue_records import TopicMeta
from braidlog.storage.metadata.names import InvalidTopicName, TopicName, check_topic_name

if TYPE_CHECKING:
    from braidlog.broker.closing import Closing
    from braidlog.broker.cluster.placement import Placement
    from braidlog.broker.topics.registry import NamespaceRegistry, TopicRegistry
    from braidlog.storage.metadata.catalogue_records import SchemaMeta

# Prefix of a namespace's setting: the rest names a non-persistent topic, the value is the number of
# its partitions.
PARTITIONS_OF: Final = "non_persistent_partitions:"
# Partitions of one topic, and partitioned topics of a namespace: their counts are one record.
NON_PERSISTENT_PARTITIONS_MAX: Final = 1000
NON_PERSISTENT_PARTITIONED_MAX: Final = 1000
FORGOTTEN_AFTER_S: Final = 60.0  # Apache's brokerDeleteInactiveTopicsFrequencySeconds.

# A non-persistent topic, and the partition's number if the topic has partitions.
Place = tuple[TopicName, int | None]


class NonPersistentTopics:
    """Every non-persistent topic of one broker."""

    def __init__(
        self,
        topics: TopicRegistry,
        namespaces: NamespaceRegistry,
        *,
        placement: Placement,
        now_us: Callable[[], int],
        closing: Closing,
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """Listeners of `topics` also learn of deleted non-persistent topics; `closing` disconnects
        their clients.
        """
        self._topics = topics
        self._namespaces = namespaces
        self._placement = placement
        self._now_us = now_us
        self._closing = closing
        self._topics_max = limits.non_persistent_topics
        self._channels: dict[Place, NonPersistentChannel] = {}
        self._in_use: set[str] = set()  # Full names of those in `_channels`.
        self._places: dict[TopicName, set[Place]] = {}  # Those of `_channels`, by name.
        self._schemas: dict[TopicName, list[SchemaMeta]] = {}
        self._idle_since: dict[Place, float] = {}  # Idle longest first.
        self._created_count = 0

    async def run(self) -> None:
        """Forget unused topics, until cancelled."""
        while True:
            await trio.sleep(FORGOTTEN_AFTER_S / 4)
            since = trio.current_time() - FORGOTTEN_AFTER_S
            for place in [p for p, began in self._idle_since.items() if began <= since]:
                if self._channels[place].is_idle:
                    self._forget(place)
                else:
                    del self._idle_since[place]

    # Finding and making.

    def partitions(self, name: TopicName) -> int:
        """Return the number of partitions of a topic; 0 without partitions or topic."""
        meta = self._namespaces.find(name.tenant, name.namespace)
        count = meta.settings.get(PARTITIONS_OF + name.topic, 0) if meta is not None else 0
        assert isinstance(count, int)
        return count

    def find(self, name: TopicName, index: int | None) -> NonPersistentChannel | None:
        """A non-persistent topic, or one partition of it, if it is in use."""
        return self._channels.get(self._place(name, index))

    def is_in_use(self, full: str) -> bool:
        """Return True if a topic or partition with that full name is in use."""
        return full in self._in_use

    def exists(self, name: TopicName) -> bool:
        """Return True if it is in use, or was made with partitions."""
        return self.partitions(name) > 0 or (name, None) in self._channels

    def schemas(self, name: TopicName) -> Sequence[SchemaMeta]:
        """The schemas that its users brought; all partitions share them."""
        return self._schemas.get(name, ())

    def get(self, name: TopicName, index: int | None, *, make: bool) -> NonPersistentChannel:
        """The non-persistent topic, or the partition, that a client means; with `make`, one without
        partitions is made if it is missing and the configuration allows it.

        Raises InvalidName, InvalidRequest for one with partitions that is named without a number,
        NamespaceNotFound, PartitionNotFound, TopicNotFound, NotOwner, LimitExceeded.
        """
        self._placement.check(name)
        self._check_name(name)
        place = self._place(name, index)
        channel = self._channels.get(place)
        if channel is not None:
            return channel
        count = self.partitions(name)
        if place[1] is not None and place[1] >= count:
            raise errors.PartitionNotFound(f"non-persistent://{name.full} has no partition {index}")
        if count and place[1] is None:
            raise errors.InvalidRequest(f"{name} is partitioned: name one of its partitions")
        if not count and not (make and self._topics.defaults.auto_create):
            raise errors.TopicNotFound(f"Topic non-persistent://{name.full} not found")
        return self._make(place)

    def create(self, name: TopicName) -> None:
        """Make one without partitions; without users it is forgotten after a while, as in Apache.

        Raises InvalidName, NamespaceNotFound, TopicExists, LimitExceeded, NotOwner.
        """
        self._placement.check(name)
        self._check_name(name)
        if self.exists(name):
            raise errors.TopicExists("This topic already exists")
        self._note_idle(self._make((name, None)))

    def list(self, tenant: str, namespace: str) -> Sequence[NonPersistentChannel]:
        """Return the topics in use, each partition separately, ordered by full name."""
        names = [
            topic
            for (name, _), topic in self._channels.items()
            if (name.tenant, name.namespace) == (tenant, namespace)
        ]
        return sorted(names, key=lambda topic: topic.full)

    def list_partitioned(self, tenant: str, namespace: str) -> Sequence[TopicName]:
        """Return the topics with partitions, in use or not."""
        meta = self._namespaces.get(tenant, namespace)
        named = [key for key in meta.settings if key.startswith(PARTITIONS_OF)]
        return [TopicName(tenant, namespace, key[len(PARTITIONS_OF) :]) for key in sorted(named)]

    def has_topics(self, tenant: str, namespace: str) -> bool:
        """Return True if a namespace has any that are in use or have partitions."""
        return bool(self.list(tenant, namespace) or self.list_partitioned(tenant, namespace))

    def _place(self, name: TopicName, index: int | None) -> Place:
        """`x-partition-0` is `x` where that has no partitions."""
        if index == 0 and not self.partitions(name):
            return name, None
        return name, index

    def _check_name(self, name: TopicName) -> None:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        self._namespaces.get(name.tenant, name.namespace)

    def _make(self, place: Place) -> NonPersistentChannel:
        if len(self._channels) >= self._topics_max:
            raise errors.LimitExceeded(f"{self._topics_max} non-persistent topics are in use")
        name, index = place
        self._created_count += 1
        schemas, now_us = self._schemas.setdefault(name, []), self._now_us()
        meta = TopicMeta(0, name, [], index is not None, now_us, {}, None, 0, schemas=schemas)
        topic = NonPersistentChannel(
            meta,
            index,
            self._placement,
            inherited=partial(self._topics.inherited, name.tenant, name.namespace),
            number=-self._created_count,
            idle=self._note_idle,
        )
        self._channels[place] = topic
        self._in_use.add(topic.full)
        self._places.setdefault(name, set()).add(place)
        self._note_idle(topic)
        return topic

    # Changing.

    async def partition(self, name: TopicName, count: int) -> int:
        """Make one with `count` partitions, or grow it to that; returns the ticket.

        Raises InvalidName, InvalidRequest, NamespaceNotFound, TopicInUse, LimitExceeded, Conflict,
        StorageFull, StorageFailed.
        """
        self._check_name(name)
        if not self.partitions(name) < count <= NON_PERSISTENT_PARTITIONS_MAX:
            raise errors.InvalidRequest(
                "a non-persistent topic has at most"
                f" {NON_PERSISTENT_PARTITIONS_MAX} partitions, and never fewer than before"
            )
        if (name, None) in self._channels:
            raise errors.TopicInUse(f"{name} is used as an unpartitioned topic")
        known = self.list_partitioned(name.tenant, name.namespace)
        if name not in known and len(known) >= NON_PERSISTENT_PARTITIONED_MAX:
            raise errors.LimitExceeded(
                f"a namespace has at most {NON_PERSISTENT_PARTITIONED_MAX}"
                " partitioned non-persistent topics"
            )
        return await self._set_partitions(name, count)

    async def delete(self, name: TopicName) -> int:
        """Delete one with all that it has, its producers and consumers too; returns the ticket.

        Raises TopicNotFound, Conflict, StorageFull, StorageFailed.
        """
        if not self.exists(name):
            raise errors.TopicNotFound(f"Topic non-persistent://{name.full} not found")
        ticket = await self._set_partitions(name, None) if self.partitions(name) else 0
        await self._forget_all(name)
        return ticket

    async def delete_all(self, tenant: str, namespace: str) -> None:
        """Delete those of a namespace. Raises Conflict, StorageFull, StorageFailed."""
        named = self.list_partitioned(tenant, namespace)
        if named:
            gone = {PARTITIONS_OF + name.topic: None for name in named}
            await self._topics.alter_namespace(tenant, namespace, gone)
        for name in list(self._places):
            if (name.tenant, name.namespace) == (tenant, namespace):
                await self._forget_all(name)

    async def _forget_all(self, name: TopicName) -> None:
        """Forget a topic, or its partitions; their users are told soon."""
        for place in list(self._places.get(name, ())):
            self._forget(place)
            await trio.lowlevel.checkpoint()

    def end_all(self, tenant: str, namespace: str) -> None:
        """End those of a renamed namespace: their users have to leave. Their partition counts are
        settings of the namespace and have moved with it.
        """
        for place in [
            place
            for place in self._channels
            if (place[0].tenant, place[0].namespace) == (tenant, namespace)
        ]:
            self._forget(place)

    async def _set_partitions(self, name: TopicName, count: int | None) -> int:
        changes = {PARTITIONS_OF + name.topic: count}
        return await self._topics.alter_namespace(name.tenant, name.namespace, changes)

    # Going.

    def _note_idle(self, topic: NonPersistentChannel) -> None:
        place = (topic.name, topic.index if topic.topic.partitioned else None)
        if self._channels.get(place) is topic:
            self._idle_since.pop(place, None)
            self._idle_since[place] = trio.current_time()

    def _forget(self, place: Place) -> None:
        """Forget one that is idle, or that was deleted with its users."""
        self._idle_since.pop(place, None)
        topic = self._channels.get(place)
        if topic is None:
            return
        del self._channels[place]
        self._in_use.discard(topic.full)
        topic.delete()
        for subscription in list(topic.subscriptions.values()):
            self._closing.add(subscription.close_consumers())
        for listener in tuple(self._topics.listeners):
            listener.topic_changed(topic.topic, TopicEvent.DELETED)
        places = self._places[topic.name]
        places.discard(place)
        if not places:
            del self._places[topic.name]
            self._schemas.pop(topic.name, None)
