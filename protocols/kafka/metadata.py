"""Metadata and ConsumerMetadata: one broker leads everything. Only here topics are created.

Unlike 0.8.2, which answers error 5 until a leader is found, a new topic is answered whole once it
is on disk, and the broker list is never empty: clients with few retries gave up on the former,
sarama on the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.access.rights import Action, Resource
from broker.errors import BrokerError, InvalidName
from protocols.kafka.context import Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.messages import (
    BrokerAddress,
    ConsumerMetadataReply,
    ConsumerMetadataRequest,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from protocols.kafka.names import IllegalName, visible

if TYPE_CHECKING:
    from broker.topics.topic import Topic

NOWHERE = BrokerAddress(-1, b"", -1)


async def metadata(context: Context, request: MetadataRequest) -> Answer:
    """Tell who leads which partition; topics that are asked for by name are made if need be."""
    topics: list[TopicMetadata] = []
    ticket = 0
    for name in request.topics:
        try:
            topic = await _topic(context, name)
        except BrokerError as error:
            topics.append(TopicMetadata(context.refused(error), name))
        else:
            topics.append(_described(context, topic))
            ticket = max(ticket, topic.ticket)
    if not request.topics:
        names = context.names
        for topic in context.broker.topics.list(names.tenant, names.namespace):
            if visible(topic.name) and context.may_see(topic):
                topics.append(_described(context, topic))
                ticket = max(ticket, topic.ticket)
    return Answer(MetadataReply([context.address], topics), ticket)


async def consumer_metadata(context: Context, request: ConsumerMetadataRequest) -> Answer:
    """Every group's positions are here; only a null name has no coordinator, as in 0.8.2."""
    if request.group is None:
        code = Code.CONSUMER_COORDINATOR_NOT_AVAILABLE
        return Answer(ConsumerMetadataReply(code, NOWHERE))
    try:
        context.check_group(request.group)
    except BrokerError as error:
        return Answer(ConsumerMetadataReply(context.refused(error), NOWHERE))
    return Answer(ConsumerMetadataReply(Code.NONE, context.address))


async def _topic(context: Context, name: bytes | None) -> Topic:
    try:
        topic_name = context.names.topic_name(name)
    except IllegalName as error:
        raise InvalidName(str(error)) from None
    topics = context.broker.topics
    resource = Resource.of_topic(topic_name)
    context.connection.check(context.action, resource)
    if not context.options.auto_create:
        return topics.get(topic_name)
    if topics.find(topic_name) is None:
        context.connection.check(Action.CREATE, resource)
    return await topics.auto_create(topic_name)


def _described(context: Context, topic: Topic) -> TopicMetadata:
    node = [context.address.node_id]
    partitions = [
        PartitionMetadata(Code.NONE, partition.index, node[0], node, node)
        for partition in topic.partitions
    ]
    return TopicMetadata(Code.NONE, topic.name.topic.encode(), partitions)
