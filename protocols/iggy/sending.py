"""SEND: each request is an append to a partition; its answer waits for the topic's durability."""

from __future__ import annotations

import struct
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.runtime.steps import Steps, step_into
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.partition import Partition
from braidlog.broker.topics.sequence_rules import BatchOrder, judge
from braidlog.broker.topics.topic import Topic
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy.context import PROTOCOL, IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.partitioning import take_turn
from braidlog.protocols.iggy.producer_names import name_of
from braidlog.storage.errors import CorruptBody, RecordTooLarge
from braidlog.storage.formats.api import BodyInfo, Prepared
from braidlog.storage.formats.iggy.classic import HEADER_BYTES_MAX
from braidlog.storage.formats.iggy.forms import BatchProducer, producer_of
from braidlog.storage.formats.iggy.prepare import SentForm, prepare
from braidlog.storage.formats.iggy.typed import BrokenRule

if TYPE_CHECKING:
    from braidlog.broker.topics.producer_memory import StoredBatch

# The body of a larger SEND is made in a thread: 10,000 of the smallest messages, ten ms of work.
LARGE_BYTES = 256 * 1024
# Tries if other protocols append first each time; then the body is made in the event loop.
LARGE_TRIES = 8
MESSAGE_MIN = 24  # id, headers length, payload length
U32 = struct.Struct("<I")

RULES = {
    "offset": ErrorCode.NON_ZERO_OFFSET,
    "timestamp": ErrorCode.NON_ZERO_TIMESTAMP,
    "message_checksum": ErrorCode.INVALID_MESSAGE_CHECKSUM,
    "batch_checksum": ErrorCode.INVALID_BATCH_CHECKSUM,
}
ORDER_ERRORS = {
    BatchOrder.UNKNOWN: ErrorCode.PRODUCER_UNKNOWN,
    BatchOrder.FENCED: ErrorCode.PRODUCER_EPOCH_FENCED,
    BatchOrder.OUT_OF_ORDER: ErrorCode.PRODUCER_SEQUENCE_OUT_OF_ORDER,
}


class CutMessages(Exception):
    """Messages for which the real server ends the connection without an answer: in the oldest
    dialect all refused messages, in the next dialects messages that run past the end of the
    request.
    """


@dataclass(frozen=True, slots=True)
class NumberedProducer:
    """The producer of a batch, and the number that stands for the producer in batch headers."""

    producer: BatchProducer
    number: int


def send(
    context: IggyContext, request: m.SendMessages
) -> IggyAnswer | Steps[IggyAnswer] | Coroutine[Any, Any, IggyAnswer]:
    """Append all messages to a partition; messages of an idempotent producer are stored once.

    Raises Refusal, CutMessages, PartitionNotFound and the errors of an append.
    """
    if not request.messages or request.count == 0:
        if context.dialect.behaviour.closes:
            raise CutMessages("a SEND without a message")
        raise Refusal(ErrorCode.INVALID_MESSAGES_COUNT)
    topic = names.get_topic(context.broker, request.stream, request.topic)
    producer = _producer(context, request)
    partition = _choose(context, topic, request.partitioning)
    context.check_incarnation(partition)
    if producer is not None:
        return _send_once(context, request, topic, partition, producer)
    return _send(context, request, topic, partition)


def _producer(context: IggyContext, request: m.SendMessages) -> BatchProducer | None:
    """Return the idempotent producer of a SEND, if there is any. Raises as `send`."""
    if context.dialect.form.sent is not SentForm.PRODUCER_BATCH:
        return None
    try:
        producer = producer_of(request.messages)
    except CorruptBody as error:
        raise _refusal(context, request, error) from error
    if producer is not None and request.partitioning.kind is not m.PartitioningKind.PARTITION:
        raise Refusal(ErrorCode.PRODUCER_NEEDS_PARTITION)
    return producer


def _send_once(
    context: IggyContext,
    request: m.SendMessages,
    topic: Topic,
    partition: Partition,
    producer: BatchProducer,
) -> Steps[IggyAnswer]:
    """Send messages of an idempotent producer: the catalogue knows the producer as a name, so that
    the number in batch headers meets no number of another protocol.
    """
    broker, name = context.broker, name_of(producer.producer_id)
    number, ticket = broker.producers.number(name, topic)
    try:
        # No batch with the number is older than the number's record.
        if broker.durability.durable_ticket < ticket:
            yield broker.durability.reached(ticket)
        if partition.known_sequences is None:
            yield partition.sequences()
        numbered = NumberedProducer(producer, number)
        return (yield from step_into(_send(context, request, topic, partition, numbered)))
    finally:
        broker.producers.release(name, topic)


def _send(
    context: IggyContext,
    request: m.SendMessages,
    topic: Topic,
    partition: Partition,
    numbered: NumberedProducer | None = None,
) -> IggyAnswer | Coroutine[Any, Any, IggyAnswer]:
    if len(request.messages) > LARGE_BYTES:
        return _send_large(context, request, topic, partition, numbered)
    if partition.partition_id in context.shared.gated:
        return _send_behind(context, request, topic, partition, numbered)
    return _send_now(context, request, topic, partition, numbered)


def _send_now(
    context: IggyContext,
    request: m.SendMessages,
    topic: Topic,
    partition: Partition,
    numbered: NumberedProducer | None,
) -> IggyAnswer:
    # Atomic: no await between reading the next offset and the append.
    append_us = context.broker.now_us()
    prepared = _prepare(context, request, partition.next_offset, append_us)
    return _append(context, topic, partition, prepared, append_us, numbered)


async def _send_behind(
    context: IggyContext,
    request: m.SendMessages,
    topic: Topic,
    partition: Partition,
    numbered: NumberedProducer | None,
) -> IggyAnswer:
    """Send after a large SEND is done, which would otherwise have to start again."""
    async with context.shared.large_sends:
        return _send_now(context, request, topic, partition, numbered)


async def _send_large(
    context: IggyContext,
    request: m.SendMessages,
    topic: Topic,
    partition: Partition,
    numbered: NumberedProducer | None,
) -> IggyAnswer:
    """The same with the body made in a thread, one at a time: a million small messages in one SEND
    take a second. The body contains offsets, so it is made again if somebody else appended first;
    from the second try on, other SENDs to the partition wait.
    """
    gated = context.shared.gated
    async with context.shared.large_sends:
        try:
            for _ in range(LARGE_TRIES):
                base_offset, append_us = partition.next_offset, context.broker.now_us()
                prepared = await run_in_thread(_prepare, context, request, base_offset, append_us)
                # Atomic from here to the append.
                if partition.next_offset == base_offset:
                    return _append(context, topic, partition, prepared, append_us, numbered)
                gated.add(partition.partition_id)
            return _send_now(context, request, topic, partition, numbered)
        finally:
            gated.discard(partition.partition_id)


def _prepare(
    context: IggyContext, request: m.SendMessages, base_offset: int, append_us: int
) -> Prepared:
    """Return the body of a SEND. Raises the message errors of `send`."""
    key = request.partitioning.key or None
    form, messages = context.dialect.form.sent, request.messages
    try:
        return prepare(form, messages, request.count, base_offset, append_us, key)
    except (RecordTooLarge, CorruptBody) as error:
        raise _refusal(context, request, error) from error


def _append(
    context: IggyContext,
    topic: Topic,
    partition: Partition,
    prepared: Prepared,
    append_us: int,
    numbered: NumberedProducer | None,
) -> IggyAnswer:
    stream_number = names.stream_number(context.broker, topic)
    place = (stream_number, names.topic_number(context.broker, topic), partition.index)
    if numbered is not None:
        repeated = _repeated(partition, prepared.info, numbered)
        if repeated is not None:
            ticket = partition.appended_ticket
            if repeated is BatchOrder.REPEATED:
                return IggyAnswer([r.NothingSent()], ticket=ticket)
            return IggyAnswer([r.SentInfo(*place, repeated.base_offset)], ticket=ticket)
    context.connection.written_topics.note(topic.resource)
    appended = partition.append(
        [prepared.body],
        prepared.info,
        body_format=prepared.body_format,
        append_us=append_us,
    )
    context.broker.metrics.records_in(
        PROTOCOL,
        partition.metrics_name,
        prepared.info.record_count,
        len(prepared.body),
        partition.traffic,
    )
    pause_s = 0.0
    if topic.client_limits.publish is not None:
        count, size = prepared.info.record_count, len(prepared.body)
        policies = context.broker.client_policies
        pause_s = policies.publish_pause_s(topic, partition, count, size)
    sent = r.SentInfo(*place, appended.base_offset)
    return IggyAnswer([sent], ticket=appended.ticket, pause_s=pause_s)


def _repeated(
    partition: Partition, info: BodyInfo, numbered: NumberedProducer
) -> StoredBatch | Literal[BatchOrder.REPEATED] | None:
    """Give a batch the numbers of its producer; return the stored batch that the batch repeats, if
    there is any. Raises Refusal.
    """
    producer, known = numbered.producer, partition.known_sequences
    assert known is not None, "loaded before the batch was prepared"
    info.producer_id, info.producer_epoch = numbered.number, producer.epoch
    info.first_sequence = producer.sequence
    info.last_sequence = producer.last_sequence(info.record_count)
    verdict = judge(known.find(numbered.number), info)
    if verdict is BatchOrder.NEXT:
        return None
    if not isinstance(verdict, BatchOrder) or verdict is BatchOrder.REPEATED:
        return verdict
    raise Refusal(ORDER_ERRORS[verdict])


def _refusal(
    context: IggyContext, request: m.SendMessages, error: RecordTooLarge | CorruptBody
) -> Exception:
    """The exception for messages that are refused."""
    if context.dialect.behaviour.closes:
        return CutMessages(str(error))
    if isinstance(error, BrokenRule):
        return Refusal(RULES[error.rule], str(error))
    if isinstance(error, RecordTooLarge):
        return _too_large(error)
    if request.count is None and _is_cut(request.messages):
        return CutMessages(str(error))
    return to_broker_error(error)


def _choose(context: IggyContext, topic: Topic, partitioning: m.Partitioning) -> Partition:
    count = len(topic.partitions)
    if not count:
        raise Refusal(ErrorCode.NO_PARTITIONS)
    if partitioning.kind is m.PartitioningKind.PARTITION:
        return topic.partition(partitioning.partition)
    if partitioning.kind is m.PartitioningKind.KEY:
        return topic.partition(context.dialect.key_partition(partitioning.key, count))
    return topic.partition(take_turn(context.shared.turns, topic.meta.topic_id, count))


def _too_large(error: RecordTooLarge) -> Refusal:
    if error.size_max == HEADER_BYTES_MAX:
        return Refusal(ErrorCode.TOO_BIG_HEADERS_PAYLOAD, str(error))
    return Refusal(ErrorCode.TOO_BIG_MESSAGE_PAYLOAD, str(error))


def _is_cut(messages: memoryview) -> bool:
    pos, end = 0, len(messages)
    while pos < end:
        if end - pos < MESSAGE_MIN:
            return True
        pos += MESSAGE_MIN + U32.unpack_from(messages, pos + 16)[0]
        if pos > end:
            return True
        pos += U32.unpack_from(messages, pos - 4)[0]
    return pos > end
