"""The read-only topic `__consumer_offsets`, for monitors that follow the commits of all groups
(Burrow, kminion): off by default. It looks like a compacted topic, and is made from the positions
of all protocols as clients read (`broker/positions/changes.py`). A partition is a journal of
positions: a single broker has partition 0; in a cluster each shard is a partition, led by the owner
of the shard.

Only reading requests know the topic; for all others there is no such topic. Records have Kafka's
layouts: OffsetCommitKey version 1 and OffsetCommitValue version 3 of apache/kafka 4.3. A position
that has ended is a record without a value.
"""

from __future__ import annotations

import struct
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import trio

from braidlog.broker.access.rights import Resource
from braidlog.broker.runtime.steps import Steps, run
from braidlog.protocols.kafka import configs, epochs, fetch, metadata, offsets, topic_partitions
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
from braidlog.protocols.kafka.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.record import Record

if TYPE_CHECKING:
    from braidlog.broker.positions.changes import JournalChanges, PlacedChange, PositionChanges
    from braidlog.broker.server.connection import Connection
    from braidlog.protocols.kafka.wire.list_offsets import ListOffsetsPartitionResponse

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
NO_LEADER: Final = -1
# How long a connection goes by its last look for changes that the client may see. A new permission
# shows earlier changes after that time.
LOOK_S: Final = 10.0


class LastLook(NamedTuple):
    """A connection's last look: between `end` and `until` there is no change that the client may
    see, so that an unseen change is looked at once and not at every turn.
    """

    at_s: float
    end: int
    until: int


Looks = WeakKeyDictionary["JournalChanges", LastLook]
_LOOKS: WeakKeyDictionary[Connection, Looks] = WeakKeyDictionary()
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


def _leaders(context: KafkaContext) -> dict[int, int]:
    """Return the number of the broker that leads each partition; NO_LEADER if none does now."""
    owners = context.broker.placement.shard_owners() or {0: None}
    addresses = {index: context.address_of(owners[index]) for index in sorted(owners)}
    return {
        index: NO_LEADER if address is None else address.node_id
        for index, address in addresses.items()
    }


def _led_here(context: KafkaContext, changes: PositionChanges, index: int) -> JournalChanges | Code:
    """Return the changes that a partition shows, or the code of a refusal."""
    leaders = _leaders(context)
    if index not in leaders:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    here = changes.at(index)
    is_led = here is not None and leaders[index] == context.address.node_id
    return here if here is not None and is_led else Code.NOT_LEADER_FOR_PARTITION


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
    partitions = [
        describe(index, int(_leader_code(leader)), leader, RECORD_EPOCH)
        for index, leader in _leaders(context).items()
    ]
    topic = MetadataResponseTopic(
        name=NAME, topic_id=TOPIC_ID, is_internal=True, partitions=partitions
    )
    if request.topics is None or (not request.topics and not context.version):
        reply.topics = [*(entry for entry in reply.topics if entry.name != NAME), topic]
    else:
        reply.topics = [
            topic if entry.name == NAME or entry.topic_id == TOPIC_ID else entry
            for entry in reply.topics
        ]
    return answer


def _leader_code(leader: int) -> Code:
    return Code.LEADER_NOT_AVAILABLE if leader == NO_LEADER else Code.NONE


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
    for topic in answer.reply.topics:
        for result in topic.partitions if topic.name == NAME else ():
            index = result.partition_index
            if result.error_code != Code.INVALID_REQUEST and index in times:
                await _place(context, changes, result, times[index])
    answer.ticket = max(answer.ticket, context.broker.subscriptions.flush_lazy())
    return answer


async def _place(
    context: KafkaContext,
    changes: PositionChanges,
    result: ListOffsetsPartitionResponse,
    time: int,
) -> None:
    """Put the place of a time into an answer."""
    here = _led_here(context, changes, result.partition_index)
    if isinstance(here, Code):
        result.error_code = here
        return
    place = -1
    if time == offsets.LATEST_TIME:
        place = await _end(context, here)
    elif time == offsets.EARLIEST_TIME:
        first = await _shown_since(context, here, 0, count=1)
        place = first[0].place if first else await _end(context, here)
    result.error_code, result.offset = Code.NONE, place
    if place >= 0:
        result.leader_epoch = RECORD_EPOCH
        result.old_style_offsets = [place]


async def epochs_with_positions(
    context: KafkaContext, request: OffsetForLeaderEpochRequest
) -> KafkaAnswer:
    """Answer OffsetForLeaderEpoch: librdkafka checks its place after a broker has come back."""
    answer = await epochs.offsets_for_epochs(context, request)
    changes = changes_for(context) if context.options.offsets_topic else None
    if changes is None:
        return answer
    assert isinstance(answer.reply, OffsetForLeaderEpochResponse)
    for topic in answer.reply.topics:
        for result in topic.partitions if topic.topic == NAME else ():
            here = _led_here(context, changes, result.partition)
            if isinstance(here, Code):
                result.error_code = here
            else:
                result.error_code, result.leader_epoch = Code.NONE, RECORD_EPOCH
                result.end_offset = here.end
    return answer


async def partitions_with_positions(
    context: KafkaContext, request: DescribeTopicPartitionsRequest
) -> KafkaAnswer:
    """Answer DescribeTopicPartitions; the topic is described where a request names it."""
    answer = await topic_partitions.describe_topic_partitions(context, request)
    if not context.options.offsets_topic or changes_for(context) is None:
        return answer
    partitions = []
    for index, leader in _leaders(context).items():
        replicas = [] if leader == NO_LEADER else [leader]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=_leader_code(leader),
                partition_index=index,
                leader_id=leader,
                leader_epoch=RECORD_EPOCH,
                replica_nodes=replicas,
                isr_nodes=replicas,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
        )
    topic = DescribeTopicPartitionsResponseTopic(
        name=NAME, topic_id=TOPIC_ID, is_internal=True, partitions=partitions
    )
    reply = answer.reply
    assert isinstance(reply, DescribeTopicPartitionsResponse)
    reply.topics = [topic if entry.name == NAME else entry for entry in reply.topics]
    return answer


async def configs_with_positions(
    context: KafkaContext, request: DescribeConfigsRequest
) -> KafkaAnswer:
    """Answer DescribeConfigs: the topic is compacted."""
    answer = await configs.describe_configs(context, request)
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
        ends = changes.ends
        answer = await run(fetch.fetch(context, request))
        reply = answer.reply
        assert isinstance(reply, FetchResponse)
        data = [await _read(context, changes, target, request.max_bytes) for target in targets]
        topic = FetchableTopicResponse(topic=NAME, topic_id=TOPIC_ID, partitions=data)
        reply.responses = [*reply.responses, topic]
        if _has_records(reply) or not await _changed(context, changes, ends, deadline):
            # No crash takes back a record of the answer.
            answer.ticket = max(answer.ticket, context.broker.subscriptions.flush_lazy())
            return answer


def _has_records(reply: FetchResponse) -> bool:
    """Return True if an answer has records or an error."""
    parts = (part for topic in reply.responses for part in topic.partitions)
    return any(part.records or part.error_code for part in parts)


async def _changed(
    context: KafkaContext, changes: PositionChanges, ends: Mapping[int, int], deadline: float
) -> bool:
    """Wait for a change after these ends; return False if the deadline came first, or the broker
    stops.
    """

    async def stop() -> None:
        await context.broker.stopping.wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = deadline
        nursery.start_soon(stop)
        await changes.wait(ends)
        nursery.cancel_scope.cancel()
    return changes.ends != ends and not context.broker.stopping.is_set()


async def _read(
    context: KafkaContext, changes: PositionChanges, target: FetchPartition, bytes_max: int
) -> PartitionData:
    """Return the records from an offset on."""
    index, offset = target.partition, target.fetch_offset
    here = _led_here(context, changes, index)
    if isinstance(here, Code) or not 0 <= offset <= here.end:
        code = here if isinstance(here, Code) else Code.OFFSET_OUT_OF_RANGE
        context.count_error(code)
        return PartitionData(
            partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None
        )
    codec = KAFKA if context.version < fetch.BATCHES_VERSION else KAFKA_BATCHES
    room = min(target.partition_max_bytes, max(bytes_max, 1), context.options.fetch_bytes_max)
    parts: list[bytes] = []
    size = 0
    for records in _batches(await _shown_since(context, here, offset)):
        body = codec.encode(records, records[0].offset)
        if parts and size + len(body) > room:
            break
        parts.append(body)
        size += len(body)
    end = await _end(context, here)
    return PartitionData(
        partition_index=index,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        records=parts,
    )


async def _shown_since(
    context: KafkaContext, changes: JournalChanges, place: int, count: int = RECORDS_MAX
) -> list[PlacedChange]:
    """Return the first changes from a place on that the client may see."""
    look = _look(context, changes)
    if look is not None and look.end <= place < look.until:
        place = look.until
    shown: list[PlacedChange] = []
    while piece := list(islice(changes.since(place), CHANGES_PER_TURN)):
        shown += (change for change in piece if _shows(context, change))
        if len(shown) >= count:
            break
        place = piece[-1].place + 1
        await trio.lowlevel.checkpoint()
    return shown[:count]


async def _end(context: KafkaContext, changes: JournalChanges) -> int:
    """Return the offset behind the last change that the client may see: a client with records
    beyond would never reach the end.
    """
    look = _look(context, changes)
    until = place = changes.end
    floor, end = (0, 0) if look is None else (look.until, look.end)
    while piece := list(
        islice(_down_to(floor, changes.before(place)), CHANGES_PER_TURN),
    ):
        last = next((change for change in piece if _shows(context, change)), None)
        if last is not None:
            end = last.place + 1
            break
        place = piece[-1].place
        await trio.lowlevel.checkpoint()
    at_s = trio.current_time() if look is None else look.at_s
    _LOOKS.setdefault(context.connection, WeakKeyDictionary())[changes] = LastLook(at_s, end, until)
    return end


def _down_to(floor: int, changes: Iterator[PlacedChange]) -> Iterator[PlacedChange]:
    """Yield changes, the last first, down to a place."""
    return takewhile(lambda change: change.place >= floor, changes)


def _look(context: KafkaContext, changes: JournalChanges) -> LastLook | None:
    """Return the last look of the connection, unless it was too long ago."""
    looks = _LOOKS.get(context.connection)
    look = None if looks is None else looks.get(changes)
    return None if look is None or trio.current_time() > look.at_s + LOOK_S else look


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
    time_us = change.time_us if commit is None or not commit.time_us else commit.time_us
    value = None
    if commit is not None:
        head = VALUE.pack(VALUE_VERSION, commit.offset, commit.leader_epoch)
        value = head + _text(commit.metadata or b"") + TIME.pack(time_us // US_PER_MS)
    return Record(offset=change.place, append_us=time_us, publish_us=time_us, key=key, value=value)


def _text(text: bytes) -> bytes:
    return TEXT.pack(len(text)) + text
