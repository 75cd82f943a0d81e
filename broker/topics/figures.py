"""Forgets the figures of topics that are deleted. Knows no protocol."""

from __future__ import annotations

from broker.metrics import Metrics
from broker.topics.topic import Topic, TopicEvent


class DeletedFigures:
    """Hears of topics that go."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """See `TopicListener`."""
        if event in (TopicEvent.DELETED, TopicEvent.RENAMED):
            self._metrics.forget_topic(topic.figures_name)
