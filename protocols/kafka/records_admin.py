"""DeleteRecords and DescribeLogDirs: for tools that free or watch disk space."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import CLUSTER
from braidlog.broker.errors import BrokerError, OffsetOutOfRange, PolicyViolated
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.kafka.wire.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from braidlog.protocols.kafka.wire.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braidlog.broker.topics.partition import Partition

ALL_RECORDS: Final = -1  # as an offset
DELETES_PER_TURN: Final = 20  # Each may write a slot and begin a segment.
PARTITIONS_PER_TURN: Final = 200
WHOLE_ERROR_VERSION: Final = 3  # From this version of DescribeLogDirs on a refusal has no folder.


async def delete_records(context: KafkaContext, request: DeleteRecordsRequest) -> KafkaAnswer:
    """Delete the records below an offset; answered once that is on disk."""
    await context.own_writes()
    topics = []
    wanted = by_partition(
        (topic.name, partition.partition_index, partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    )
    for name, offsets in wanted.items():
        results: list[DeleteRecordsPartitionResult] = []
        async for index, offset in in_turns(offsets.items(), DELETES_PER_TURN):
            results.append(_delete(context, name, index, offset))
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    await context.broker.durability.all_durable()
    return KafkaAnswer(DeleteRecordsResponse(topics=topics))


def _delete(
    context: KafkaContext, name: bytes | None, index: int, offset: int
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
    try:
        partition = context.partition(name, index)
        if context.broker.retention.keeps_each_key(partition):  # As Kafka, before the offset.
            raise PolicyViolated("records of a topic with cleanup.policy=compact are not deleted")
        start, end = partition.log_start_offset, partition.high_watermark
        if not ALL_RECORDS <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        below = end if offset == ALL_RECORDS else offset
        context.broker.retention.delete_below(partition, below)
        result.low_watermark = partition.log_start_offset
    except BrokerError as error:
        result.error_code = context.refused(error)
    return result


async def describe_log_dirs(context: KafkaContext, request: DescribeLogDirsRequest) -> KafkaAnswer:
    """Bytes of each partition in the data directory."""
    try:
        context.connection.check(context.action, CLUSTER)
    except BrokerError as error:
        context.refused(error)
        code = Code.CLUSTER_AUTHORIZATION_FAILED
        if context.version >= WHOLE_ERROR_VERSION:
            return KafkaAnswer(DescribeLogDirsResponse(error_code=code))
        refused = DescribeLogDirsResult(error_code=code)
        return KafkaAnswer(DescribeLogDirsResponse(results=[refused]))
    sizes: dict[bytes | None, dict[int, int]] = {}
    async for name, partition in in_turns(_wanted(context, request), PARTITIONS_PER_TURN):
        sizes.setdefault(name, {})[partition.index] = partition.size_bytes
    topics = [
        DescribeLogDirsTopic(
            name=name,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=size)
                for index, size in partitions.items()
            ],
        )
        for name, partitions in sizes.items()
    ]
    path = str(context.broker.data_dir).encode()
    disk = await run_in_thread(shutil.disk_usage, context.broker.data_dir)
    result = DescribeLogDirsResult(
        log_dir=path, topics=topics, total_bytes=disk.total, usable_bytes=disk.free
    )
    return KafkaAnswer(DescribeLogDirsResponse(results=[result]))


def _wanted(
    context: KafkaContext, request: DescribeLogDirsRequest
) -> Iterator[tuple[bytes | None, Partition]]:
    """The partitions asked for that exist."""
    if request.topics is None:
        names = context.names
        for topic in context.broker.topics.list(names.tenant, names.namespace):
            if visible(topic.name):
                for partition in tuple(topic.partitions):
                    yield topic.name.topic.encode(), partition
        return
    for wanted in request.topics:
        for index in wanted.partitions:
            try:
                yield wanted.topic, context.partition(wanted.topic, index)
            except BrokerError:
                continue  # Kafka leaves out what it does not have.
