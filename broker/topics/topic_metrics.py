"""Keeps metrics of existing topics only. Knows no protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.topics.topic import Topic, TopicEvent
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.delivery.non_persistent.topics import NonPersistentTopics
    from braidlog.broker.metrics import Metrics
    from braidlog.broker.topics.registry import TopicRegistry


class TopicMetrics:
    """Drops metrics of deleted topics and refuses counts for missing topics: a reader may outlive
    its topic. Implements `TopicListener`.
    """

    def __init__(
        self, metrics: Metrics, topics: TopicRegistry, non_persistent: NonPersistentTopics
    ) -> None:
        self._metrics = metrics
        self._topics = topics
        self._non_persistent = non_persistent
        topics.listeners.add(self)
        metrics.leave_out_unless(self._is_there)

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        if event in (TopicEvent.DELETED, TopicEvent.RENAMED):
            self._metrics.forget_topic(topic.metrics_name)

    def _is_there(self, name: str) -> bool:
        """Return whether a topic has this `Topic.metrics_name`."""
        parts = name.split("/")
        if len(parts) == 3:
            return self._topics.find(TopicName(*parts)) is not None
        return self._non_persistent.is_in_use(name)
