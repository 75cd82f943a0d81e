"""The clients that read from a subscription now, over all protocols.

The tools of each protocol show the same members. Each source lists the members that the source
serves. Knows no protocol.

Lists only members that this broker serves: with several brokers, the coordinator of a Kafka group
knows its members, and the owner of a topic knows its consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

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


class LiveGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group that clients have joined, or that a protocol keeps for clients to join. The group may
    have no position yet, so that no topic has a subscription of its name.

    `kind` and `state` are those that the protocol's own tools show; `member_protocol` is the
    members' protocol among themselves, such as Kafka's `consumer` or `connect`. `topics` has the
    number of members that read each topic of the namespace, also of topics that do not exist.
    `clients` has the names and addresses of the members, if the group was asked for by name.
    """

    protocol: str
    kind: str
    member_protocol: str
    state: str
    tenant: str
    namespace: str
    name: bytes
    members: int
    topics: Mapping[str, int]
    clients: Sequence[tuple[str, str]] = ()


Source = Callable[["Topic", bytes], Iterable[SubscriptionMember]]
# Returns the groups of a source, or only those of a name.
JoinedSource = Callable[[bytes | None], Iterable[LiveGroup]]


class Members:
    """The members of all subscriptions of a broker."""

    def __init__(self) -> None:
        """Begin with no sources."""
        self._sources: list[tuple[Source, str, JoinedSource | None]] = []

    def add_source(
        self, source: Source, protocol: str = "", joined: JoinedSource | None = None
    ) -> None:
        """Add a source: a function of a topic and a subscription's name that must not wait or
        raise; with `joined`, which lists groups that may have no subscription yet.

        The source lists members of that protocol; "" if of several protocols.
        """
        self._sources.append((source, protocol, joined))

    def remove_source(self, source: Source) -> None:
        """Remove a source; nothing if the source was not added."""
        self._sources = [entry for entry in self._sources if entry[0] != source]

    def of(self, topic: Topic, name: bytes) -> list[SubscriptionMember]:
        """Return all members of the subscription of that name."""
        return merged(source(topic, name) for source, _, _ in self._sources)

    def joined(self, name: bytes | None = None, *, but: str = "") -> Iterator[LiveGroup]:
        """Yield the groups that clients have joined at this broker, or only those of a name; not
        those of the protocol `but`. A group takes up to some milliseconds; the groups may change
        between two items.
        """
        for _, protocol, joined in tuple(self._sources):
            if joined is not None and protocol != (but or None):
                yield from joined(name)

    def others(self, topic: Topic, name: bytes, protocol: str) -> list[SubscriptionMember]:
        """Return members of other protocols."""
        return [
            member
            for source, its_own, _ in self._sources
            if its_own != protocol
            for member in source(topic, name)
            if member.protocol != protocol
        ]


def merged(lists: Iterable[Iterable[SubscriptionMember]]) -> list[SubscriptionMember]:
    """Return the members of all lists. A member of several lists appears once, with the partitions
    of each list: a member of a share group is known to the coordinator, and to the owners of the
    topics.
    """
    members: list[SubscriptionMember] = []
    for listed in lists:
        known = {(member.protocol, member.name): place for place, member in enumerate(members)}
        for member in listed:
            place = known.get((member.protocol, member.name))
            if place is None:
                members.append(member)
                continue
            before = members[place]
            members[place] = replace(
                before,
                address=before.address or member.address,
                partitions=sorted({*before.partitions, *member.partitions}),
                is_delivered_to=before.is_delivered_to or member.is_delivered_to,
            )
    return members
