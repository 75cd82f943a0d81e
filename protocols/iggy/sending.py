"""SEND: one request is one append to one partition, and its answer waits for the disk."""

from __future__ import annotations

import struct

from broker.topics.partition import Partition, broker_error
from broker.topics.topic import Topic
from protocols.iggy import messages as m
from protocols.iggy import names
from protocols.iggy.context import PROTOCOL, Answer, Context
from protocols.iggy.errors import ErrorCode, Refusal
from protocols.iggy.partitioning import take_turn
from storage.codecs.api import BodyFormat
from storage.codecs.iggy import HEADER_BYTES_MAX, body_from_send
from storage.errors import CorruptBody, RecordTooLarge

MESSAGE_MIN = 24  # id, headers length, payload length
U32 = struct.Struct("<I")


class CutMessages(Exception):
    """A message runs past the end of its request: the real server ends the connection without an
    answer.
    """


async def send(context: Context, request: m.SendMessages) -> Answer:
    """Append all messages to one partition.

    Raises Refusal, CutMessages, PartitionNotFound and what an append raises.
    """
    if not request.messages:
        raise Refusal(ErrorCode.INVALID_MESSAGES_COUNT)
    topic = names.get_topic(context.broker, request.stream, request.topic)
    partition = _choose(context, topic, request.partitioning)
    # Atomic: no await between reading the next offset and the append.
    append_us = context.broker.now_us()
    key = request.partitioning.key or None
    try:
        prepared = body_from_send(request.messages, partition.next_offset, append_us, key=key)
    except RecordTooLarge as error:
        raise _too_large(error) from error
    except CorruptBody as error:
        if _is_cut(request.messages):
            raise CutMessages(str(error)) from error
        raise broker_error(error) from error
    appended = partition.append(
        [prepared.body], prepared.info, body_format=BodyFormat.IGGY, append_us=append_us
    )
    context.broker.metrics.records_in(
        PROTOCOL, topic.name.full, prepared.info.record_count, len(prepared.body)
    )
    return Answer(ticket=appended.ticket)


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
