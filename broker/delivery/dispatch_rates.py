"""Rates of delivery by the topic's settings: of a partition, and of each subscription.

A rate has a small burst, and delivery beyond the rate makes a debt: the average holds over some
seconds. A relative rate follows the messages that were published lately. Knows no consumer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from braidlog.broker.runtime.bucket import Bucket

if TYPE_CHECKING:
    from braidlog.broker.topics.client_limits import Rate
    from braidlog.broker.traffic import PartitionTraffic

# So many seconds' worth may be delivered at once. Less would take messages from clients that ask
# late for the next messages, as on a busy machine; more would exceed the rate over seconds.
BURST_S: Final = 0.5
# Shortest wait for the rate: each wait costs a turn of the pump.
WAIT_S_MIN: Final = 0.02
# Longest wait for a relative rate: meanwhile the rate of publishing may rise.
RELATIVE_WAIT_S_MAX: Final = 1.0
# The rate of publishing is the average over about so long; in Apache over the last minute.
PUBLISH_WINDOW_S: Final = 5.0
PUBLISH_SAMPLE_S: Final = 1.0


class PublishMeter:
    """The rate at which messages and bytes were lately published to a partition."""

    def __init__(self, traffic: PartitionTraffic, clock_s: Callable[[], float]) -> None:
        self._traffic = traffic
        self._clock_s = clock_s
        # Time, messages and bytes, at least PUBLISH_SAMPLE_S apart.
        self._samples = deque([(clock_s(), traffic.records_in, traffic.bytes_in)])

    def look(self) -> tuple[float, float]:
        """Return messages and bytes a second."""
        samples, now = self._samples, self._clock_s()
        messages, size = self._traffic.records_in, self._traffic.bytes_in
        if now - samples[-1][0] >= PUBLISH_SAMPLE_S:
            samples.append((now, messages, size))
        # After a pause the last sample from before the pause goes too, once a newer is old enough.
        while (
            len(samples) > 1
            and now - samples[0][0] > PUBLISH_WINDOW_S
            and now - samples[1][0] >= PUBLISH_SAMPLE_S
        ):
            samples.popleft()
        since, messages_then, size_then = samples[0]
        seconds = max(now - since, PUBLISH_SAMPLE_S)  # A shorter time would be no average.
        return (messages - messages_then) / seconds, (size - size_then) / seconds


class RateLimit:
    """Messages and bytes of a rate that may pass now."""

    def __init__(
        self, rate: Rate, clock_s: Callable[[], float], traffic: PartitionTraffic | None = None
    ) -> None:
        """A relative rate is relative to `traffic`."""
        self.rate = rate
        self._messages = _bucket(rate.messages, rate.period_s, clock_s)
        self._bytes = _bucket(rate.size, rate.period_s, clock_s)
        self._published: PublishMeter | None = None
        if rate.is_relative and traffic is not None:
            self._published = PublishMeter(traffic, clock_s)

    def room(self) -> tuple[float, float]:
        """Return the messages and the bytes that may pass now; infinite without a limit."""
        if self._published is not None:
            self._follow(self._published)
        return (
            math.inf if self._messages is None else self._messages.left(),
            math.inf if self._bytes is None else self._bytes.left(),
        )

    def spend(self, messages: int, size: int) -> float:
        """Count what passes, into debt if need be; return the seconds until the debt is paid."""
        wait_s = 0.0 if self._messages is None else self._messages.spend(messages)
        return wait_s if self._bytes is None else max(wait_s, self._bytes.spend(size))

    def wait_s(self) -> float:
        """Return the seconds until more may pass; 0: now."""
        if min(self.room()) > 0:
            return 0.0
        wait_s = max(self.spend(0, 0), WAIT_S_MIN)
        return wait_s if self._published is None else min(wait_s, RELATIVE_WAIT_S_MAX)

    def _follow(self, published: PublishMeter) -> None:
        """Add the rate of publishing to the rate."""
        messages, size = published.look()
        for bucket, amount, more in (
            (self._messages, self.rate.messages, messages),
            (self._bytes, self.rate.size, size),
        ):
            if bucket is not None and amount is not None:
                bucket.change_rate(amount / self.rate.period_s + more, BURST_S)


class PartitionRates:
    """The rate limits of partitions, shared by their subscriptions or producers."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._limits: dict[int, RateLimit] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def of(
        self, partition_id: int, rate: Rate | None, traffic: PartitionTraffic | None = None
    ) -> RateLimit | None:
        """Return the limit of a partition with that rate and traffic; None without a rate."""
        if rate is None:
            self.forget(partition_id)
            return None
        limit = self._limits.get(partition_id)
        if limit is None or limit.rate != rate:
            limit = self._limits[partition_id] = RateLimit(rate, self._clock_s, traffic)
        return limit

    def forget(self, partition_id: int) -> None:
        """Forget the limit of a partition without subscriptions or producers."""
        self._limits.pop(partition_id, None)


def _bucket(amount: int | None, period_s: int, clock_s: Callable[[], float]) -> Bucket | None:
    return None if amount is None else Bucket(amount / period_s, BURST_S, clock_s)
