"""DescribeTopicPartitions: topics in pieces, so that no answer is larger than the client wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import BrokerError
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.authorized import operations
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import epoch_of
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


PARTITIONS_MAX: Final = 2000  # Kafka's max.request.partition.size.limit.
TOPICS_PER_TURN: Final = 100
NOBODY: Final = -1


async def describe_topic_partitions(
    context: KafkaContext, request: DescribeTopicPartitionsRequest
) -> KafkaAnswer:
    """Describe the named topics, or all, by name and from the cursor on."""
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    cursor = request.cursor
    first, start = (
        (b"", 0) if cursor is None else (cursor.topic_name or b"", cursor.partition_index)
    )
    reply = DescribeTopicPartitionsResponse(next_cursor=None)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    if cursor is not None and start < 0:
        topics = [
            DescribeTopicPartitionsResponseTopic(error_code=Code.INVALID_REQUEST, name=wanted.name)
            for wanted in request.topics
        ]
        return KafkaAnswer(DescribeTopicPartitionsResponse(topics=topics))
    async for name in in_turns(_names(context, request), TOPICS_PER_TURN):
        if name < first:
            continue
        if not left:
            reply.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        described, following = _described(context, name, start if name == first else 0, left)
        topics.append(described)
        left -= len(described.partitions)
        if following is not None:
            reply.next_cursor = Cursor(topic_name=name, partition_index=following)
            break
    reply.topics = topics
    return KafkaAnswer(reply)


def _names(context: KafkaContext, request: DescribeTopicPartitionsRequest) -> Sequence[bytes]:
    """Return the names to describe, in order: those asked for, or all that the client may see."""
    if request.topics:
        return sorted({wanted.name or b"" for wanted in request.topics})
    names = context.names
    return sorted(
        topic.name.topic.encode()
        for topic in context.broker.topics.list(names.tenant, names.namespace)
        if visible(topic.name) and context.may_see(topic)
    )


def _described(
    context: KafkaContext, name: bytes, start: int, most: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """Describe a topic from a partition on; return also the next partition if some are left."""
    try:
        topic = context.broker.topics.get(context.topic_name(name))
    except BrokerError as error:
        code = context.refused(error)
        return DescribeTopicPartitionsResponseTopic(error_code=code, name=name), None
    leader = context.address_of(context.broker.placement.owner(topic.name))
    code = Code.LEADER_NOT_AVAILABLE if leader is None else Code.NONE
    number = NOBODY if leader is None else leader.node_id
    epoch = epoch_of(context, topic.name)
    replicas = [] if leader is None else [number]
    end = min(start + most, len(topic.partitions))
    described = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=id_of(topic),
        topic_authorized_operations=operations(context, topic.resource),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=number,
                leader_epoch=epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index in range(start, end)
        ],
    )
    return described, end if end < len(topic.partitions) else None
