"""The interface of the peers: work for the other brokers of the cluster.

Implementations: `Alone` (`alone.py`, a broker without a cluster) and `ClusterPeers`
(`cluster_peers.py`, over connections between brokers).

Guarantees:

* A call carries the client's principal (`Asker`); the other broker checks the rights again.
* A call that changes something returns once the change is published: the change is durable then.
* `NotOwner`: nothing was done, and the caller may try again. `Unanswered`: the change may have been
  made, so the caller must not ask again. A call that only reads raises `NotOwner` in both cases.
  Other broker errors are the errors of the other broker.
* Calls to several brokers run at the same time; an error of a broker concerns its part alone.
* A forwarded connection (`forward`) carries bytes to a listener of the other broker, over the
  internal port, as if the client had connected there. Its end says nothing about work under way.
* A caller awaits an owner by `tries`: news of owners wake the caller, as does a stop of the broker.
* A caller that is cancelled leaves nothing behind but a call that was sent and may be carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from braidlog.broker.access.rights import Principal
    from braidlog.broker.cluster.placement import Tries
    from braidlog.broker.errors import BrokerError
    from braidlog.storage.metadata.catalogue_records import SchemaMeta
    from braidlog.storage.metadata.names import TopicName

# Topic's full name, partition, offset, metadata, time in microseconds, leader epoch.
Commit = tuple[str, int, int, bytes | None, int, int]
# Topic's full name, and partition.
Place = tuple[str, int]
# Messages, bytes and segments of a topic.
StoredSizes = tuple[int, int, int]
# Offset, metadata and leader epoch as committed; None: never set.
Committed = tuple[int, bytes | None, int] | None

# A position and the number of unacknowledged records; None: the group has no position.
Standing = tuple[int, int] | None


@dataclass(slots=True, frozen=True)
class Asker:
    """The client for which a broker asks; the other broker checks its rights once more."""

    principal: Principal
    at: str  # The client's address, for the audit log.


class Peers(Protocol):
    """The other brokers. `node` is a broker's number, 0 if nobody owns the topic now."""

    @property
    def is_alone(self) -> bool:
        """True if this broker owns every topic, always."""

    def tries(self, seconds: float) -> Tries:
        """Return the tries of a request that needs an owner; taken before the first try."""

    # Calls.

    async def commit(
        self, asker: Asker, group: bytes, commits: Sequence[tuple[int, Commit]]
    ) -> Sequence[BrokerError | None]:
        """Commit positions of topics at the nodes that own them; return the error of each commit,
        if any, in order.
        """

    async def committed(
        self, asker: Asker, group: bytes, wanted: Sequence[tuple[int, Place]], deadline: float
    ) -> Mapping[Place, Committed | BrokerError]:
        """Return a group's positions on topics of these nodes, or the error of each position, such
        as TopicNotFound; NotOwner if the topic has moved, or the node does not answer before the
        deadline.
        """

    async def positions(
        self, asker: Asker, group: bytes, namespace: tuple[str, str]
    ) -> Sequence[Place]:
        """Return every place at other brokers where a group has a position in a namespace. Raises
        NotOwner if a broker does not answer.
        """

    async def groups(
        self, namespace: tuple[str, str], counts: Mapping[int, int]
    ) -> Mapping[str, Sequence[bytes]]:
        """Return the subscriptions of a namespace's topics at these nodes, by full name of the
        topic. `counts`: the number of topics that the caller expects at each node. No right is
        checked. Raises NotOwner if a node does not answer, or owns another number of topics.
        """

    async def group_positions(
        self, group: bytes, namespace: tuple[str, str], counts: Mapping[int, int]
    ) -> Mapping[str, Mapping[int, int]]:
        """Return a group's positions on the topics where the group has a subscription, by full name
        of the topic and by partition. Otherwise as `groups`.
        """

    async def topic_positions(
        self, node: int, group: bytes, topic: TopicName
    ) -> Mapping[int, int] | None:
        """Return a group's positions on a topic, by partition; None without a subscription. No
        right is checked. Raises NotOwner, TopicNotFound.
        """

    async def commit_forward(self, node: int, asker: Asker, group: bytes, commit: Commit) -> bool:
        """Commit a position unless the group's position is beyond; return False then. Raises
        NotOwner, Unanswered, NotAuthorized, and the errors of a commit.
        """

    async def end_position(
        self, node: int, asker: Asker, group: bytes, place: Place, protocol: str
    ) -> None:
        """End a group's cursor. Raises NotOwner, Unanswered, NotAuthorized, SubscriptionNotFound;
        SubscriptionBusy while a member of another protocol reads the topic.
        """

    async def seek(self, node: int, asker: Asker, group: bytes, place: Place, offset: int) -> None:
        """Set a group's cursor and forget its acknowledgements; make the group if needed. Raises
        NotOwner, Unanswered, NotAuthorized, and the errors of a commit.
        """

    async def standing(self, node: int, asker: Asker, group: bytes, place: Place) -> Standing:
        """Return a group's position and its number of unacknowledged records; None without a
        position. Raises NotOwner, NotAuthorized, TopicNotFound, PartitionNotFound.
        """

    async def end_group(self, asker: Asker, group: bytes, namespace: tuple[str, str]) -> bool:
        """Delete a group's subscriptions to a namespace's topics at other brokers; return whether
        the group had any. Raises NotOwner, NotAuthorized; Unanswered also if a part was deleted.
        """

    async def schema(
        self,
        node: int,
        asker: Asker,
        topic: TopicName,
        *,
        version: int | None,
        non_persistent: bool,
    ) -> tuple[int, SchemaMeta] | None:
        """Return a schema of a topic with its version, the latest without `version`; None if
        missing. `non_persistent`: of the non-persistent topic of that name. Raises NotOwner,
        NotAuthorized.
        """

    async def purge(self, node: int, asker: Asker, topic: str) -> None:
        """Drop all records of a topic, by its full name. Raises NotOwner, Unanswered,
        NotAuthorized.
        """

    async def stored_sizes(self) -> Mapping[str, StoredSizes]:
        """Return the sizes of other brokers' topics, by full name, without brokers that do not
        answer soon. For sizes in lists: no right is checked.
        """

    async def non_persistent(self, namespace: tuple[str, str]) -> Mapping[str, TopicName]:
        """Return a namespace's non-persistent topics that other brokers have in use, by full name,
        each partition; none of a broker that does not answer soon. No right is checked.
        """

    async def follow(self) -> None:
        """Follow the catalogue as far as its owner has come: other brokers may have told clients of
        changes that are unknown here. Raises NotOwner if the owner does not answer.
        """

    # Forwarding bytes.

    async def forward(self, node: int, listener: str) -> trio.SocketStream:
        """Return a connection to the listener of that name of another broker. Raises NotOwner."""


def named_error(error: BrokerError) -> list[str]:
    """Return a broker error as brokers send it."""
    return [type(error).__name__, str(error)]
