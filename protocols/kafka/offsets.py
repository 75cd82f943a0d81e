"""Offsets (later ListOffsets): version 0 asks which offsets were there before a time, answered by
segments; later versions ask for the first record that is not before a time.

Algorithm of version 0: kafka/server/KafkaApis.scala, fetchOffsetsBefore, of apache/kafka 0.8.2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog.broker.errors import BrokerError, InvalidRequest
from braidlog.broker.reading.times import first_not_before, first_of_latest_time
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import RECORD_EPOCH, check_epoch
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition

LATEST_TIME = -1
EARLIEST_TIME = -2
MAX_TIME = -3  # The first record with the latest time.
EARLIEST_LOCAL_TIME = -4  # All records are local: no partition has a tier of remote storage.
LATEST_TIERED_TIME = -5  # No record is there.
EARLIEST_PENDING_TIME = -6  # To be uploaded: no record is.
# The first version of a time that has a meaning of its own.
SINCE = {
    LATEST_TIME: 1,
    EARLIEST_TIME: 1,
    MAX_TIME: 7,
    EARLIEST_LOCAL_TIME: 8,
    LATEST_TIERED_TIME: 9,
    EARLIEST_PENDING_TIME: 11,
}
NEVER = 1 << 15  # As the first version of any other negative time.
US_PER_MS = 1000
PARTITIONS_PER_TURN = 100  # Each may have a thousand segments.
TIME_MS_MAX = (2**63 - 1) // US_PER_MS


async def list_offsets(context: KafkaContext, request: ListOffsetsRequest) -> KafkaAnswer:
    """Answer each partition with at most as many offsets as it asks for, descending."""
    await context.own_writes()
    find = _find_first if context.version else _find
    counts = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    wanted = by_partition(
        (topic.name, partition.partition_index, partition)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics = []
    for name, targets in wanted.items():
        results: list[ListOffsetsPartitionResponse] = []
        async for index, target in in_turns(targets.items(), PARTITIONS_PER_TURN):
            result = ListOffsetsPartitionResponse(partition_index=index)
            if context.version and counts[name, index] > 1:
                result.error_code = Code.INVALID_REQUEST
                context.count_error(Code.INVALID_REQUEST)
                results.append(result)
                continue
            try:
                await find(context, context.partition(name, index), target, result)
            except BrokerError as error:
                result.error_code = context.refused(error)
            results.append(result)
        topics.append(ListOffsetsTopicResponse(name=name, partitions=results))
    return KafkaAnswer(ListOffsetsResponse(topics=topics))


async def _find_first(
    context: KafkaContext,
    partition: Partition,
    target: ListOffsetsPartition,
    result: ListOffsetsPartitionResponse,
) -> None:
    """Put an offset, and the time of the record there, into the result. Raises BrokerError."""
    check_epoch(context, partition.topic.name, target.current_leader_epoch)
    if target.timestamp < 0 and context.version < SINCE.get(target.timestamp, NEVER):
        result.error_code = Code.UNSUPPORTED_VERSION
        return
    record: tuple[int, int] | None = None
    if target.timestamp == LATEST_TIME:
        result.offset = partition.high_watermark
    elif target.timestamp in (EARLIEST_TIME, EARLIEST_LOCAL_TIME):
        result.offset = partition.log_start_offset
    elif target.timestamp == MAX_TIME:
        record = await first_of_latest_time(partition)
    elif target.timestamp >= 0:
        time_us = min(target.timestamp, TIME_MS_MAX) * US_PER_MS
        record = await first_not_before(partition, time_us, timed_only=True)
    if record is not None:
        result.offset, result.timestamp = record[0], record[1] // US_PER_MS
    if result.offset >= 0:
        result.leader_epoch = RECORD_EPOCH


async def _find(
    context: KafkaContext,
    partition: Partition,
    target: ListOffsetsPartition,
    result: ListOffsetsPartitionResponse,
) -> None:
    """Put the offsets of segments into the result. Raises BrokerError."""
    count = target.max_num_offsets
    if count < 0:
        raise InvalidRequest(f"{count} offsets asked for")
    known = known_offsets(partition, context.broker.now_us() // US_PER_MS)
    result.old_style_offsets = offsets_before(known, target.timestamp, count)


def known_offsets(partition: Partition, now_ms: int) -> list[tuple[int, int]]:
    """(offset, its time in ms) of each segment's start and of the log's end, ascending.

    Offsets are clamped to the range from the log start to the high watermark.
    """
    high_watermark = partition.high_watermark
    log_start = partition.log_start_offset
    segments = partition.segments()
    known = [(max(base, log_start), time_us // US_PER_MS) for base, time_us, _ in segments]
    if segments and partition.next_offset > segments[-1][0]:
        known.append((partition.next_offset, now_ms))
    return [(min(offset, high_watermark), time_ms) for offset, time_ms in known]


def offsets_before(known: Sequence[tuple[int, int]], time_ms: int, offsets_max: int) -> list[int]:
    """At most `offsets_max` known offsets, descending from the newest not later than `time_ms`."""
    if time_ms == LATEST_TIME:
        count = len(known)
    elif time_ms == EARLIEST_TIME:
        count = 1
    else:
        times = [time for _, time in known]
        count = next((at + 1 for at in reversed(range(len(times))) if times[at] <= time_ms), 0)
    return [offset for offset, _ in reversed(known[:count])][:offsets_max]
