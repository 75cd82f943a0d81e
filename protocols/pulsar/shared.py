"""State that all Pulsar connections of a broker share: producers and consumers by place.

Knows no command and no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import trio

from braidlog.broker.delivery.dispatch_rates import PartitionRates
from braidlog.broker.topics.topic import TopicEvent
from braidlog.protocols.pulsar.registry import Producer, ProducerRegistry
from braidlog.protocols.pulsar.subscribe_rates import SubscribeRates
from braidlog.protocols.pulsar.topic_lists import TopicLists

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

ENDING: Final = (TopicEvent.DELETED, TopicEvent.TERMINATED, TopicEvent.RENAMED, TopicEvent.MOVED)


class SharedState:
    """State of the Pulsar listeners of a broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.dispatchers = broker.dispatchers
        self.producers = ProducerRegistry(self._raise_epoch)
        self.topic_lists = TopicLists(broker.topics)
        self.publish_rates = PartitionRates(trio.current_time)
        self.subscribes = SubscribeRates(trio.current_time)
        self._started = f"{broker.now_us():x}"
        self._named = 0
        broker.topics.listeners.add(self)
        broker.publishers.add_source(self.producers.publishers)
        broker.backlogs.full.add(self.producers.close_all)

    def _raise_epoch(self, topic: Topic) -> int:
        """Store that the topic's epoch was given to a producer; nothing is stored for a
        non-persistent topic.
        """
        if not topic.is_persistent:
            topic.meta.topic_epoch += 1
            return 0
        return self.broker.producers.raise_epoch(topic)

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """Close the producers of a topic that was deleted, terminated, renamed or moved: it takes
        no more messages, or only under its new name or at another broker.
        """
        if event is not TopicEvent.ALTERED:
            self.topic_lists.topic_changed(topic)
        if event in ENDING:
            for channel in topic.channels:
                self._close(self.producers.take_all(channel))

    def _close(self, producers: Sequence[Producer]) -> None:
        if producers:
            self.broker.closing.add(_closed(producers))

    def producer_name(self) -> str:
        """A name for a producer that has none, unique over restarts and among all brokers."""
        self._named += 1
        return f"braidlog-{self.broker.placement.node_id}-{self._started}-{self._named}"


def _closed(producers: Sequence[Producer]) -> Iterator[None]:
    for producer in producers:
        producer.owner.close_producer(producer)
        yield
