"""Failover delivery: of any number of consumers, the active consumer receives all entries, in
order.

The choice follows from priorities and names alone, as in
AbstractDispatcherSingleActiveConsumer.java of apache/pulsar, so that the partitions of a topic are
spread over its consumers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import mmh3
import trio

from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.broker.delivery.exclusive import OrderedDispatcher
from braidlog.broker.delivery.limits import CONSUMERS_MAX

# Time for a displaced consumer to acknowledge its entries before the new consumer receives them;
# Apache's activeConsumerFailoverDelayTimeMillis.
DELAY_S: Final = 1.0
RING_POINTS: Final = 100  # Per consumer, as in Apache.
HASH_MASK: Final = 0x7FFF_FFFF


class FailoverDispatcher(OrderedDispatcher):
    """Delivers to the active consumer, and to the next when that consumer leaves."""

    kind = SubscriptionKind.FAILOVER
    _change_at = math.inf  # Time at which the chosen consumer becomes active, in trio's seconds.
    _has_fewer = False  # An inactive consumer left since the choice, so the choice may change now.

    def _consumer_joined(self, consumer: Consumer) -> None:
        chosen = self._chosen()
        if chosen is not consumer:
            consumer.active_changed(is_active=False)
        if self.active is not None:
            self._displace_all_but(chosen)
        elif self._change_at == math.inf:
            self._change_at = trio.current_time()

    def _consumer_left(self, consumer: Consumer) -> None:
        if not self.consumers:
            self.active, self._change_at = None, math.inf
            self.rewind()
        elif consumer is self.active:
            self.active = None
            self._change_at = trio.current_time()
        else:
            self._has_fewer = True  # Choose once when many consumers leave together.

    def _displace_all_but(self, chosen: Consumer) -> None:
        """Stop sending to the active consumer if another is chosen."""
        if self.active is not chosen:
            self.active = None
            self._change_at = trio.current_time() + DELAY_S

    def _due_at(self) -> float:
        return min(self._change_at, super()._due_at())

    def _get_ready(self) -> bool:
        if self._has_fewer:
            self._has_fewer = False
            if self.active is not None:
                self._displace_all_but(self._chosen())
        if self._change_at <= trio.current_time():
            self._change()
        return super()._get_ready()

    def _change(self) -> None:
        """Activate the chosen consumer, tell all consumers, and start delivery again."""
        self._change_at = math.inf
        self.active = self._chosen()
        self.rewind()
        for consumer in self.consumers:
            consumer.active_changed(is_active=consumer is self.active)

    def _chosen(self) -> Consumer:
        topic = self.partition.topic
        index = self.partition.index if topic.partitioned else None
        chosen = choose_active(self.consumers, f"persistent://{topic.name.full}", index)
        assert chosen is not None
        return chosen


def choose_active(consumers: Sequence[Consumer], topic: str, index: int | None) -> Consumer | None:
    """Return the consumer to activate; None if there are none. `topic` is the topic's full name,
    `index` the number of the partition if the topic has partitions.
    """
    if not consumers:
        return None
    best = min(consumer.priority for consumer in consumers)
    able = [consumer for consumer in consumers if consumer.priority == best]
    able.sort(key=_name)
    if index is not None:
        return able[index % len(able)]
    place = _hash(topic)
    return min(able, key=lambda consumer: _distance(place, consumer.name))


def _name(consumer: Consumer) -> str:
    return consumer.name


@lru_cache(maxsize=CONSUMERS_MAX)
def _distance(place: int, name: str) -> int:
    """Return the distance on the hash ring from a place up to the next point of a name."""
    points = (_hash(f"{name}{number}") for number in range(RING_POINTS))
    return min((point - place) & HASH_MASK for point in points)


def _hash(text: str) -> int:
    """Return Apache's Murmur3_32Hash, without the sign bit."""
    number: int = mmh3.hash(text.encode(), 0, signed=False)
    return number & HASH_MASK
