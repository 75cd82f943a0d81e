"""The shared state of a Kafka connection's handlers. Knows no bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.cluster.peers import Asker
from braidlog.broker.errors import (
    BrokerError,
    InvalidName,
    NotAuthorized,
    NotOwner,
    TopicNotFound,
    Unanswered,
)
from braidlog.protocols.kafka.errors import Code, GroupNotAuthorized, UnknownTopicId, wire_code
from braidlog.protocols.kafka.limits import KAFKA_LIMITS, KafkaLimits
from braidlog.protocols.kafka.messages import Reply
from braidlog.protocols.kafka.names import PROTOCOL, NameSpace, visible
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.kafka.topic_ids import find_topic
from braidlog.storage.formats.kafka.prepare import SetLimits

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.cluster.placement import Owner
    from braidlog.broker.server.connection import Connection
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.group_coordinator import GroupCoordinator
    from braidlog.protocols.kafka.login import KafkaLogin
    from braidlog.protocols.kafka.presence import Presence
    from braidlog.protocols.kafka.roster import Client
    from braidlog.storage.formats.api import WriteAtOnce
    from braidlog.storage.metadata.names import TopicName

# Partitions for which a connection remembers the progress of a fetch without records for Kafka.
WALKED_MAX = 1000


@dataclass(slots=True)
class BrokerAddress:
    """A broker's address for clients."""

    node_id: int
    host: bytes
    port: int


@dataclass(slots=True)
class KafkaAnswer:
    """A handler's result: the answer leaves once `ticket` is durable (0: at once)."""

    reply: Reply
    ticket: int = 0
    # True if a thread encodes the answer, because of many topics and partitions.
    is_large: bool = False
    ends: str = ""  # The reason to end the connection after this answer.


@dataclass(slots=True)
class KafkaContext:
    """A connection, as seen by handlers."""

    broker: Broker
    connection: Connection
    options: KafkaOptions
    names: NameSpace
    address: BrokerAddress  # this broker's advertised address
    groups: GroupCoordinator
    presence: Presence  # of the group members that use this connection
    login: KafkaLogin
    limits: KafkaLimits = KAFKA_LIMITS
    action: Action = Action.DESCRIBE  # of the current request
    version: int = 0  # of the current request
    client_id: bytes | None = None  # of the current request
    once: WriteAtOnce | None = None  # stores small sets of the connection
    written_ticket: int = 0  # once durable, so are all appends of the connection
    pause_s: float = 0.0  # wait for the publish rates of topics, before the next read
    fetch_turn: int = 0  # index of the partition that a fetch reads first
    # partition id -> (requested offset, offset where the next fetch continues)
    walked: dict[int, tuple[int, int]] = field(default_factory=dict)

    def set_limits(self) -> SetLimits:
        """Return the limits of the sets of a request."""
        options = self.options
        return SetLimits(
            options.message_bytes_max, options.batch_bytes_max, options.inflated_bytes_max
        )

    @property
    def client(self) -> Client:
        """The client of the current request, as admin tools show clients."""
        return self.client_id or b"", b"/" + self.connection.peer.rpartition(":")[0].encode()

    def note_walked(self, partition: Partition, start: int, reached: int) -> None:
        """Let the next fetch of the same offset continue at `reached`."""
        walked = self.walked
        walked.pop(partition.partition_id, None)
        if len(walked) >= WALKED_MAX:
            del walked[next(iter(walked))]  # The oldest entry.
        walked[partition.partition_id] = (start, reached)

    def count_published(self, topic: Topic, partition: Partition, messages: int, size: int) -> None:
        """Count stored messages for the publish rate of a topic with such a rate."""
        pause_s = self.broker.client_policies.publish_pause_s(topic, partition, messages, size)
        self.pause_s = max(self.pause_s, pause_s)

    def take_pause(self) -> float:
        """Return the seconds to wait for publish rates, and forget them."""
        pause_s, self.pause_s = self.pause_s, 0.0
        return pause_s

    def topic(self, name: bytes | None) -> Topic:
        """Return the topic that a request names, after checking the request's action.

        Raises NotAuthorized, TopicNotFound.
        """
        try:
            topic_name = self.names.topic_name(name)
        except InvalidName as error:
            raise TopicNotFound(str(error)) from None
        topic = self.broker.topics.find(topic_name)
        if topic is None:
            self.connection.check(self.action, Resource.of_topic(topic_name))
            raise TopicNotFound(f"no topic {topic_name}")
        self.connection.check(self.action, topic.resource)
        return topic

    def topic_name(self, name: bytes | None) -> TopicName:
        """Return the name of a topic, after checking the request's action. Raises InvalidName,
        NotAuthorized.
        """
        topic_name = self.names.topic_name(name)
        self.connection.check(self.action, Resource.of_topic(topic_name))
        return topic_name

    def partition(self, name: bytes | None, index: int) -> Partition:
        """Return a partition of that topic. Raises as `topic`; PartitionNotFound."""
        return self.topic(name).partition(index)

    def topic_with_id(self, topic_id: bytes) -> Topic:
        """Return the topic that a request names by its id. Raises NotAuthorized, UnknownTopicId."""
        topic = find_topic(self.broker.topics, topic_id)
        is_ours = topic is not None and (topic.name.tenant, topic.name.namespace) == self.namespace
        if topic is None or not is_ours or not visible(topic.name):
            raise UnknownTopicId(f"no topic has the id {topic_id.hex()}")
        self.connection.check(self.action, topic.resource)
        return topic

    def partition_with_id(self, topic_id: bytes | None, index: int) -> Partition:
        """Return a partition of that topic. Raises as `topic_with_id`; PartitionNotFound."""
        assert topic_id is not None
        return self.topic_with_id(topic_id).partition(index)

    def address_of(self, owner: Owner | None) -> BrokerAddress | None:
        """Return an owner's address for clients of this listener (None: this broker). Returns None
        if there is no owner now, or the address is unknown.
        """
        if owner is None:
            return self.address
        address = owner.addresses.get(self.connection.listener_name)
        if address is None:
            return None
        host, port = address
        return BrokerAddress(owner.node_id, host.encode(), port)

    def coordinates(self, group: bytes) -> bool:
        """Return True if this broker coordinates a group."""
        return self.broker.placement.owner_of_name(group) is None

    def may_see(self, topic: Topic, group: bytes | None = None) -> bool:
        """Return True if a list shows the client this topic, or the topic's group of that name."""
        principal = self.connection.principal
        resource = topic.resource if group is None else Resource.of_group(group, topic.name)
        return self.broker.access.allows(principal, Action.DESCRIBE, resource)

    def check_group(self, group: bytes, topic: TopicName | None = None) -> None:
        """Check the request's action on a group of a topic; without one, on a group of that name on
        any topic of the namespace. Raises GroupNotAuthorized.
        """
        if self.broker.access.allows_all:  # Called for each partition of a commit.
            return
        if topic is not None:
            resource = Resource.of_group(group, topic)
        else:
            names = self.names
            resource = Resource.of_group_within(group, names.tenant, names.namespace)
        try:
            self.connection.check(self.action, resource)
        except NotAuthorized as error:
            raise GroupNotAuthorized(str(error)) from error

    def refused(self, error: BrokerError) -> Code:
        """Count an error, and return the answer's code."""
        code = wire_code(error)
        self.count_error(code)
        return code

    def coordinator_refused(self, error: BrokerError) -> Code:
        """As `refused`, but if the owner is unknown now clients shall retry: they do not expect a
        wrong-leader code from a coordinator. Only for requests that do no harm if a client repeats
        them, as the outcome may be unknown.
        """
        if isinstance(error, NotOwner | Unanswered):
            self.count_error(Code.COORDINATOR_LOAD_IN_PROGRESS)
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        return self.refused(error)

    def count_error(self, code: Code) -> None:
        """Count an answer with this code."""
        self.broker.metrics.number("braidlog_errors", PROTOCOL, str(int(code))).inc()

    @property
    def has_own_writes(self) -> bool:
        """True if earlier writes of this connection may not be readable yet."""
        return (
            self.connection.outbox.pending_answers > 0
            or self.written_ticket > self.broker.durability.durable_ticket
        )

    @property
    def asker(self) -> Asker:
        """The client, for calls to other brokers."""
        return Asker(self.connection.principal, self.connection.at)

    @property
    def namespace(self) -> tuple[str, str]:
        """The listener's: a group of the same name in another namespace is a different group."""
        return self.names.tenant, self.names.namespace

    async def own_writes(self) -> None:
        """Wait until all earlier writes of this connection are readable, with acks 0 or not.

        Answers leave in order: a read sent after a produce must see its records. Done sooner, the
        read would only wait behind the produce's answer, with all the bytes it read in memory.
        """
        if self.has_own_writes:
            await self.broker.durability.all_durable()
