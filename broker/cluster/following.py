"""Applies published changes of the catalogue to the topics in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from braidlog.broker.topics.topic import TopicEvent
from braidlog.storage.errors import StorageFull

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.partition_factory import Partitions
    from braidlog.broker.topics.topic import Topic
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.metadata.catalogue import Catalogue
    from braidlog.storage.metadata.catalogue_records import TopicMeta
    from braidlog.storage.metadata.names import TopicName
    from braidlog.storage.metadata.positions import Positions
    from braidlog.storage.shared.catalogue import Touched

log = structlog.get_logger()


class Following:
    """Follows the catalogue with a local registry."""

    def __init__(
        self,
        state: Catalogue,
        topics: Topics,
        factory: Partitions,
        cursors: Positions,
    ) -> None:
        self._state = state
        self._topics = topics
        self._factory = factory
        self._cursors = cursors
        self._behind: set[TopicName] = set()  # Topics whose last change is not applied.

    def follow(self, touched: Touched) -> None:
        """Apply changed parts of the catalogue. The changes are published: a topic that cannot
        follow now, on a full disk, follows with the next call of `catch_up`. Raises StorageFailed.
        """
        self._behind.update(touched.topics)
        self.catch_up()
        for tenant, namespace in touched.namespaces:
            self._topics.inherit(tenant, namespace)

    def catch_up(self) -> None:
        """Apply the changes that are not applied yet. Raises StorageFailed."""
        names, self._behind = self._behind, set()
        for name in names:
            try:
                self._follow_topic(name, self._state.topic(name))
            except StorageFull as error:
                self._behind.add(name)
                log.error("topic_not_followed", topic=name.full, reason=str(error))
        self._topics.moves.reopen_rest()

    def _follow_topic(self, name: TopicName, meta: TopicMeta | None) -> None:
        topics = self._topics
        topic = topics.find(name)
        if topic is not None and (meta is None or meta.topic_id != topic.meta.topic_id):
            topics.forget(topic, 0)
            topic = None
        if meta is not None and topic is None:
            topic = topics.named(meta)
            topic.add_partitions(self._opened(topic, 0))
            topics.show(topic)
        elif meta is not None and topic is not None:
            self._follow_meta(topic, meta)

    def _follow_meta(self, topic: Topic, meta: TopicMeta) -> None:
        topics = self._topics
        topic.describe(meta, 0)
        count = len(meta.partition_ids)
        if count < len(topic.partitions):
            topics.shrink(topic, count)
        elif count > len(topic.partitions):
            self._cursors.resize(meta.topic_id, count)
            topics.extend(topic, self._opened(topic, len(topic.partitions)))
        self._factory.alter(topic, topic.settings)
        topics.tell(topic, TopicEvent.ALTERED)
        if topic.is_terminated and not all(
            partition.is_terminated for partition in topic.partitions
        ):
            topics.end(topic)

    def _opened(self, topic: Topic, first: int) -> Sequence[Partition]:
        """Open the partitions of a topic from `first` on."""
        numbers = topic.meta.partition_ids[first:]
        return [
            self._factory.open(topic, index, number) for index, number in enumerate(numbers, first)
        ]
