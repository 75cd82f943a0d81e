"""DeleteRecords and DescribeLogDirs: for tools that free or watch disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import CLUSTER
from braidlog.broker.errors import BrokerError, OffsetOutOfRange
from braidlog.protocols.kafka.admin_messages import (
    DeletedRecords,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DescribeLogDirsReply,
    DescribeLogDirsRequest,
    LogDir,
    LogSize,
)
from braidlog.protocols.kafka.context import Answer, Context
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braidlog.broker.topics.partition import Partition

ALL_RECORDS: Final = -1  # as an offset
DELETES_PER_TURN: Final = 20  # Each may write a slot and begin a segment.
PARTITIONS_PER_TURN: Final = 200


async def delete_records(context: Context, request: DeleteRecordsRequest) -> Answer:
    """Delete the records below an offset; answered once that is on disk."""
    await context.own_writes()
    topics: dict[bytes | None, dict[int, DeletedRecords]] = {}
    for name, offsets in request.topics.items():
        answers = topics[name] = {}
        async for index, offset in in_turns(offsets.items(), DELETES_PER_TURN):
            answers[index] = _delete(context, name, index, offset)
    await context.broker.durability.settled()
    return Answer(DeleteRecordsReply(topics))


def _delete(context: Context, name: bytes | None, index: int, offset: int) -> DeletedRecords:
    try:
        partition = context.partition(name, index)
        start, end = partition.log_start_offset, partition.high_watermark
        if not ALL_RECORDS <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        below = end if offset == ALL_RECORDS else offset
        context.broker.retention.delete_below(partition, below)
    except BrokerError as error:
        return DeletedRecords(-1, context.refused(error))
    return DeletedRecords(partition.log_start_offset, Code.NONE)


async def describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> Answer:
    """Bytes of each partition in the one data directory."""
    try:
        context.connection.check(context.action, CLUSTER)
    except BrokerError as error:
        context.refused(error)
        return Answer(DescribeLogDirsReply([LogDir(Code.CLUSTER_AUTHORIZATION_FAILED, b"", {})]))
    sizes: dict[bytes | None, dict[int, LogSize]] = {}
    async for name, partition in in_turns(_wanted(context, request), PARTITIONS_PER_TURN):
        sizes.setdefault(name, {})[partition.index] = LogSize(partition.size_bytes)
    path = str(context.broker.data_dir).encode()
    return Answer(DescribeLogDirsReply([LogDir(Code.NONE, path, sizes)]))


def _wanted(
    context: Context, request: DescribeLogDirsRequest
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
                yield wanted.name, context.partition(wanted.name, index)
            except BrokerError:
                continue  # Kafka leaves out what it does not have.
