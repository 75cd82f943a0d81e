"""Who reads under the name of a subscription now, in whichever protocol: tools of each show the
same. Each kind of member is told by whoever serves it. Knows no protocol.

Members are those that this broker serves: over several brokers, a Kafka group is known where it is
coordinated, and consumers where their topic is owned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class Member:
    """One reader; `name` is what its own protocol's tools call it."""

    protocol: str
    name: str
    address: str  # "" where there is no connection.
    partitions: Sequence[int]  # Of the topic, those that it is given now.
    is_delivered_to: bool = False  # By a dispatcher of this broker.


Source = Callable[["Topic", bytes], Iterable[Member]]


class Members:
    """The members of all subscriptions of one broker."""

    def __init__(self) -> None:
        """Nobody tells of any yet."""
        self._sources: list[tuple[Source, str]] = []

    def add_source(self, source: Source, protocol: str = "") -> None:
        """Ask there, too: by topic and the subscription's name. It must not wait or raise. It
        tells of members of that protocol, or of several.
        """
        self._sources.append((source, protocol))

    def of(self, topic: Topic, name: bytes) -> list[Member]:
        """Everybody who reads that topic under that name."""
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
