"""State that all Pulsar connections of a broker share: producers and consumers by place.

Knows no command and no bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.topics.topic import TopicEvent
from braidlog.protocols.pulsar.limits import PULSAR_LIMITS, PulsarLimits
from braidlog.protocols.pulsar.topic_lists import TopicLists

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic


class SharedState:
    """State of the Pulsar listeners of a broker."""

    def __init__(self, broker: Broker, limits: PulsarLimits = PULSAR_LIMITS) -> None:
        self.broker = broker
        self.limits = limits
        self.dispatchers = broker.dispatchers
        self.producers = broker.open_producers
        self.topic_lists = TopicLists(broker.topics, limits.changes_kept)
        self._started = f"{broker.now_us():x}"
        self._named = 0
        broker.topics.listeners.add(self)

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """Follow the lists of topics that clients watch."""
        if event is not TopicEvent.ALTERED:
            self.topic_lists.topic_changed(topic)

    def producer_name(self) -> str:
        """A name for a producer that has none, unique over restarts and among all brokers."""
        self._named += 1
        return f"braidlog-{self.broker.placement.node_id}-{self._started}-{self._named}"
