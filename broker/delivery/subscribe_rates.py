"""Limits how often a consumer may subscribe to a partition; as Apache's SubscribeRateLimiter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import PolicyViolated

if TYPE_CHECKING:
    from braidlog.broker.topics.client_limits import Rate

# Consumers remembered, some 300 bytes each; the consumer that subscribed longest ago is forgotten.
CONSUMERS_MAX: Final = 10_000

Subscriber = tuple[int, str, str, int]  # Partition, client's address, consumer's name and number.


class SubscribeRates:
    """The consumers that subscribed lately, each with the begin of its period and its count."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._counts: OrderedDict[Subscriber, tuple[float, int]] = OrderedDict()

    def check(self, subscriber: Subscriber, rate: Rate | None) -> None:
        """Count a subscribe. Raises PolicyViolated above the rate."""
        if rate is None or rate.messages is None:
            return
        now = self._clock_s()
        began, count = self._counts.pop(subscriber, (now, 0))
        if now - began >= rate.period_s:
            began, count = now, 0
        self._counts[subscriber] = (began, min(count + 1, rate.messages))
        if len(self._counts) > CONSUMERS_MAX:
            self._counts.popitem(last=False)
        if count >= rate.messages:
            # Apache's words.
            raise PolicyViolated("Subscribe limited by subscribe rate limit per consumer.")
