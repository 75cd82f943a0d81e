"""OffsetDelete: ends a group's positions on single partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import (
    BrokerError,
    InvalidName,
    NotOwner,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicNotFound,
)
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.consumer_protocol import PROTOCOL_TYPE, topics_of
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_admin import group_exists
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.wire.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

PARTITIONS_PER_TURN: Final = 200
MEMBERS_PER_TURN: Final = 100


async def delete_offsets(context: KafkaContext, request: OffsetDeleteRequest) -> KafkaAnswer:
    """End positions, except on topics that members of the group subscribe to."""
    name = request.group_id or b""
    try:
        if not name:
            return KafkaAnswer(OffsetDeleteResponse(error_code=Code.INVALID_GROUP_ID))
        context.check_group(name)
        if not context.coordinates(name):
            return KafkaAnswer(OffsetDeleteResponse(error_code=Code.NOT_COORDINATOR))
        if not await group_exists(context, name):
            return KafkaAnswer(OffsetDeleteResponse(error_code=Code.GROUP_ID_NOT_FOUND))
        subscribed = await _subscribed(context, name)
    except BrokerError as error:
        return KafkaAnswer(OffsetDeleteResponse(error_code=context.refused(error)))
    if subscribed is None:
        return KafkaAnswer(OffsetDeleteResponse(error_code=Code.NON_EMPTY_GROUP))
    ticket, topics = 0, []
    wanted = by_partition(
        (topic.name, partition.partition_index, None)
        for topic in request.topics
        for partition in topic.partitions
    )
    for topic_name, indexes in wanted.items():
        results = []
        async for index in in_turns(indexes, PARTITIONS_PER_TURN):
            code, needed = await _delete(context, name, topic_name, index, subscribed)
            ticket = max(ticket, needed)
            results.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        topics.append(OffsetDeleteResponseTopic(name=topic_name, partitions=results))
    return KafkaAnswer(OffsetDeleteResponse(topics=topics), ticket)


async def _subscribed(context: KafkaContext, name: bytes) -> set[bytes] | None:
    """Return the topics that the group's members subscribe to; None if they cannot be known."""
    modern = context.groups.find_modern(name)
    if modern is not None and modern.members:
        return set(modern.topics.ids)
    group = context.groups.find(name)
    topics: set[bytes] = set()
    if group is None or not group.members:
        return topics
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    try:
        async for member in in_turns(tuple(group.members.values()), MEMBERS_PER_TURN):
            for metadata in member.protocols.values():
                topics.update(topics_of(metadata))
    except ProtocolError:  # Members are free to send any bytes.
        return None
    return topics


async def _delete(
    context: KafkaContext, name: bytes, topic_name: bytes | None, index: int, subscribed: set[bytes]
) -> tuple[Code, int]:
    """End a position; return the code, and the ticket that the answer waits for."""
    try:
        topic = _topic(context, name, topic_name)
        if topic_name in subscribed or context.broker.members.others(topic, name, PROTOCOL):
            context.count_error(Code.GROUP_SUBSCRIBED_TO_TOPIC)
            return Code.GROUP_SUBSCRIBED_TO_TOPIC, 0
        topic.partition(index)  # Raises PartitionNotFound, NotOwner.
        subscription = context.broker.subscriptions.find(topic, name)
        if subscription is None or subscription.position(index) is None:
            return Code.NONE, 0
        return Code.NONE, subscription.delete_cursor(index)
    except NotOwner as error:
        return await _delete_elsewhere(context, error, name, topic.name.full, index), 0
    except BrokerError as error:
        return context.refused(error), 0


def _topic(context: KafkaContext, name: bytes, topic_name: bytes | None) -> Topic:
    """Return a topic, after a check of the right on the group there. Raises BrokerError."""
    try:
        full = context.names.topic_name(topic_name)
    except InvalidName as error:
        raise TopicNotFound(str(error)) from None
    context.check_group(name, full)
    return context.broker.topics.get(full)


async def _delete_elsewhere(
    context: KafkaContext, owner: NotOwner, name: bytes, full: str, index: int
) -> Code:
    """End a position at the broker that owns the topic."""
    place = (full, index)
    try:
        await context.broker.peers.end_position(owner.node_id, context.asker, name, place, PROTOCOL)
    except SubscriptionNotFound:
        return Code.NONE
    except SubscriptionBusy:
        context.count_error(Code.GROUP_SUBSCRIBED_TO_TOPIC)
        return Code.GROUP_SUBSCRIBED_TO_TOPIC
    except BrokerError as error:
        return context.coordinator_refused(error)
    return Code.NONE
