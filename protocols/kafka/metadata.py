"""Metadata and FindCoordinator (ConsumerMetadata in 0.8): which broker leads what. Topics are
created here, too.

0.8.2 answers error 5 until a leader is found, and clients with few retries gave up on that: here a
new topic is answered in full once it is on disk. The broker list is never empty, because sarama
gave up on an empty list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from braidlog.broker.access.rights import CLUSTER, Action, Resource
from braidlog.broker.errors import BrokerError
from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.context import BrokerAddress, KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import epoch_of
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.fields import ENTRIES_INLINE_MAX
from braidlog.protocols.kafka.kept_partitions import KEPT, describe
from braidlog.protocols.kafka.names import OFFSETS_TOPIC, visible
from braidlog.protocols.kafka.topic_ids import NO_ID, id_of
from braidlog.protocols.kafka.wire.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from braidlog.protocols.kafka.wire.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

NOWHERE = BrokerAddress(-1, b"", -1)
# Topics and partitions described before others get their turn: some hundred microseconds.
ENTRIES_PER_TURN = 200
# Topics that one request may create; each takes milliseconds of disk time. Further ones are
# answered as having no leader yet, so the client asks again.
TOPICS_MADE_MAX = 100
CLUSTER_ID = b"braidlog"
GROUP_KEY, TRANSACTION_KEY = 0, 1  # Of FindCoordinator.
BATCHES_VERSION = 4  # From this version of FindCoordinator on a request names several groups.
NULL_NAME_VERSION = 10  # From here on a null name stands for an id.
ASKS_BY_ID_VERSION = 12  # From this version of Metadata on a request can name topics by their ids.


def metadata(context: KafkaContext, request: MetadataRequest) -> Steps[KafkaAnswer]:
    """Answer who leads which partition; topics asked for by name are created if needed."""
    makes = request.allow_auto_topic_creation and context.options.auto_create
    described = _Described(context, makes, request.include_topic_authorized_operations)
    named = dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics or ())
    for name, topic_id in named:
        has_id = topic_id != NO_ID and context.version >= ASKS_BY_ID_VERSION
        if name is None and not has_id and context.version >= NULL_NAME_VERSION:
            context.count_error(Code.INVALID_REQUEST)
            yield from described.refuse(Code.INVALID_REQUEST, b"")
        elif name is None and has_id:
            yield from _describe_with_id(context, described, topic_id)
        else:
            yield from _describe_named(context, described, name)
    if request.topics is None or (not request.topics and not context.version):
        names = context.names
        for topic in context.broker.topics.list(names.tenant, names.namespace):
            if visible(topic.name) and context.may_see(topic) and not topic.deleted:
                yield from described.add(topic)
    placement = context.broker.placement
    others = [address for other in placement.others() if (address := context.address_of(other))]
    controller = context.address_of(placement.catalogue_owner()) or context.address
    reply = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port)
            for node in (context.address, *others)
        ],
        cluster_id=CLUSTER_ID,
        controller_id=controller.node_id,
        topics=described.topics,
    )
    if request.include_cluster_authorized_operations:
        reply.cluster_authorized_operations = operations(context, CLUSTER)
    return KafkaAnswer(reply, described.ticket, is_large=described.entries > ENTRIES_INLINE_MAX)


@dataclass(slots=True)
class _Described:
    """The topics of an answer, collected with turns for others."""

    context: KafkaContext
    makes: bool  # whether topics that are not there are made
    shows_operations: bool  # whether the client asks what it may do to the topics
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    ticket: int = 0  # once this is durable, all of them are
    entries: int = 0  # topics and partitions
    created: int = 0  # topics that this request has made

    def add(self, topic: Topic) -> Steps[None]:
        """Describe a topic."""
        context = self.context
        leader = context.address_of(context.broker.placement.owner(topic.name))
        code, number = Code.NONE, NOWHERE.node_id
        if leader is None:
            code = Code.LEADER_NOT_AVAILABLE
        else:
            number = leader.node_id
        wanted = (len(topic.partitions), int(code), number, epoch_of(context, topic.name))
        partitions = KEPT.get(wanted)
        if partitions is None or not partitions.is_ready(context.version):
            described = []
            for index in range(wanted[0]):
                described.append(describe(index, *wanted[1:]))
                yield from self._count()
            partitions = partitions or KEPT.keep(wanted, described)
        described_topic = MetadataResponseTopic(
            name=topic.name.topic.encode(), topic_id=id_of(topic), partitions=partitions
        )
        if self.shows_operations:
            described_topic.topic_authorized_operations = operations(context, topic.resource)
        self.topics.append(described_topic)
        self.ticket = max(self.ticket, topic.ticket)
        yield from self._count()

    def refuse(self, code: Code, name: bytes | None, topic_id: bytes = NO_ID) -> Steps[None]:
        """Add a topic that cannot be described, with its error code."""
        self.topics.append(MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id))
        yield from self._count()

    def _count(self) -> Steps[None]:
        self.entries += 1
        if self.entries % ENTRIES_PER_TURN == 0:
            yield trio.lowlevel.checkpoint()


def _describe_named(
    context: KafkaContext, described: _Described, name: bytes | None
) -> Steps[None]:
    try:
        topic = yield from _topic(context, described, name)
    except BrokerError as error:
        yield from described.refuse(context.refused(error), name)
        return
    if topic is None:
        yield from described.refuse(Code.LEADER_NOT_AVAILABLE, name)
    else:
        yield from described.add(topic)


def _describe_with_id(context: KafkaContext, described: _Described, topic_id: bytes) -> Steps[None]:
    try:
        topic = context.topic_with_id(topic_id)
    except BrokerError as error:
        yield from described.refuse(context.refused(error), None, topic_id)
    else:
        yield from described.add(topic)


def find_coordinator(context: KafkaContext, request: FindCoordinatorRequest) -> KafkaAnswer:
    """Answer which broker coordinates each group; a null name has none, as in 0.8.2."""
    if context.version < BATCHES_VERSION:
        coordinator = _coordinator(context, request.key, request.key_type)
        reply = FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )
        return KafkaAnswer(reply)
    coordinators = [
        _coordinator(context, key, request.key_type) for key in request.coordinator_keys
    ]
    return KafkaAnswer(FindCoordinatorResponse(coordinators=coordinators))


def _coordinator(context: KafkaContext, key: bytes | None, key_type: int) -> Coordinator:
    if key_type not in (GROUP_KEY, TRANSACTION_KEY):
        return _coordinator_at(key, Code.INVALID_REQUEST, NOWHERE, b"an unknown type of key")
    if key_type != GROUP_KEY:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _coordinator_at(key, code, NOWHERE, b"transactions are not served")
    if key is None:
        return _coordinator_at(key, Code.CONSUMER_COORDINATOR_NOT_AVAILABLE, NOWHERE)
    try:
        context.check_group(key)
    except BrokerError as error:
        return _coordinator_at(key, context.refused(error), NOWHERE)
    address = context.address_of(context.broker.placement.owner_of_name(key))
    if address is None:
        return _coordinator_at(key, Code.CONSUMER_COORDINATOR_NOT_AVAILABLE, NOWHERE)
    return _coordinator_at(key, Code.NONE, address)


def _coordinator_at(
    key: bytes | None, code: Code, address: BrokerAddress, message: bytes | None = None
) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=address.node_id,
        host=address.host,
        port=address.port,
        error_code=code,
        error_message=message,
    )


def _topic(context: KafkaContext, described: _Described, name: bytes | None) -> Steps[Topic | None]:
    """The topic, created if needed; None if the request may create no more: its client asks again,
    as it does if a 0.8 broker has not created a topic yet. Raises BrokerError.
    """
    topic_name = context.topic_name(name)
    topics = context.broker.topics
    if not described.makes or topic_name.topic == OFFSETS_TOPIC:
        return topics.get(topic_name)
    topic = topics.find(topic_name)
    if topic is None:
        context.connection.check(Action.CREATE, Resource.of_topic(topic_name))
        if described.created >= TOPICS_MADE_MAX:
            return None
        described.created += 1
        topic = yield topics.auto_create(topic_name)
    return topic
