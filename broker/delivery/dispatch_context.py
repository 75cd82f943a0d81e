"""The context of a broker's dispatchers: a budget, a clock, and the registry that has them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from braidlog.broker.delivery.dispatch_rates import PartitionRates
from braidlog.broker.delivery.limits import DeliveryLimits
from braidlog.broker.delivery.read_ahead import ReadAheadBudget

if TYPE_CHECKING:
    from braidlog.broker.delivery.cursor import DispatchCursor
    from braidlog.broker.topics.partition import Partition


def wall_clock_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class DispatchContext:
    """Objects that the dispatchers of a broker share."""

    budget: ReadAheadBudget = field(default_factory=ReadAheadBudget)
    now_us: Callable[[], int] = wall_clock_us
    release: Callable[..., None] = lambda _: None
    """Forgets the dispatcher if it has no consumers and waits for none."""
    keep: Callable[..., None] = lambda _: None
    """Keeps the dispatcher's position in memory for consumers that a seek closed."""
    bury: Callable[..., None] = lambda _: None
    """Starts to copy the records that a queue gives up into their dead letter topic."""
    limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    rates: PartitionRates = field(default_factory=lambda: PartitionRates(trio.current_time))
    """Rates of delivery of each partition."""


@dataclass(slots=True)
class DispatchSource:
    """The subscription of a partition that a dispatcher delivers; `name` is the subscription's."""

    partition: Partition
    name: bytes
    cursor: DispatchCursor
    context: DispatchContext = field(default_factory=DispatchContext)
