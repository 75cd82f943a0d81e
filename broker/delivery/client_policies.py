"""Rules of a topic's settings for Pulsar clients, over the binary protocol, WebSocket and HTTP; the
publish rate also for producers of Kafka and Iggy.

Numbers of clients are checked where clients are counted: in the registries of producers,
dispatchers and subscriptions. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from braidlog.broker.access.quotas import PAUSE_S_MAX
from braidlog.broker.delivery.dispatch_rates import PartitionRates
from braidlog.broker.delivery.subscribe_rates import SubscribeRates
from braidlog.broker.errors import PolicyViolated, SubscriptionNotFound
from braidlog.broker.topics.client_limits import EncryptionRequired

if TYPE_CHECKING:
    from braidlog.broker.delivery.channel import Channel
    from braidlog.broker.delivery.consumer import SubscriptionKind
    from braidlog.broker.delivery.subscribe_rates import Subscriber
    from braidlog.broker.positions.backlog import Backlogs
    from braidlog.broker.positions.subscriptions import Subscriptions
    from braidlog.broker.topics.topic import Topic


class ClientPolicies:
    """The decisions of a broker about its Pulsar clients."""

    def __init__(
        self, backlogs: Backlogs, subscriptions: Subscriptions, clock_s: Callable[[], float]
    ) -> None:
        self._backlogs = backlogs
        self._subscriptions = subscriptions
        self._publish_rates = PartitionRates(clock_s)
        self._subscribe_rates = SubscribeRates(clock_s)

    def check_producer(self, topic: Topic, channel: Channel, *, encrypts: bool) -> None:
        """Check a new producer. Raises BacklogFull, EncryptionRequired; DamagedLog, StorageFailed
        while the backlog is measured.
        """
        if channel.is_persistent:
            self._backlogs.check_producer(topic, channel.stored())
        if topic.client_limits.needs_encryption and not encrypts:
            raise EncryptionRequired(f"Encryption is required in {_address(topic)}")

    def check_consumer(
        self, topic: Topic, name: bytes, kind: SubscriptionKind, *, is_durable: bool
    ) -> None:
        """Check a new consumer of a subscription, in Apache's words. Raises PolicyViolated,
        SubscriptionNotFound.
        """
        self.check_kind(topic, kind)
        may_create = topic.client_limits.creates_subscriptions or not is_durable
        if not may_create and self._subscriptions.find(topic, name) is None:
            raise SubscriptionNotFound("Subscription does not exist")

    def check_kind(self, topic: Topic, kind: SubscriptionKind) -> None:
        """Check the kind of a subscription, in Apache's words. Raises PolicyViolated."""
        types = topic.client_limits.subscription_types
        if types is not None and kind.value not in types:
            text = f"Topic[{{{_address(topic)}}}] doesn't support {kind.value} sub type!"
            raise PolicyViolated(text)

    def count_subscribe(self, topic: Topic, subscriber: Subscriber) -> None:
        """Count that a consumer subscribes. Raises PolicyViolated above the topic's rate."""
        self._subscribe_rates.check(subscriber, topic.client_limits.subscribe)

    def publish_pause_s(self, topic: Topic, channel: Channel, messages: int, size: int) -> float:
        """Count published messages; return how long the producer's client has to wait for the
        topic's publish rate.
        """
        rate = topic.client_limits.publish
        if rate is None:
            return 0.0
        limit = self._publish_rates.of(channel.partition_id, rate)
        return 0.0 if limit is None else min(limit.spend(messages, size), PAUSE_S_MAX)


def _address(topic: Topic) -> str:
    domain = "persistent" if topic.is_persistent else "non-persistent"
    return f"{domain}://{topic.name.full}"
