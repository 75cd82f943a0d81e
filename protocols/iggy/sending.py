"""SEND: one request is one append to one partition, and its answer waits for the disk."""

from __future__ import annotations

import struct

from broker.commit.storage_errors import to_broker_error
from broker.topics.partition import Partition
from broker.topics.topic import Topic
from protocols.iggy import messages as m
from protocols.iggy import names
from protocols.iggy import replies as r
from protocols.iggy.context import PROTOCOL, Answer, Context
from protocols.iggy.errors import ErrorCode, Refusal
from protocols.iggy.partitioning import take_turn
from storage.codecs.iggy import HEADER_BYTES_MAX
from storage.codecs.iggy_typed import BrokenRule
from storage.errors import CorruptBody, RecordTooLarge

MESSAGE_MIN = 24  # id, headers length, payload length
U32 = struct.Struct("<I")


RULES = {
    "offset": ErrorCode.NON_ZERO_OFFSET,
    "timestamp": ErrorCode.NON_ZERO_TIMESTAMP,
    "message_checksum": ErrorCode.INVALID_MESSAGE_CHECKSUM,
    "batch_checksum": ErrorCode.INVALID_BATCH_CHECKSUM,
}


class CutMessages(Exception):
    """Messages at which the real server ends the connection without an answer: in the oldest
    dialect all that it does not take, in the next ones those that run past the end of the request.
    """


def send(context: Context, request: m.SendMessages) -> Answer:
    """Append all messages to one partition.

    Raises Refusal, CutMessages, PartitionNotFound and what an append raises.
    """
    form = context.dialect.form
    if not request.messages or request.count == 0:
        if context.dialect.habits.closes:
            raise CutMessages("a SEND without a message")
        raise Refusal(ErrorCode.INVALID_MESSAGES_COUNT)
    topic = names.get_topic(context.broker, request.stream, request.topic)
    partition = _choose(context, topic, request.partitioning)
    # Atomic: no await between reading the next offset and the append.
    append_us = context.broker.now_us()
    key = request.partitioning.key or None
    try:
        prepared = form.body(request.messages, request.count, partition.next_offset, append_us, key)
    except (RecordTooLarge, CorruptBody) as error:
        raise _refusal(context, request, error) from error
    appended = partition.append(
        [prepared.body], prepared.info, body_format=form.codec.format, append_us=append_us
    )
    context.broker.metrics.records_in(
        PROTOCOL, topic.name.full, prepared.info.record_count, len(prepared.body)
    )
    sent = r.SentInfo(
        names.stream_number(context.broker, topic),
        names.topic_number(context.broker, topic),
        partition.index,
        appended.base_offset,
    )
    return Answer([sent], ticket=appended.ticket)


def _refusal(
    context: Context, request: m.SendMessages, error: RecordTooLarge | CorruptBody
) -> Exception:
    """What is raised for messages that cannot be taken."""
    if context.dialect.habits.closes:
        return CutMessages(str(error))
    if isinstance(error, BrokenRule):
        return Refusal(RULES[error.rule], str(error))
    if isinstance(error, RecordTooLarge):
        return _too_large(error)
    if request.count is None and _is_cut(request.messages):
        return CutMessages(str(error))
    return to_broker_error(error)


def _choose(context: Context, topic: Topic, partitioning: m.Partitioning) -> Partition:
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
