"""DescribeProducers: the idempotent producers that a partition remembers."""

from __future__ import annotations

from typing import Final

from braidlog.broker.errors import BrokerError
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.wire.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from braidlog.storage.formats.kafka.record_batches import PRODUCER_BIT

US_PER_MS: Final = 1000
PARTITIONS_PER_TURN: Final = 1  # Each remembers some thousand producers.


async def describe_producers(
    context: KafkaContext, request: DescribeProducersRequest
) -> KafkaAnswer:
    """Describe the producers of each partition; Pulsar's are left out."""
    topics = []
    for wanted in request.topics:
        partitions = [
            await _described(context, wanted.name, index)
            async for index in in_turns(wanted.partition_indexes, PARTITIONS_PER_TURN)
        ]
        topics.append(TopicResponse(name=wanted.name, partitions=partitions))
    return KafkaAnswer(DescribeProducersResponse(topics=topics), is_large=True)


async def _described(context: KafkaContext, name: bytes | None, index: int) -> PartitionResponse:
    result = PartitionResponse(partition_index=index, error_message=None)
    try:
        table = await context.partition(name, index).sequences()
    except BrokerError as error:
        result.error_code, result.error_message = context.refused(error), str(error).encode()
        return result
    result.active_producers = [
        ProducerState(
            producer_id=state.producer_id & ~PRODUCER_BIT,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_append_us // US_PER_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        )
        for state in table
        if state.producer_id & PRODUCER_BIT
    ]
    return result
