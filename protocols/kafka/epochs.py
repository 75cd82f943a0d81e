"""OffsetForLeaderEpoch: where the records of a leader epoch end. There is only epoch 0, the one
that is stamped into every record batch.
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.errors import BrokerError
from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import UnknownEpoch
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

EPOCH: Final = 0


def check_epoch(known: int) -> None:
    """Check the leader epoch that a client knows, -1 for none. Raises UnknownEpoch."""
    if known > EPOCH:
        raise UnknownEpoch(f"the client knows leader epoch {known}, and this broker {EPOCH}")


async def offsets_for_epochs(
    context: KafkaContext, request: OffsetForLeaderEpochRequest
) -> KafkaAnswer:
    """Answer the high watermark for epoch 0; no other epoch has begun."""
    await context.own_writes()
    wanted = by_partition(
        (topic.topic, partition.partition, partition.leader_epoch)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics = [
        OffsetForLeaderTopicResult(
            topic=name,
            partitions=[_end(context, name, index, epoch) for index, epoch in epochs.items()],
        )
        for name, epochs in wanted.items()
    ]
    return KafkaAnswer(OffsetForLeaderEpochResponse(topics=topics))


def _end(context: KafkaContext, name: bytes | None, index: int, epoch: int) -> EpochEndOffset:
    end = EpochEndOffset(partition=index)
    try:
        partition = context.partition(name, index)
        if epoch == EPOCH:
            end.leader_epoch, end.end_offset = EPOCH, partition.high_watermark
    except BrokerError as error:
        end.error_code = context.refused(error)
    return end
