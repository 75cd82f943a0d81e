"""The read-only topic `__consumer_offsets`, for monitors that follow the commits of all groups
(Burrow, kminion): off by default. It looks like a compacted topic of a single partition, and is
made from the positions of all protocols as clients read (`broker/positions/changes.py`).

Only reading requests know the topic; for all others there is no such topic. Records have Kafka's
layouts: OffsetCommitKey version 1 and OffsetCommitValue version 3 of apache/kafka 4.3. A position
that has ended is a record without a value.
"""

from __future__ import annotations

import struct
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio

from braidlog.broker.access.rights import Resource
from braidlog.broker.runtime.steps import Steps, run
from braidlog.protocols.kafka import configs, fetch, metadata, offsets, topic_partitions
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import RECORD_EPOCH
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.kept_partitions import describe
from braidlog.protocols.kafka.messages import BY_ID_VERSION
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.kafka.topic_configs import LIST
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from braidlog.protocols.kafka.wire.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from braidlog.protocols.kafka.wire.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from braidlog.protocols.kafka.wire.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from braidlog.protocols.kafka.wire.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.record import Record

if TYPE_CHECKING:
    from braidlog.broker.positions.changes import PlacedChange, PositionChanges

NAME: Final = b"__consumer_offsets"
TOPIC_ID: Final = b"__consumer_offse"  # No topic of the catalogue has so great a number.
KEY_VERSION, VALUE_VERSION = 1, 3
TEXT: Final = struct.Struct(">h")
PARTITION: Final = struct.Struct(">i")
VALUE: Final = struct.Struct(">hqi")  # version, offset, leader epoch
TIME: Final = struct.Struct(">q")
FROM_TOPIC: Final = 1  # where a setting comes from
US_PER_MS: Final = 1000
RECORDS_MAX: Final = 2000  # Of an answer: some milliseconds.
CHANGES_PER_TURN: Final = 200
BATCH_RECORDS: Final = 200
DELTA_MAX: Final = 1 << 30  # Between the first and the last offset of a batch.
Answer = KafkaAnswer | Steps[KafkaAnswer] | Coroutine[Any, Any, KafkaAnswer]


def changes_for(context: KafkaContext) -> PositionChanges | None:
    """Return the changes that the topic shows; None if there is no such topic for the client.
    The setting is on.
    """
    changes = context.broker.subscriptions.changes
    if not changes.is_open:
        return None
    resource = Resource.of_topic(context.names.topic_name(NAME))
    allowed = context.broker.access.allows(context.connection.principal, context.action, resource)
    return changes if allowed else None


def metadata_with_positions(context: KafkaContext, request: MetadataRequest) -> Answer:
    """Answer Metadata; the topic is in the list of all topics, and has its own id."""
    if not context.options.offsets_topic:
        return metadata.metadata(context, request)
    return _metadata(context, request)


def _metadata(context: KafkaContext, request: MetadataRequest) -> Steps[KafkaAnswer]:
    answer = yield from metadata.metadata(context, request)
    if changes_for(context) is None:
        return answer
    reply = answer.reply
    assert isinstance(reply, MetadataResponse)
    partition = describe(0, int(Code.NONE), context.address.node_id, RECORD_EPOCH)
    topic = MetadataResponseTopic(
        name=NAME, topic_id=TOPIC_ID, is_internal=True, partitions=[partition]
    )
    if request.topics is None or (not request.topics and not context.version):
        reply.topics = [*(entry for entry in reply.topics if entry.name != NAME), topic]
    else:
        reply.topics = [
            topic if entry.name == NAME or entry.topic_id == TOPIC_ID else entry
            for entry in reply.topics
        ]
    return answer


def offsets_with_positions(context: KafkaContext, request: ListOffsetsRequest) -> Answer:
    """Answer ListOffsets; a time has no offset in the topic."""
    if not context.options.offsets_topic:
        return offsets.list_offsets(context, request)
    return _offsets(context, request)


async def _offsets(context: KafkaContext, request: ListOffsetsRequest) -> KafkaAnswer:
    answer = await offsets.list_offsets(context, request)
    changes = changes_for(context)
    if changes is None:
        return answer
    times = {
        partition.partition_index: partition.timestamp
        for topic in request.topics
        if topic.name == NAME
        for partition in topic.partitions
    }
    assert isinstance(answer.reply, ListOffsetsResponse)
    end = await _end(context, changes)
    first = await _shown_since(context, changes, 0, count=1)
    places = {offsets.LATEST_TIME: end, offsets.EARLIEST_TIME: first[0].place if first else end}
    for topic in answer.reply.topics:
        for result in topic.partitions if topic.name == NAME else ():
            if result.partition_index != 0 or result.error_code == Code.INVALID_REQUEST:
                continue
            place = places.get(times[0], -1)
            result.error_code, result.offset = Code.NONE, place
            if place >= 0:
                result.leader_epoch = RECORD_EPOCH
                result.old_style_offsets = [place]
    return answer


async def partitions_with_positions(
    context: KafkaContext, request: DescribeTopicPartitionsRequest
) -> KafkaAnswer:
    """Answer DescribeTopicPartitions; the topic is described where a request names it."""
    answer = await topic_partitions.describe_topic_partitions(context, request)
    if not context.options.offsets_topic or changes_for(context) is None:
        return answer
    replicas = [context.address.node_id]
    partition = DescribeTopicPartitionsResponsePartition(
        leader_id=context.address.node_id,
        leader_epoch=RECORD_EPOCH,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=(),
        last_known_elr=(),
    )
    topic = DescribeTopicPartitionsResponseTopic(
        name=NAME, topic_id=TOPIC_ID, is_internal=True, partitions=[partition]
    )
    reply = answer.reply
    assert isinstance(reply, DescribeTopicPartitionsResponse)
    reply.topics = [topic if entry.name == NAME else entry for entry in reply.topics]
    return answer


def configs_with_positions(context: KafkaContext, request: DescribeConfigsRequest) -> KafkaAnswer:
    """Answer DescribeConfigs: the topic is compacted."""
    answer = configs.describe_configs(context, request)
    if not context.options.offsets_topic or changes_for(context) is None:
        return answer
    policy = DescribeConfigsResourceResult(
        name=b"cleanup.policy",
        value=b"compact",
        read_only=True,
        config_source=FROM_TOPIC,
        config_type=LIST,
        documentation=None,
    )
    assert isinstance(answer.reply, DescribeConfigsResponse)
    for result in answer.reply.results:
        if result.resource_type == configs.TOPIC and result.resource_name == NAME:
            result.error_code, result.error_message, result.configs = Code.NONE, None, [policy]
    return answer


def fetch_with_positions(context: KafkaContext, request: FetchRequest) -> Answer:
    """Answer Fetch."""
    if not context.options.offsets_topic:
        return fetch.fetch(context, request)
    mine = [topic for topic in request.topics if _is_positions(context, topic)]
    changes = changes_for(context) if mine else None
    if changes is None or request.session_epoch not in fetch.WHOLE_EPOCHS:
        return fetch.fetch(context, request)
    return _fetch(context, request, mine, changes)


def _is_positions(context: KafkaContext, topic: FetchTopic) -> bool:
    return (topic.topic_id == TOPIC_ID) if context.version >= BY_ID_VERSION else topic.topic == NAME


async def _fetch(
    context: KafkaContext,
    request: FetchRequest,
    mine: Sequence[FetchTopic],
    changes: PositionChanges,
) -> KafkaAnswer:
    """Answer once there is a position or a record, at the latest after `max_wait_ms`."""
    deadline = trio.current_time() + request.max_wait_ms / 1000
    request.topics = [topic for topic in request.topics if topic not in mine]
    request.max_wait_ms = 0
    targets = [partition for topic in mine for partition in topic.partitions]
    while True:
        end = changes.end
        answer = await run(fetch.fetch(context, request))
        reply = answer.reply
        assert isinstance(reply, FetchResponse)
        data = [await _read(context, changes, target, request.max_bytes) for target in targets]
        topic = FetchableTopicResponse(topic=NAME, topic_id=TOPIC_ID, partitions=data)
        reply.responses = [*reply.responses, topic]
        if _has_records(reply) or not await _changed(context, changes, end, deadline):
            return answer


def _has_records(reply: FetchResponse) -> bool:
    """Return True if an answer has records or an error."""
    parts = (part for topic in reply.responses for part in topic.partitions)
    return any(part.records or part.error_code for part in parts)


async def _changed(
    context: KafkaContext, changes: PositionChanges, place: int, deadline: float
) -> bool:
    """Wait for the change of that place; return False if the deadline came first, or the broker
    stops.
    """

    async def stop() -> None:
        await context.broker.stopping.wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = deadline
        nursery.start_soon(stop)
        await changes.wait(place)
        nursery.cancel_scope.cancel()
    return changes.end > place and not context.broker.stopping.is_set()


async def _read(
    context: KafkaContext, changes: PositionChanges, target: FetchPartition, bytes_max: int
) -> PartitionData:
    """Return the records from an offset on."""
    index, offset = target.partition, target.fetch_offset
    if index != 0 or not 0 <= offset <= changes.end:
        code = Code.OFFSET_OUT_OF_RANGE if index == 0 else Code.UNKNOWN_TOPIC_OR_PARTITION
        context.count_error(code)
        return PartitionData(
            partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None
        )
    codec = KAFKA if context.version < fetch.BATCHES_VERSION else KAFKA_BATCHES
    room = min(target.partition_max_bytes, max(bytes_max, 1), context.options.fetch_bytes_max)
    parts: list[bytes] = []
    size = 0
    for records in _batches(await _shown_since(context, changes, offset)):
        body = codec.encode(records, records[0].offset)
        if parts and size + len(body) > room:
            break
        parts.append(body)
        size += len(body)
    end = await _end(context, changes)
    return PartitionData(
        partition_index=index,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        records=parts,
    )


async def _shown_since(
    context: KafkaContext, changes: PositionChanges, place: int, count: int = RECORDS_MAX
) -> list[PlacedChange]:
    """Return the first changes from a place on that the client may see."""
    shown: list[PlacedChange] = []
    while piece := list(islice(changes.since(place), CHANGES_PER_TURN)):
        shown += (change for change in piece if _shows(context, change))
        if len(shown) >= count:
            break
        place = piece[-1].place + 1
        await trio.lowlevel.checkpoint()
    return shown[:count]


async def _end(context: KafkaContext, changes: PositionChanges) -> int:
    """Return the offset behind the last change that the client may see: a client with records
    beyond would never reach the end.
    """
    place = changes.end
    while piece := list(islice(changes.before(place), CHANGES_PER_TURN)):
        for change in piece:
            if _shows(context, change):
                return change.place + 1
        place = piece[-1].place
        await trio.lowlevel.checkpoint()
    return 0


def _batches(shown: Iterable[PlacedChange]) -> Iterator[list[Record]]:
    """Yield records in pieces that a batch can hold."""
    records: list[Record] = []
    for change in shown:
        if records and (
            len(records) >= BATCH_RECORDS or change.place - records[0].offset > DELTA_MAX
        ):
            yield records
            records = []
        records.append(_record(change))
    if records:
        yield records


def _shows(context: KafkaContext, change: PlacedChange) -> bool:
    """Return True if the client may see the group's position in a topic of the listener."""
    name = change.topic
    if (name.tenant, name.namespace) != context.namespace or not visible(name):
        return False
    if context.broker.access.allows_all:
        return True
    topic = context.broker.topics.find(name)
    return topic is not None and context.may_see(topic) and context.may_see(topic, change.group)


def _record(change: PlacedChange) -> Record:
    commit = change.commit
    key = b"".join(
        (
            TEXT.pack(KEY_VERSION),
            _text(change.group),
            _text(change.topic.topic.encode()),
            PARTITION.pack(change.partition),
        )
    )
    time_us = change.place if commit is None or not commit.time_us else commit.time_us
    value = None
    if commit is not None:
        head = VALUE.pack(VALUE_VERSION, commit.offset, commit.leader_epoch)
        value = head + _text(commit.metadata or b"") + TIME.pack(time_us // US_PER_MS)
    return Record(offset=change.place, append_us=time_us, publish_us=time_us, key=key, value=value)


def _text(text: bytes) -> bytes:
    return TEXT.pack(len(text)) + text
