"""The load of this broker, by namespace: clients, backlog, bytes, and rates of messages.

A rate is the average since the second-to-last snapshot of the counts, at least WINDOW_S ago. Knows
no route and no name of Apache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import NotOwner
from braidlog.broker.runtime.turns import in_turns

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

WINDOW_S: Final = 10.0  # Snapshots of the counts are at least this far apart.


@dataclass(slots=True)
class LoadCounts:
    """Messages and bytes, in and out: counts, or averages a second."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0

    def add(self, other: LoadCounts) -> None:
        """Add other counts."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def since(self, before: LoadCounts, seconds: float) -> LoadCounts:
        """Return the averages since earlier counts; 0 for counts of a partition that moved away."""
        return LoadCounts(
            *(
                max(getattr(self, each.name) - getattr(before, each.name), 0.0) / seconds
                for each in fields(self)
            )
        )


@dataclass(slots=True)
class NamespaceLoad:
    """The load by the topics of a namespace that this broker serves; `rates` are averages."""

    subscriptions: int = 0
    producers: int = 0
    consumers: int = 0
    backlog: int = 0
    size_bytes: int = 0
    counts: LoadCounts = field(default_factory=LoadCounts)
    rates: LoadCounts = field(default_factory=LoadCounts)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The counts at a time: of each namespace, and of the process in seconds of processor time."""

    at_s: float
    cpu_s: float
    counts: Mapping[str, LoadCounts]


class LoadMeter:
    """Measures the load of a broker."""

    def __init__(self, broker: Broker, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._clock_s = clock_s
        self._older = self._newer = _Snapshot(clock_s(), time.process_time(), {})
        self.cores_used = 0.0  # The average number of busy cores, at the last look.

    async def look(self) -> dict[str, NamespaceLoad]:
        """Return the load by namespace, of those with topics here."""
        loads: dict[str, NamespaceLoad] = {}
        async for topic in in_turns(self._broker.topics.all()):
            try:
                topic.check_here()
            except NotOwner:
                continue  # Another broker has the load.
            place = f"{topic.name.tenant}/{topic.name.namespace}"
            await self._count(topic, loads.setdefault(place, NamespaceLoad()))
        now = _Snapshot(
            self._clock_s(),
            time.process_time(),
            {place: load.counts for place, load in loads.items()},
        )
        since = self._older
        if now.at_s - self._newer.at_s >= WINDOW_S:
            self._older, self._newer = self._newer, now
        seconds = now.at_s - since.at_s
        if seconds > 0:
            self.cores_used = (now.cpu_s - since.cpu_s) / seconds
            for place, load in loads.items():
                # A namespace that came meanwhile has had no traffic here before.
                load.rates = load.counts.since(since.counts.get(place, LoadCounts()), seconds)
        return loads

    async def _count(self, topic: Topic, load: NamespaceLoad) -> None:
        broker = self._broker
        names = broker.subscriptions.names(topic)
        async for partition in in_turns(tuple(topic.partitions)):
            traffic = partition.traffic
            load.subscriptions += len(names)
            load.producers += len(broker.shown_producers.of(partition.partition_id))
            load.consumers += sum(len(each.consumers) for each in broker.dispatchers.on(partition))
            load.size_bytes += partition.size_bytes
            load.counts.add(
                LoadCounts(
                    traffic.records_in, traffic.bytes_in, traffic.records_out, traffic.bytes_out
                )
            )
            for name in names:
                subscription = broker.subscriptions.find(topic, name)
                if subscription is not None:  # Otherwise deleted meanwhile.
                    load.backlog += subscription.backlog(partition.index)
