"""The clients that read from a subscription now, over all protocols.

The tools of each protocol show the same members. Each source lists the members that the source
serves. Knows no protocol.

Lists only members that this broker serves: with several brokers, the coordinator of a Kafka group
knows its members, and the owner of a topic knows its consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class SubscriptionMember:
    """A reader; `name` is its name in its own protocol's tools."""

    protocol: str
    name: str
    address: str  # "" without a connection.
    partitions: Sequence[int]  # Partitions of the topic that are assigned to the member now.
    is_delivered_to: bool = False  # By a dispatcher of this broker.


Source = Callable[["Topic", bytes], Iterable[SubscriptionMember]]


class Members:
    """The members of all subscriptions of a broker."""

    def __init__(self) -> None:
        """Begin with no sources."""
        self._sources: list[tuple[Source, str]] = []

    def add_source(self, source: Source, protocol: str = "") -> None:
        """Add a source: a function of a topic and a subscription's name that must not wait or
        raise.

        The source lists members of that protocol; "" if of several protocols.
        """
        self._sources.append((source, protocol))

    def remove_source(self, source: Source) -> None:
        """Remove a source; nothing if the source was not added."""
        self._sources = [entry for entry in self._sources if entry[0] != source]

    def of(self, topic: Topic, name: bytes) -> list[SubscriptionMember]:
        """Return all members of the subscription of that name."""
        return [member for source, _ in self._sources for member in source(topic, name)]

    def others(self, topic: Topic, name: bytes, protocol: str) -> list[SubscriptionMember]:
        """Return members of other protocols."""
        return [
            member
            for source, its_own in self._sources
            if its_own != protocol
            for member in source(topic, name)
            if member.protocol != protocol
        ]
