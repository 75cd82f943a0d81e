"""The state shared by the handlers of an Iggy connection, and by all Iggy connections of a broker.

Knows no bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import structlog
import trio

from braidlog.broker.errors import NotAuthorized
from braidlog.broker.positions.members import LiveGroup, SubscriptionMember
from braidlog.broker.topics.topic import TopicEvent
from braidlog.protocols.iggy.all_dialects import D2
from braidlog.protocols.iggy.dialects import Dialect, ErrorStyle
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.limits import IGGY_LIMITS, IggyLimits
from braidlog.protocols.iggy.membership import Groups
from braidlog.protocols.iggy.options import IggyOptions
from braidlog.protocols.iggy.sessions import LogicalSession, LogicalSessions, SessionNumbers
from braidlog.protocols.iggy.waiting_polls import PollCount
from braidlog.storage.formats.api import Buffer

if TYPE_CHECKING:
    from braidlog.broker.access.access import AccessRules
    from braidlog.broker.access.authentication import Identity
    from braidlog.broker.access.rights import Action, Principal, Resource
    from braidlog.broker.broker import Broker
    from braidlog.broker.runtime.output_budget import OutputBudget, OutputReservation
    from braidlog.broker.server.written_topics import WrittenTopics
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

PROTOCOL = "iggy"
# Transports of clients, in the numbers of the protocol.
TRANSPORT_TCP, TRANSPORT_HTTP, TRANSPORT_WEBSOCKET = 1, 3, 4
ROOT = 0  # The number of the first user.


@dataclass(slots=True)
class IggyAnswer:
    """A handler's result: records, then raw bytes. The answer is sent once `ticket` is durable (0:
    at once); the client's next command waits for `pause_s`.
    """

    records: list[Any] = field(default_factory=list)
    tail: Sequence[Buffer] = ()
    ticket: int = 0
    pause_s: float = 0.0


@dataclass(slots=True)
class ConnectedClient:
    """A connection, as other clients see it."""

    client_id: int
    address: str
    transport: int = TRANSPORT_TCP
    user_id: int | None = None  # Before login.
    proof: Identity | None = None  # Proof of the login; None for root of the settings.


@dataclass(slots=True, eq=False)
class ListenerState:
    """State that all connections share, until the broker stops.

    `turns` is the next partition of a balanced SEND, by the catalogue's topic id. `being_made` has
    the stream and the number of each topic that is not in the catalogue yet.
    """

    # Use `groups`, which first ends the memberships of sessions that have been lost for too long.
    all_groups: Groups
    clients: dict[int, ConnectedClient] = field(default_factory=dict)
    session_numbers: SessionNumbers = field(default_factory=SessionNumbers)
    sessions: LogicalSessions = field(init=False)
    waiting_polls: PollCount = field(default_factory=PollCount)
    turns: dict[int, int] = field(default_factory=dict)
    being_made: set[tuple[str, int]] = field(default_factory=set)
    # Held while a large SEND is prepared.
    large_sends: trio.Lock = field(default_factory=trio.Lock)
    # Partitions whose other SENDs wait for a large SEND.
    gated: set[int] = field(default_factory=set)
    limits: IggyLimits = IGGY_LIMITS

    def __post_init__(self) -> None:
        def left(session: LogicalSession) -> None:
            self.all_groups.leave_all(session.member_id)

        def memberships(session: LogicalSession) -> int:
            return self.all_groups.joined_count(session.member_id)

        self.sessions = LogicalSessions(trio.current_time, left, memberships)

    @property
    def groups(self) -> Groups:
        """The members of all groups now."""
        self.sessions.end_due()
        return self.all_groups

    def topic_changed(self, topic: Topic, event: TopicEvent) -> None:
        """End the memberships in groups of a deleted topic. The groups of a topic that has moved
        are assigned anew if the topic comes back.
        """
        if event is TopicEvent.DELETED:
            self.all_groups.drop_topic(topic.meta.topic_id)
            self.turns.pop(topic.meta.topic_id, None)
        elif event is TopicEvent.MOVED:
            self.all_groups.deal_again(topic.meta.topic_id)

    def forget(self, client: ConnectedClient) -> None:
        """Remove a connection from the list of clients."""
        if self.clients.get(client.client_id) is client:
            del self.clients[client.client_id]

    def members(self, topic: Topic, name: bytes) -> Iterator[SubscriptionMember]:
        """Yield the members of a group, as tools of all protocols see them."""
        try:
            group = name.decode()
        except UnicodeDecodeError:  # No Iggy group has such a name.
            return
        count = len(topic.partitions)
        for member in self.groups.members(topic.meta.topic_id, group, count):
            client = self.clients.get(member.member_id)
            address = "" if client is None else client.address
            yield SubscriptionMember(
                PROTOCOL, str(member.member_id), address, member.polled_partitions
            )

    def joined(self, topics: Iterable[Topic], name: bytes | None) -> Iterator[LiveGroup]:
        """Yield the named groups of topics, with or without members, or only those of a name.
        Topics of other brokers have no groups here.
        """
        for topic in topics:
            for meta in () if topic.deleted else topic.meta.groups:
                if name is not None and meta.name.encode() != name:
                    continue
                members = self.groups.members(topic.meta.topic_id, meta.name, len(topic.partitions))
                yield LiveGroup(
                    PROTOCOL,
                    "group",
                    "",
                    "Stable" if members else "Empty",
                    topic.name.tenant,
                    topic.name.namespace,
                    meta.name.encode(),
                    len(members),
                    {topic.name.topic: len(members)},
                )


class Outgoing(Protocol):
    """The part of an outbox that handlers use."""

    budget: OutputBudget

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that wait for the socket."""

    @property
    def pending_answers(self) -> int:
        """Number of answers that wait for the disk, or behind such an answer."""

    async def drained(self) -> None:
        """Wait until the client has read most of the unsent bytes."""


class AskingClient(Protocol):
    """The part of a connection that handlers use; see `broker/server/connection.py`."""

    listener_name: str
    principal: Principal
    at: str
    host: str
    loopback: bool
    is_encrypted: bool
    local: tuple[str, int]
    advertised: tuple[str, int]
    written_topics: WrittenTopics

    @property
    def log(self) -> structlog.typing.FilteringBoundLogger:
        """The log, with the client's address."""

    @property
    def outbox(self) -> Outgoing:
        """The unsent bytes of the client."""

    def check(self, action: Action, resource: Resource) -> None:
        """Raise NotAuthorized if the client may not do that."""

    def act_for(self, principal: Principal, proof: Identity | None = None) -> None:
        """Set the client's principal from now on. Raises LimitExceeded."""

    def note_library(self, name: str) -> None:
        """Keep the name of the client's library, for people."""

    def end(self, reason: str) -> None:
        """End the connection; earlier answers are sent."""


def _still_allowed() -> None:
    """Check nothing: the command does not wait."""


@dataclass(slots=True)
class IggyContext:
    """The state and services that a connection's handlers use."""

    broker: Broker
    connection: AskingClient
    options: IggyOptions
    shared: ListenerState
    client: ConnectedClient
    dialect: Dialect = D2
    error_style: ErrorStyle = field(default_factory=ErrorStyle)
    # By partition id: a range of offsets without records for Iggy's readers.
    walked: dict[int, tuple[int, int]] = field(default_factory=dict)
    # W: the partition that the current command is for, by its lasting number; None in V and before.
    incarnation: int | None = None
    # W: the generation of the partition's owner, for a group; 0: any, and in V and before.
    generation: int = 0
    session: int = 0  # Number of the client's session; 0 before a login.
    # W: the client's own id in the current frame, and the session that outlives the connection.
    client_key: bytes = b""
    logical: LogicalSession | None = None
    # Longest wait of a poll for messages.
    wait_max_s: float = math.inf
    # W: held while a waiting poll reads.
    reads: trio.Lock = field(default_factory=trio.Lock)
    # W: raises NotAuthorized if the client may no longer do what the current command waits for.
    recheck: Callable[[], None] = _still_allowed
    # Memory for the answer to the current poll.
    room: OutputReservation = field(init=False)

    @property
    def rules(self) -> AccessRules | None:
        """The rules for the client: the broker's; if no login is required, still a user's own
        permissions. None: everything is allowed.
        """
        rules = self.broker.access.rules
        if rules is None and self.client.user_id not in (None, ROOT):
            return self.broker.rules
        return rules

    def allows(self, action: Action, resource: Resource) -> bool:
        """Return True if the client may do that action."""
        rules = self.rules
        return rules is None or rules.allows(self.connection.principal, action, resource)

    def check(self, action: Action, resource: Resource) -> None:
        """Raise NotAuthorized if the client may not do that action."""
        rules, connection = self.rules, self.connection
        if rules is None or rules is self.broker.access.rules:
            connection.check(action, resource)
            return
        principal = connection.principal
        allowed = rules.allows(principal, action, resource)
        self.broker.audit.decided(principal, connection.at, action, resource, allowed=allowed)
        if not allowed:
            raise NotAuthorized(f"{principal.name} may not {action.value} {resource}")

    def check_incarnation(self, partition: Partition) -> None:
        """Check that the client means this partition, not a deleted partition of the same number.
        Raises Refusal.
        """
        if self.incarnation is not None and self.incarnation != partition.partition_id:
            raise Refusal(ErrorCode.HISTORY_UNAVAILABLE, "the partition was created anew")

    @property
    def has_own_writes(self) -> bool:
        """True if earlier writes of this connection may not be readable yet."""
        return self.connection.outbox.pending_answers > 0

    async def own_writes(self) -> None:
        """Wait until all writes of this connection that await an answer can be read.

        Answers are sent in order, so a poll after a SEND would wait for the SEND's answer anyway.
        """
        if self.has_own_writes:
            await self.broker.durability.all_durable()
