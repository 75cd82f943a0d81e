"""Topics and their partitions, as Iggy's clients see and change them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.topics.partition import Partition, batches_bytes
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic import Topic
from braidlog.broker.topics.topic_setting import NO_LIMIT
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names, targets
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal
from braidlog.protocols.iggy.limits import PIECE_PARTITIONS
from braidlog.protocols.iggy.messages import UNBOUNDED
from braidlog.protocols.iggy.topic_options import COMPRESSION as COMPRESSION_OPTION
from braidlog.protocols.iggy.topic_options import (
    DURABILITY,
    EXPIRY,
    FIXED,
    RESIZE_POLICY,
    SEGMENT,
    SIZE,
    check_updatable,
    compression_of,
    derived,
    explicit,
    number_of,
    packed,
    topic_options,
    unpacked,
)
from braidlog.storage.metadata.names import (
    InvalidTopicName,
    TopicName,
    check_topic_name,
    split_partition,
)

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

SERVER_DEFAULT = 0
US_PER_MS = 1_000
# None and gzip. Only kept and shown; the reference server does no more with it either.
COMPRESSIONS = range(1, 3)
REPLICATION_DEFAULT = 1  # The meaning of 0. Kept and shown only.
# In a request, in Iggy's older dialects; the broker's own limit for a topic is lower.
PARTITIONS_MAX = 100_000
REQUEST_PARTITIONS_MAX = 1_000  # Of a request, in V.

# Topic settings. Settings of the log are per partition; only this listener knows the others.
COMPRESSION, REPLICATION, OPTIONS = "iggy_compression", "iggy_replication", "iggy_options"
# An expiry that is no whole number of milliseconds; the log's own is rounded up.
EXPIRY_US = "iggy_expiry_us"
# The setting that each option of V stands for.
OF_OPTIONS = {row.iggy: name for name, row in TOPIC_SETTINGS.items() if row.iggy}
OF_OPTIONS[COMPRESSION_OPTION] = COMPRESSION
RETENTION_MS, RETENTION_BYTES = OF_OPTIONS[EXPIRY], OF_OPTIONS[SIZE]
SEGMENT_BYTES, LOG_DURABILITY = OF_OPTIONS[SEGMENT], OF_OPTIONS[DURABILITY]

THIS_NODE = 0  # The id of the only node that clients see: this broker.
STEP_TRIES = 4  # For adding or removing partitions while other clients do so.

KeptElsewhere = Mapping[str, tuple[int, int, int]]
"""Messages, bytes and segments of topics of other brokers (`Peers.stored_sizes`)."""


def get_topic(context: IggyContext, request: m.GetTopic) -> IggyAnswer:
    """A topic with its partitions. Raises Absent, NotOwner."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    topic.check_here()
    return IggyAnswer(_details(context.broker, topic))


async def get_topics(context: IggyContext, request: m.GetTopics) -> IggyAnswer:
    """All topics of a stream; of a missing stream none, if the dialect has that. Raises Absent."""
    broker = context.broker
    try:
        stream = names.get_stream(broker, request.stream)
    except Absent:
        if context.dialect.behaviour.lists_missing_stream:
            return IggyAnswer([r.Count(0)])
        raise
    topics = names.topics(broker, stream)
    infos = await topic_infos(broker, topics, await broker.peers.stored_sizes())
    return IggyAnswer([r.Count(len(infos)), *infos])


async def create_topic(context: IggyContext, request: m.CreateTopic) -> IggyAnswer:
    """Create a topic. Raises Refusal."""
    broker = context.broker
    _check_settings(context, request)
    if request.options is not None and request.partitions_count > REQUEST_PARTITIONS_MAX:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS)
    segment_bytes = number_of(request.options or {}, SEGMENT)
    _check_size(request, segment_bytes or broker.config.log.segment_bytes)
    stream = names.get_stream(broker, request.stream)
    name = TopicName(names.TENANT, stream.name, request.name)
    _check_name(name)
    names.check_chosen(request.topic_id, ErrorCode.INVALID_TOPIC_ID)
    being_made = context.shared.being_made
    topic_id = request.topic_id or names.free_topic_id(broker, stream, being_made)
    number = (stream.name, topic_id)
    numbered = broker.topics.find_numbered(names.TENANT, *number)
    names.check_free(
        context.dialect.behaviour,
        (numbered is not None or number in being_made, ErrorCode.TOPIC_ID_ALREADY_EXISTS),
        (broker.topics.find(name) is not None, ErrorCode.TOPIC_NAME_ALREADY_EXISTS),
    )
    being_made.add(number)  # Atomic: no await since the number was chosen.
    try:
        topic = await broker.topics.create(
            name,
            request.partitions_count,
            settings=_settings(request, request.partitions_count),
            iggy_id=topic_id,
        )
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS, str(error)) from error
    finally:
        being_made.discard(number)
    return IggyAnswer(_details(broker, topic), ticket=topic.ticket)


async def update_topic(context: IggyContext, request: m.UpdateTopic) -> IggyAnswer:
    """Change a topic's settings, then its name if changed. Raises Refusal."""
    broker = context.broker
    _check_settings(context, request)
    check_updatable(request.options or {})
    topic = names.get_topic(broker, request.stream, request.topic)
    segment_bytes = number_of(request.options or {}, SEGMENT)
    _check_size(request, segment_bytes or _segment_bytes(broker, topic))
    new_name = topic.name.topic if request.name is None else request.name
    name = TopicName(names.TENANT, topic.name.namespace, new_name)
    if name != topic.name:
        _check_name(name)
        context.check(Action.CREATE, Resource.of_topic(name))
        if broker.topics.find(name) is not None:
            raise Refusal(ErrorCode.TOPIC_NAME_ALREADY_EXISTS)
        broker.renaming.check_possible([topic])
    named = [RETENTION_MS, RETENTION_BYTES, COMPRESSION, REPLICATION]
    if request.options is not None:
        named = [
            OF_OPTIONS[key] for key in (*request.options, *request.resets) if key in OF_OPTIONS
        ]
    if RETENTION_MS in named:
        named.append(EXPIRY_US)
    # A default value has no setting: the earlier setting is removed.
    changes: dict[str, str | int | bool | None] = dict.fromkeys(named)
    changes |= _settings(request, len(topic.partitions))
    if request.options is not None:
        options = {**_given_options(topic), **request.options}
        for key in request.resets:
            options.pop(key, None)
        changes[OPTIONS] = packed(explicit(options)).hex()
    ticket = await broker.topics.alter_settings(topic.name, changes)
    if name != topic.name:
        ticket = await broker.renaming.rename_topic(topic.name, name)
    return IggyAnswer(ticket=ticket)


async def delete_topic(context: IggyContext, request: m.DeleteTopic) -> IggyAnswer:
    """Delete a topic with its groups and stored offsets. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    return IggyAnswer(ticket=await context.broker.topics.delete(topic.name))


async def create_partitions(context: IggyContext, request: m.CreatePartitions) -> IggyAnswer:
    """Add partitions to a topic. Raises Refusal."""
    topic = _resizable(context, request)
    try:
        return IggyAnswer(
            ticket=await _step(topic, context.broker.topics.add_partitions, request.count)
        )
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS, str(error)) from error


async def delete_partitions(context: IggyContext, request: m.DeletePartitions) -> IggyAnswer:
    """Remove the partitions with the highest numbers, at most all. Raises Refusal."""
    topic = _resizable(context, request)
    resize = context.broker.topics.keep_partitions
    return IggyAnswer(ticket=await _step(topic, resize, -request.count))


def _resizable(context: IggyContext, request: m.CreatePartitions | m.DeletePartitions) -> Topic:
    """Return the topic whose number of partitions may change. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    if not 1 <= request.count <= PARTITIONS_MAX:
        raise Refusal(ErrorCode.TOO_MANY_PARTITIONS)
    if _given_options(topic).get(RESIZE_POLICY, (0, b""))[1] == FIXED:
        raise Refusal(ErrorCode.PARTITION_RESIZE_DISABLED, f"{topic.name.topic!r} is fixed")
    return topic


class Resize(Protocol):
    """`Topics.add_partitions` or `Topics.keep_partitions`."""

    def __call__(self, name: TopicName, total: int, *, seen: int | None) -> Awaitable[int]:
        """Give a topic so many partitions, if it has `seen` now. Raises Conflict."""


async def _step(topic: Topic, resize: Resize, step: int) -> int:
    """Change the number of partitions by a step, as Iggy's commands say it; return the ticket. The
    broker wants the number that there should be: it is worked out again if another client was
    quicker, as nothing was done then. Raises Conflict if others always are.
    """

    async def once() -> int:
        count = len(topic.partitions)
        return await resize(topic.name, max(count + step, 0), seen=count)

    for _ in range(STEP_TRIES - 1):
        with suppress(errors.Conflict):  # Nothing was done: the next try counts anew.
            return await once()
    return await once()


async def purge_topic(context: IggyContext, request: m.PurgeTopic) -> IggyAnswer:
    """Delete all messages of a topic; offsets continue, stored offsets stay. Raises Refusal."""
    topic = names.get_topic(context.broker, request.stream, request.topic)
    broker = context.broker
    await broker.durability.all_durable()  # Only durable records can be dropped.
    await broker.retention.purge(topic)
    await broker.durability.all_durable()
    return IggyAnswer()


async def delete_segments(context: IggyContext, request: m.DeleteSegments) -> IggyAnswer:
    """Delete the oldest segments of a partition. Raises Refusal, PartitionNotFound."""
    broker = context.broker
    topic = names.get_topic(broker, request.stream, request.topic)
    broker.retention.drop_segments(topic.partition(request.partition), request.count)
    await broker.durability.all_durable()
    return IggyAnswer()


async def flush(context: IggyContext, request: m.FlushUnsavedBuffer) -> IggyAnswer:
    """Answered once all that was sent to a partition is on disk. Raises Refusal,
    PartitionNotFound.
    """
    topic = names.get_topic(context.broker, request.stream, request.topic)
    topic.partition(request.partition)
    await context.broker.durability.all_durable()
    return IggyAnswer()


def topic_info(broker: Broker, topic: Topic, elsewhere: KeptElsewhere) -> r.TopicDetails:
    """The record of a topic, with the statistics of its owner."""
    partitions = topic.partitions
    messages, size, segments = elsewhere.get(topic.name.full) or topic.stored_sizes()
    settings = topic.meta.settings
    retention_ms = settings.get(RETENTION_MS, broker.config.log.retention_ms)
    retention_bytes = settings.get(RETENTION_BYTES, broker.config.log.retention_bytes)
    expiry_us = _bound(retention_ms, US_PER_MS)
    exact_us = int(settings.get(EXPIRY_US, 0))
    if -(-exact_us // US_PER_MS) * US_PER_MS == expiry_us:  # Else the log's was changed since.
        expiry_us = exact_us
    compression = int(settings.get(COMPRESSION, COMPRESSIONS[0]))
    size_max = _bound(retention_bytes, max(len(partitions), 1))
    options = _given_options(topic)
    return r.TopicDetails(
        topic_id=names.topic_number(broker, topic),
        created_us=topic.meta.created_us,
        partitions_count=len(partitions),
        expiry_us=expiry_us,
        compression=compression,
        size_max=size_max,
        replication=int(settings.get(REPLICATION, REPLICATION_DEFAULT)),
        size_bytes=batches_bytes(size, segments),
        messages_count=messages,
        name=topic.name.topic,
        options=packed(options),
        derived_options=derived(
            options,
            compression=compression,
            expiry_us=expiry_us,
            size_max=size_max,
            segment_bytes=_segment_bytes(broker, topic),
        ),
    )


async def topic_infos(
    broker: Broker, topics: Sequence[Topic], elsewhere: KeptElsewhere
) -> list[r.TopicDetails]:
    """Return the records of many topics, built in pieces; `elsewhere` has the statistics of other
    brokers.
    """
    return [
        topic_info(broker, topic, elsewhere)
        async for topic in in_pieces(topics)
        if not topic.deleted
    ]


async def in_pieces(
    topics: Sequence[Topic], partitions: int = PIECE_PARTITIONS
) -> AsyncIterator[Topic]:
    """Yield the topics, with a checkpoint after so many partitions: some ms of work."""
    seen = 0
    for topic in topics:
        yield topic
        seen += 1 + len(topic.partitions)
        if seen >= partitions:
            seen = 0
            await trio.lowlevel.checkpoint()


def messages_count(partition: Partition) -> int:
    """Messages that may be read, gaps included."""
    return partition.high_watermark - partition.log_start_offset


def current_offset(partition: Partition) -> int:
    """The offset of the last record that may be read; 0 if there is none."""
    return max(partition.high_watermark - 1, 0)


def _check_name(name: TopicName) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise Refusal(ErrorCode.INVALID_TOPIC_NAME, str(error)) from error
    if split_partition(name.topic):
        raise Refusal(ErrorCode.INVALID_TOPIC_NAME, f"{name.topic!r} is a partition's name")


def _bound(limit: str | int | bool | None, unit: int) -> int:
    return UNBOUNDED if limit is None or limit == NO_LIMIT else min(int(limit) * unit, UNBOUNDED)


def _check_settings(context: IggyContext, request: m.CreateTopic | m.UpdateTopic) -> None:
    """Check that a topic can have these settings, bring options of V and W into their own kinds,
    and copy them into the fields that other dialects have. Raises Refusal.
    """
    options = request.options
    if options is not None:
        options = request.options = topic_options(options, context.dialect.topic_options)
        request.compression = compression_of(options) or COMPRESSIONS[0]
        request.expiry_us = number_of(options, EXPIRY) or SERVER_DEFAULT
        request.size_max = number_of(options, SIZE) or SERVER_DEFAULT
    if request.compression not in COMPRESSIONS:
        raise Refusal(ErrorCode.INVALID_COMMAND, f"compression {request.compression}")


def _check_size(request: m.CreateTopic | m.UpdateTopic, segment_bytes: int) -> None:
    """Check, in V, that a topic's largest size holds a segment. Raises Refusal."""
    if request.options is not None and SERVER_DEFAULT < request.size_max < segment_bytes:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_SIZE,
            f"size {request.size_max} is below that of a segment, {segment_bytes}",
        )


def _segment_bytes(broker: Broker, topic: Topic) -> int:
    """The size of a topic's segments, which closes them."""
    return int(topic.meta.settings.get(SEGMENT_BYTES) or broker.config.log.segment_bytes)


def _given_options(topic: Topic) -> dict[str, tuple[int, bytes]]:
    """The options that V's clients gave a topic."""
    return unpacked(bytes.fromhex(str(topic.meta.settings.get(OPTIONS, ""))))


def _settings(
    request: m.CreateTopic | m.UpdateTopic, partitions_count: int
) -> dict[str, str | int | bool]:
    """The log's settings. Iggy bounds a whole topic, the log each partition: sizes are divided."""
    settings: dict[str, str | int | bool] = {}
    partitions = max(partitions_count, 1)
    if request.options:
        settings[OPTIONS] = packed(explicit(request.options)).hex()
        segment_bytes = number_of(request.options, SEGMENT)
        if segment_bytes:
            settings[SEGMENT_BYTES] = segment_bytes
        if request.options.get(DURABILITY, (0, b""))[1] == b"persisted":
            settings[LOG_DURABILITY] = "synced"
    for name, value, unit in (
        (RETENTION_MS, request.expiry_us, US_PER_MS),
        (RETENTION_BYTES, request.size_max, partitions),
    ):
        if value != SERVER_DEFAULT:
            settings[name] = NO_LIMIT if value == UNBOUNDED else -(-value // unit)
    if request.expiry_us != UNBOUNDED and request.expiry_us % US_PER_MS:
        settings[EXPIRY_US] = request.expiry_us
    if request.compression != COMPRESSIONS[0]:
        settings[COMPRESSION] = request.compression
    if request.replication not in (SERVER_DEFAULT, REPLICATION_DEFAULT):
        settings[REPLICATION] = request.replication
    return settings


def get_route(context: IggyContext, request: m.GetPartitionRoute) -> IggyAnswer:
    """Return the node that serves a partition: always this broker, which forwards if necessary. The
    client may send to or poll the topic.

    Raises Absent, PartitionNotFound, NotAuthorized.
    """
    broker = context.broker
    for resource in targets.topic(broker, request):
        if not context.allows(Action.PRODUCE, resource):
            context.check(Action.CONSUME, resource)
    topic = names.get_topic(broker, request.stream, request.topic)
    partition = topic.partition(request.partition)
    route = r.PartitionRoute(
        incarnation=partition.partition_id,
        metadata_op=broker.last_change,
        view=0,
        partitions_count=len(topic.partitions),
        primary_replica=THIS_NODE,
    )
    return IggyAnswer([route])


def _details(broker: Broker, topic: Topic) -> list[r.TopicDetails | r.PartitionDetails]:
    place = broker.last_change
    partitions = [_partition_info(topic, partition, place) for partition in topic.partitions]
    return [topic_info(broker, topic, {}), *partitions]


def _partition_info(topic: Topic, partition: Partition, place: int) -> r.PartitionDetails:
    segments = len(partition.segments())
    return r.PartitionDetails(
        partition=partition.index,
        created_us=topic.meta.created_us,
        segments_count=segments,
        current_offset=current_offset(partition),
        size_bytes=batches_bytes(partition.size_bytes, segments),
        messages_count=messages_count(partition),
        incarnation=partition.partition_id,
        metadata_op=place,
        members=bytes([THIS_NODE]),
        in_sync=bytes([THIS_NODE]),
    )
