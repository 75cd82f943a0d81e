"""Rates of delivery by the topic's settings: of a partition, and of each subscription.

A rate has a small burst, and delivery beyond the rate makes a debt: the average holds over some
seconds. Knows no consumer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from braidlog.broker.runtime.bucket import Bucket

if TYPE_CHECKING:
    from braidlog.broker.topics.client_limits import Rate

# So many seconds' worth may be delivered at once. Less would take messages from clients that ask
# late for the next messages, as on a busy machine; more would exceed the rate over seconds.
BURST_S: Final = 0.5
# Shortest wait for the rate: each wait costs a turn of the pump.
WAIT_S_MIN: Final = 0.02


class RateLimit:
    """Messages and bytes of a rate that may pass now."""

    def __init__(self, rate: Rate, clock_s: Callable[[], float]) -> None:
        self.rate = rate
        self._messages = _bucket(rate.messages, rate.period_s, clock_s)
        self._bytes = _bucket(rate.size, rate.period_s, clock_s)

    def room(self) -> tuple[float, float]:
        """Return the messages and the bytes that may pass now; infinite without a limit."""
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
        return max(self.spend(0, 0), WAIT_S_MIN)


class PartitionRates:
    """The rate limits of partitions, shared by their subscriptions or producers."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._limits: dict[int, RateLimit] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def of(self, partition_id: int, rate: Rate | None) -> RateLimit | None:
        """Return the limit of a partition with that rate; None without a rate."""
        if rate is None:
            self.forget(partition_id)
            return None
        limit = self._limits.get(partition_id)
        if limit is None or limit.rate != rate:
            limit = self._limits[partition_id] = RateLimit(rate, self._clock_s)
        return limit

    def forget(self, partition_id: int) -> None:
        """Forget the limit of a partition without subscriptions or producers."""
        self._limits.pop(partition_id, None)


def _bucket(amount: int | None, period_s: int, clock_s: Callable[[], float]) -> Bucket | None:
    return None if amount is None else Bucket(amount / period_s, BURST_S, clock_s)
