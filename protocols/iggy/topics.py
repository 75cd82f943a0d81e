"""Topics and their partitions, as Iggy's clients see and change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import errors
from broker.topics.partition import Partition
from broker.topics.settings import NO_LIMIT
from broker.topics.topic import Topic
from protocols.iggy import messages as m
from protocols.iggy import names
from protocols.iggy.context import Answer, Context
from protocols.iggy.errors import ErrorCode, Refusal
from storage.metadata.names import InvalidTopicName, TopicName, check_topic_name, split_partition

if TYPE_CHECKING:
    from broker.broker import Broker

UNBOUNDED = (1 << 64) - 1  # Expiry and size without a bound.
SERVER_DEFAULT = 0
# None and gzip. Kept and shown only; the reference server does no more with it.
COMPRESSIONS = range(1, 3)
REPLICATION_DEFAULT = 1  # What 0 stands for. Kept and shown only.
# Of a topic and of one request, in Iggy; the broker's own bound is lower.
PARTITIONS_MAX = 100_000

# Topic settings. Those of the log are for one partition; the others are known to this listener
# alone.
RETENTION_MS, RETENTION_BYTES = "retention_ms", "retention_bytes"
COMPRESSION, REPLICATION = "iggy_compression", "iggy_replication"


async def get_topic(context: Context, request: m.GetTopic) -> Answer:
    """A topic with its partitions. Raises Absent."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    return Answer(_details(context.broker, topic))


async def get_topics(context: Context, request: m.GetTopics) -> Answer:
    """All topics of a stream. A missing stream stays an error here. Raises Refusal."""
    broker = context.broker
    stream = names.get_stream(broker, request.stream)
    return Answer([topic_info(broker, topic) for topic in names.topics(broker, stream)])


async def create_topic(context: Context, request: m.CreateTopic) -> Answer:
    """Make a topic. Raises Refusal."""
    broker = context.broker
    stream = names.get_stream(broker, request.stream)
    name = TopicName(names.TENANT, stream.name, request.name)
    _check_name(name)
    if request.compression not in COMPRESSIONS:
        raise Refusal(ErrorCode.INVALID_COMMAND, f"compression {request.compression}")
    if broker.topics.find(name) is not None:
        raise Refusal(ErrorCode.TOPIC_NAME_ALREADY_EXISTS)
    names.check_chosen(request.topic_id, ErrorCode.INVALID_TOPIC_ID)
    topic_id = request.topic_id or names.free_topic_id(broker, stream)
    if broker.catalogue.topic_by_iggy_id(names.TENANT, stream.name, topic_id) is not None:
        raise Refusal(ErrorCode.TOPIC_ID_ALREADY_EXISTS)
    try:
        topic = await broker.topics.create_aside(
            name, request.partitions_count, settings=_settings(request), iggy_id=topic_id
        )
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS, str(error)) from error
    return Answer(_details(broker, topic), ticket=topic.ticket)


async def delete_topic(context: Context, request: m.DeleteTopic) -> Answer:
    """Delete a topic with its groups and stored offsets. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    forget_topic(context, topic)
    return Answer(ticket=context.broker.topics.delete(topic.name))


async def create_partitions(context: Context, request: m.CreatePartitions) -> Answer:
    """Add partitions to a topic. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    if not 1 <= request.count <= PARTITIONS_MAX:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS)
    total = len(topic.partitions) + request.count
    try:
        return Answer(ticket=await context.broker.topics.add_partitions_aside(topic.name, total))
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS, str(error)) from error


def topic_info(broker: Broker, topic: Topic) -> m.TopicInfo:
    """The record of a topic."""
    partitions = [_partition_info(topic, partition) for partition in topic.partitions]
    settings = topic.meta.settings
    retention_ms = settings.get(RETENTION_MS, broker.config.log.retention_ms)
    retention_bytes = settings.get(RETENTION_BYTES, broker.config.log.retention_bytes)
    return m.TopicInfo(
        topic_id=names.topic_number(broker, topic),
        created_us=topic.meta.created_us,
        partitions_count=len(partitions),
        expiry_us=_bound(retention_ms, 1000),
        compression=int(settings.get(COMPRESSION, COMPRESSIONS[0])),
        size_max=_bound(retention_bytes, max(len(partitions), 1)),
        replication=int(settings.get(REPLICATION, REPLICATION_DEFAULT)),
        size_bytes=sum(info.size_bytes for info in partitions),
        messages_count=sum(info.messages_count for info in partitions),
        name=topic.name.topic,
    )


def current_offset(partition: Partition) -> int:
    """The offset of the last record that may be read; 0 where there is none."""
    return max(partition.high_watermark - 1, 0)


def forget_topic(context: Context, topic: Topic) -> None:
    """Let nobody be a member of the groups of a topic that goes, or have a turn in it."""
    for group in names.groups(context.broker, topic):
        context.shared.groups.drop(topic.meta.topic_id, group.name)
    context.shared.turns.pop(topic.meta.topic_id, None)


def _check_name(name: TopicName) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise Refusal(ErrorCode.INVALID_TOPIC_NAME, str(error)) from error
    if split_partition(name.topic):
        raise Refusal(ErrorCode.INVALID_TOPIC_NAME, f"{name.topic!r} is a partition's name")


def _bound(limit: str | int | bool | None, unit: int) -> int:
    return UNBOUNDED if limit is None or limit == NO_LIMIT else min(int(limit) * unit, UNBOUNDED)


def _settings(request: m.CreateTopic) -> dict[str, str | int | bool]:
    """Iggy bounds a topic as a whole, the log each partition: each gets its share, rounded up."""
    settings: dict[str, str | int | bool] = {}
    partitions = max(request.partitions_count, 1)
    for name, asked, unit in (
        (RETENTION_MS, request.expiry_us, 1000),
        (RETENTION_BYTES, request.size_max, partitions),
    ):
        if asked != SERVER_DEFAULT:
            settings[name] = NO_LIMIT if asked == UNBOUNDED else -(-asked // unit)
    if request.compression != COMPRESSIONS[0]:
        settings[COMPRESSION] = request.compression
    if request.replication not in (SERVER_DEFAULT, REPLICATION_DEFAULT):
        settings[REPLICATION] = request.replication
    return settings


def _details(broker: Broker, topic: Topic) -> list[m.TopicInfo | m.PartitionInfo]:
    partitions = [_partition_info(topic, partition) for partition in topic.partitions]
    return [topic_info(broker, topic), *partitions]


def _partition_info(topic: Topic, partition: Partition) -> m.PartitionInfo:
    return m.PartitionInfo(
        partition=partition.index,
        created_us=topic.meta.created_us,
        segments_count=len(partition.log.segments()),
        current_offset=current_offset(partition),
        size_bytes=partition.log.size_bytes,
        messages_count=partition.high_watermark - partition.log_start_offset,
    )
