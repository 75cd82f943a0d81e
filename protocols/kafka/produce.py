"""Produce: message sets into the log. Knows no bytes but those of the sets it cuts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from broker.commit.storage_errors import to_broker_error
from broker.errors import BrokerError
from broker.reading.unpacking import run_unpacking
from broker.server.endings import EndConnection
from protocols.kafka.context import PROTOCOL, Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.messages import Produced, ProduceReply, ProduceRequest
from storage.codecs import kafka_prepare as kafka
from storage.codecs.api import BodyInfo, Buffer, Prepared
from storage.codecs.kafka import KAFKA
from storage.errors import BodyError, RecordTooLarge

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from storage.codecs.kafka_prepare import Messages

# A larger set is stored as several batches, cut between messages, so that reading one message never
# loads a set of 100 MB. What clients send by default stays whole.
APPEND_BYTES_MAX = 1024 * 1024
# Checking and stamping so much takes about a millisecond; then others get their turn.
BYTES_PER_TURN = 256 * 1024
SET_COST_BYTES = 2048  # What a set takes however little is in it: as long as so many bytes.
# What unpacks to no more is packed again in less than two milliseconds; a thread has the rest.
INLINE_INFLATED_MAX = 64 * 1024
# A set is packed for the offset that comes next. So often it is packed again because another
# protocol's producer appended meanwhile; then it is stored as it is, unpacked.
PACK_TRIES_MAX = 4

ENTRY = struct.Struct(">qi")  # offset, size of the message that follows


async def produce(context: Context, request: ProduceRequest) -> Answer | None:
    """Append every set. With acks 0 there is no answer; acks above 1 count as 1, below -1 as -1.

    No client hangs on replicas that a single broker does not have. All acks but 0 mean "on disk".
    """
    topics: dict[bytes | None, dict[int, Produced]] = {}
    producing = _Producing(context)
    failed = done = 0
    for name, sets in request.topics.items():
        results = topics[name] = {}
        for index, message_set in sets.items():
            if done >= BYTES_PER_TURN:
                await trio.lowlevel.checkpoint()
                done = 0
            results[index] = await producing.append(name, index, message_set)
            failed += results[index].error != Code.NONE
            done += len(message_set) + SET_COST_BYTES
    context.written_ticket = max(context.written_ticket, producing.ticket)
    if request.acks != 0:
        return Answer(ProduceReply(topics), producing.ticket)
    if failed:  # The only way to tell such a client, which then asks for metadata anew.
        raise EndConnection(f"produce with acks 0 failed for {failed} partitions")
    return None


class _Producing:
    """One request under way."""

    def __init__(self, context: Context) -> None:
        self.ticket = 0  # the answer waits for this
        self._context = context
        self._message_bytes_max = context.options.message_bytes_max
        self._inflated_left = context.options.inflated_bytes_max

    async def append(self, name: bytes | None, index: int, message_set: memoryview) -> Produced:
        """What became of one set."""
        context = self._context
        try:
            partition = context.partition(name, index)
            checked = await self._check(partition, message_set)
            if checked is None:
                return await self._append_compressed(partition, message_set)
            return self._store(partition, kafka.stamp(checked, partition.next_offset))
        except BodyError as error:
            return Produced(context.refused(to_broker_error(error)), -1)
        except BrokerError as error:
            return Produced(context.refused(error), -1)

    async def _check(self, partition: Partition, message_set: memoryview) -> Messages | None:
        """The messages of a set, None where one is compressed. Others get their turn meanwhile."""
        base_offset, limit = partition.next_offset, self._message_bytes_max
        checked: Messages | None = None
        for so_far in kafka.check_pieces(message_set, base_offset, limit, BYTES_PER_TURN):
            checked = so_far
            if len(message_set) > BYTES_PER_TURN:
                await trio.lowlevel.checkpoint()
        return checked

    async def _append_compressed(self, partition: Partition, message_set: memoryview) -> Produced:
        if len(message_set) <= INLINE_INFLATED_MAX:
            try:
                messages = self._unwrap(message_set, INLINE_INFLATED_MAX)
            except RecordTooLarge:
                pass  # It is larger than it looks, if it is not too large at all.
            else:
                return self._store(partition, self._pack(messages, partition.next_offset))
        async with partition.lane:  # Another's append would make what is packed here useless.
            messages = await run_unpacking(lambda: self._unwrap(message_set, self._inflated_left))
            return await self._pack_and_store(partition, messages)

    async def _pack_and_store(self, partition: Partition, messages: Messages) -> Produced:
        for _ in range(PACK_TRIES_MAX):
            base_offset = partition.next_offset
            prepared = await run_unpacking(lambda: self._pack(messages, partition.next_offset))
            if base_offset == partition.next_offset:
                return self._store(partition, prepared)
        # Those who do not pack append all the time: what needs no packing is as quick as they are.
        return self._store(partition, kafka.stamp(messages, partition.next_offset))

    def _unwrap(self, message_set: memoryview, inflated_max: int) -> Messages:
        limit = min(inflated_max, self._inflated_left)
        messages = kafka.unwrap(message_set, self._message_bytes_max, limit)
        self._inflated_left -= len(messages.data)
        return messages

    def _pack(self, messages: Messages, base_offset: int) -> Prepared:
        return kafka.pack(messages, base_offset, self._message_bytes_max)

    def _store(self, partition: Partition, prepared: Prepared) -> Produced:
        # Atomic: no await between reading the base offset and the append.
        context, info = self._context, prepared.info
        base_offset = partition.next_offset
        if not info.record_count:
            return Produced(Code.NONE, base_offset if prepared.empty_compressed else -1)
        append_us = context.broker.now_us()
        cut = list(pieces(prepared.body, info, base_offset))
        if len(cut) == 1:
            appended = partition.append(
                [prepared.body], info, body_format=KAFKA.format, append_us=append_us
            )
        else:  # All of it or nothing: the answer speaks of the whole set.
            appended = partition.append_all(cut, body_format=KAFKA.format, append_us=append_us)
        self.ticket = max(self.ticket, appended.ticket)
        context.broker.metrics.records_in(
            PROTOCOL, partition.topic.name.full, info.record_count, len(prepared.body)
        )
        return Produced(Code.NONE, base_offset)


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
