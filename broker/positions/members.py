"""The clients that read from a subscription now, over all protocols: the tools of each show the
same ones. Each source lists the members that it serves. Knows no protocol.

Members are those that this broker serves: over several brokers, a Kafka group is known where it is
coordinated, and consumers where their topic is owned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class Member:
    """One reader; `name` is what its own protocol's tools call it."""

    protocol: str
    name: str
    address: str  # "" where there is no connection.
    partitions: Sequence[int]  # Of the topic, those that are assigned to it now.
    is_delivered_to: bool = False  # By a dispatcher of this broker.


Source = Callable[["Topic", bytes], Iterable[Member]]


class Members:
    """The members of all subscriptions of one broker."""

    def __init__(self) -> None:
        """No sources yet."""
        self._sources: list[tuple[Source, str]] = []

    def add_source(self, source: Source, protocol: str = "") -> None:
        """Add a source: it gets a topic and a subscription's name, and must not wait or raise. It
        lists members of that protocol; "" if of several.
        """
        self._sources.append((source, protocol))

    def of(self, topic: Topic, name: bytes) -> list[Member]:
        """All members of the subscription of that name."""
        return [one for source, _ in self._sources for one in source(topic, name)]

    def others(self, topic: Topic, name: bytes, protocol: str) -> list[Member]:
        """Those of other protocols."""
        return [
            one
            for source, its_own in self._sources
            if its_own != protocol
            for one in source(topic, name)
            if one.protocol != protocol
        ]
