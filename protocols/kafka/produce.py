"""Produce: message sets into the log. Knows no bytes but those of the sets it cuts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from broker.errors import BrokerError
from broker.server.adapters import EndConnection
from broker.topics.partition import broker_error
from protocols.kafka.context import PROTOCOL, Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.messages import Produced, ProduceReply, ProduceRequest
from storage.codecs import kafka
from storage.codecs.api import BodyInfo, Buffer, Prepared
from storage.errors import BodyError

if TYPE_CHECKING:
    from broker.topics.partition import Partition

# A larger set is stored as several batches, cut between messages, so that reading one message never
# loads a set of 100 MB. What clients send by default stays whole.
APPEND_BYTES_MAX = 1024 * 1024
# Checking and stamping so much takes about a millisecond; then others get their turn.
BYTES_PER_TURN = 256 * 1024
# Unpacking and packing so much again takes milliseconds, which a thread may have.
THREAD_BYTES_MIN = 32 * 1024

ENTRY = struct.Struct(">qi")  # offset, size of the message that follows

_PreparedAt = tuple[Prepared, int]  # a checked set, and the base offset that is stamped into it


async def produce(context: Context, request: ProduceRequest) -> Answer | None:
    """Append every set. With acks 0 there is no answer; acks above 1 count as 1, below -1 as -1.

    No client hangs on replicas that a single broker does not have. All acks but 0 mean "on disk".
    """
    topics: dict[bytes | None, dict[int, Produced]] = {}
    ticket = failed = done = 0
    for name, sets in request.topics.items():
        results = topics[name] = {}
        for index, message_set in sets.items():
            if done >= BYTES_PER_TURN:
                await trio.lowlevel.checkpoint()
                done = 0
            results[index], needed = await _produce_set(context, name, index, message_set)
            ticket = max(ticket, needed)
            failed += results[index].error != Code.NONE
            done += len(message_set)
    context.written_ticket = max(context.written_ticket, ticket)
    if request.acks != 0:
        return Answer(ProduceReply(topics), ticket)
    if failed:  # The only way to tell such a client, which then asks for metadata anew.
        raise EndConnection(f"produce with acks 0 failed for {failed} partitions")
    return None


async def _produce_set(
    context: Context, name: bytes | None, index: int, message_set: memoryview
) -> tuple[Produced, int]:
    """What became of one set, and the ticket that its answer waits for."""
    try:
        partition = context.partition(name, index)
        early = await _prepared_early(context, partition, message_set)
        return _append(context, partition, message_set, early)
    except BodyError as error:
        return Produced(context.refused(broker_error(error)), -1), 0
    except BrokerError as error:
        return Produced(context.refused(error), -1), 0


def _prepare(context: Context, message_set: memoryview, base_offset: int) -> _PreparedAt:
    options = context.options
    prepared = kafka.prepare(
        message_set,
        base_offset,
        context.broker.now_us(),
        message_bytes_max=options.message_bytes_max,
        inflated_bytes_max=options.inflated_bytes_max,
    )
    return prepared, base_offset


async def _prepared_early(
    context: Context, partition: Partition, message_set: memoryview
) -> _PreparedAt | None:
    """A large compressed set, prepared in a thread for where the log ends now; None for others."""
    if len(message_set) < THREAD_BYTES_MIN or not kafka.is_compressed(message_set):
        return None
    return await trio.to_thread.run_sync(_prepare, context, message_set, partition.next_offset)


def _append(
    context: Context, partition: Partition, message_set: memoryview, early: _PreparedAt | None
) -> tuple[Produced, int]:
    # Atomic: no await between reading the base offset and the last append.
    base_offset = partition.next_offset
    if early is None or early[1] != base_offset:  # Others appended meanwhile: wrong offsets.
        early = _prepare(context, message_set, base_offset)
    prepared, _ = early
    info = prepared.info
    append_us = context.broker.now_us()
    if not info.record_count:
        return Produced(Code.NONE, base_offset if prepared.empty_compressed else -1), 0
    ticket = 0
    for body, piece_info in pieces(prepared.body, info, base_offset):
        appended = partition.append(
            [body], piece_info, body_format=kafka.KAFKA.format, append_us=append_us
        )
        ticket = appended.ticket
    context.broker.metrics.records_in(
        PROTOCOL, partition.topic.name.full, info.record_count, len(prepared.body)
    )
    return Produced(Code.NONE, base_offset), ticket


def pieces(body: Buffer, info: BodyInfo, base_offset: int) -> Iterator[tuple[Buffer, BodyInfo]]:
    """A stamped body in parts of at most APPEND_BYTES_MAX or one entry, with what each holds."""
    end = len(body)
    if end <= APPEND_BYTES_MAX:
        yield body, info
        return
    view = memoryview(body)
    start, first = 0, base_offset
    while start < end:
        stop = _piece_end(view, start)
        after = base_offset + info.record_count
        if stop < end:
            after = ENTRY.unpack_from(view, stop)[0]
        yield view[start:stop], BodyInfo(after - first, flags=info.flags)
        start, first = stop, after


def _piece_end(view: memoryview, start: int) -> int:
    """Where the last entry ends that fits a piece beginning at `start`; at least one does."""
    limit = min(start + APPEND_BYTES_MAX, len(view))
    unpack = ENTRY.unpack_from
    stop = start + ENTRY.size + unpack(view, start)[1]
    while stop < limit:
        following = stop + ENTRY.size + unpack(view, stop)[1]
        if following > limit:
            break
        stop = following
    return int(stop)
