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
from broker.steps import Steps
from protocols.kafka.context import Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.keys import refuse_keyless
from protocols.kafka.messages import Produced, ProduceReply, ProduceRequest
from protocols.kafka.names import PROTOCOL
from protocols.kafka.sequences import judge
from storage.codecs import kafka_batches, kafka_timed
from storage.codecs import kafka_prepare as kafka
from storage.codecs.api import BodyInfo, Buffer, Codec, Prepared
from storage.codecs.kafka import KAFKA
from storage.codecs.kafka_batches import KAFKA_BATCHES
from storage.codecs.kafka_layout import SET_MESSAGES_MAX
from storage.errors import BodyError, RecordTooLarge, TooManyRecords

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from broker.topics.producer_memory import SequenceTable
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


def produce(context: Context, request: ProduceRequest) -> Steps[Answer | None]:
    """Append every set. With acks 0 there is no answer; acks above 1 count as 1, below -1 as -1.

    No client hangs on replicas that a single broker does not have. All acks but 0 mean "on disk".
    """
    if request.transactional_id is not None:
        refused = Produced(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
        return Answer(
            ProduceReply(
                {name: dict.fromkeys(sets, refused) for name, sets in request.topics.items()}
            )
        )
    topics: dict[bytes | None, dict[int, Produced]] = {}
    producing = _Producing(context)
    failed = done = 0
    for name, sets in request.topics.items():
        results = topics[name] = {}
        for index, message_set in sets.items():
            if done >= BYTES_PER_TURN:
                yield trio.lowlevel.checkpoint()
                done = 0
            results[index] = yield from producing.append(name, index, message_set)
            failed += results[index].error != Code.NONE
            done += len(message_set) + SET_COST_BYTES
    context.written_ticket = max(context.written_ticket, producing.ticket)
    if request.acks != 0:
        return Answer(ProduceReply(topics), producing.ticket)
    if failed:  # The only way to tell such a client, which then asks for metadata again.
        raise EndConnection(f"produce with acks 0 failed for {failed} partitions")
    return None


class _Producing:
    """One request under way."""

    def __init__(self, context: Context) -> None:
        self.ticket = 0  # the answer waits for this
        self._context = context
        self._message_bytes_max = context.options.message_bytes_max
        self._batch_bytes_max = context.options.batch_bytes_max
        self._inflated_left = context.options.inflated_bytes_max
        self._version = context.version

    def append(self, name: bytes | None, index: int, message_set: memoryview) -> Steps[Produced]:
        """What became of one set."""
        context = self._context
        try:
            partition = context.partition(name, index)
            magic = magic_of(message_set)
            if partition.wants_keys:
                refused = yield from refuse_keyless(message_set, magic, self._version)
                if refused is not None:
                    return refused
            if magic == kafka_batches.MAGIC:
                return (yield from self._append_batches(partition, message_set))
            if magic == kafka_timed.MAGIC:
                return (yield from self._append_timed(partition, message_set))
            if len(message_set) <= BYTES_PER_TURN:
                checked = kafka.check(message_set, partition.next_offset, self._message_bytes_max)
                _check_count(checked)
            else:
                checked = yield from self._check(partition, message_set)
            if checked is None:
                return (yield from self._append_compressed(partition, message_set))
            return self._store(partition, KAFKA, kafka.stamp(checked, partition.next_offset))
        except BodyError as error:
            return Produced(context.refused(to_broker_error(error)), -1)
        except BrokerError as error:
            return Produced(context.refused(error), -1)

    def _check(self, partition: Partition, message_set: memoryview) -> Steps[Messages | None]:
        """The messages of a large set, None where one is compressed. Others get their turn
        meanwhile.
        """
        base_offset, limit = partition.next_offset, self._message_bytes_max
        checked: Messages | None = None
        for so_far in kafka.check_pieces(message_set, base_offset, limit, BYTES_PER_TURN):
            checked = so_far
            _check_count(so_far)
            yield trio.lowlevel.checkpoint()
        return checked

    def _append_compressed(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        if len(message_set) <= INLINE_INFLATED_MAX:
            try:
                messages = self._unwrap(message_set, INLINE_INFLATED_MAX)
            except RecordTooLarge:
                pass  # It is larger than it looks, if it is not too large at all.
            else:
                packed = self._pack(messages, partition.next_offset)
                return self._store(partition, KAFKA, packed)
        produced: Produced = yield self._append_in_thread(partition, message_set)
        return produced

    async def _append_in_thread(self, partition: Partition, message_set: memoryview) -> Produced:
        async with partition.lane:  # Another's append would make what is packed here useless.
            messages = await run_unpacking(lambda: self._unwrap(message_set, self._inflated_left))
            return await self._pack_and_store(partition, messages)

    async def _pack_and_store(self, partition: Partition, messages: Messages) -> Produced:
        for _ in range(PACK_TRIES_MAX):
            base_offset = partition.next_offset
            prepared = await run_unpacking(lambda: self._pack(messages, partition.next_offset))
            if base_offset == partition.next_offset:
                return self._store(partition, KAFKA, prepared)
        # Those who do not pack append all the time: what needs no packing is as quick as they are.
        return self._store(partition, KAFKA, kafka.stamp(messages, partition.next_offset))

    def _append_batches(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        """Store a batch as it is; one that its producer sent before is there already."""
        known: SequenceTable | None = None
        if kafka_batches.has_producer(message_set):
            known = partition.known_sequences
            if known is None:
                known = yield partition.sequences()
        # Atomic: no await until the batch is noted among its producer's.
        prepared = kafka_batches.prepare(
            message_set, partition.next_offset, message_bytes_max=self._batch_bytes_max
        )
        if known is not None:
            found = judge(known.find(prepared.info.producer_id), prepared.info)
            if isinstance(found, Code):
                self._context.count_error(found)
                return Produced(found, -1)
            if found is not None:
                self.ticket = max(self.ticket, partition.appended_ticket)
                start = partition.log_start_offset
                return Produced(Code.NONE, found.base_offset, log_start_offset=start)
        return self._store(partition, KAFKA_BATCHES, prepared)

    def _append_timed(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        """Format 1 is stored as format 2, which has a place for its times."""

        def convert() -> tuple[bytearray, int]:
            found, size = kafka_timed.records(
                message_set, self._message_bytes_max, self._inflated_left, SET_MESSAGES_MAX
            )
            for offset, record in enumerate(found):
                record.offset = offset
            return bytearray(KAFKA_BATCHES.encode(found, 0)), size

        if len(message_set) <= INLINE_INFLATED_MAX and not kafka_timed.is_compressed(message_set):
            body, size = convert()
        else:
            body, size = yield run_unpacking(convert)
        self._inflated_left -= size
        if body:
            kafka_batches.rebase(body, partition.next_offset)
        return self._store(partition, KAFKA_BATCHES, Prepared(body, KAFKA_BATCHES.inspect(body)))

    def _unwrap(self, message_set: memoryview, inflated_max: int) -> Messages:
        limit = min(inflated_max, self._inflated_left)
        messages = kafka.unwrap(message_set, self._message_bytes_max, limit)
        self._inflated_left -= len(messages.data)
        _check_count(messages)
        return messages

    def _pack(self, messages: Messages, base_offset: int) -> Prepared:
        return kafka.pack(messages, base_offset, self._message_bytes_max)

    def _store(self, partition: Partition, codec: Codec, prepared: Prepared) -> Produced:
        # Atomic: no await between reading the base offset and the append.
        context, info = self._context, prepared.info
        base_offset = partition.next_offset
        if not info.record_count:
            return Produced(Code.NONE, base_offset if prepared.empty_compressed else -1)
        append_us = context.broker.now_us()
        cut: list[tuple[Buffer, BodyInfo]] = []
        if len(prepared.body) > APPEND_BYTES_MAX:
            cut = list(pieces(prepared.body, info, base_offset))
        if len(cut) < 2:
            appended = partition.append(
                [prepared.body], info, body_format=codec.format, append_us=append_us
            )
        else:  # All of it or nothing: the answer speaks of the whole set.
            if codec is KAFKA_BATCHES:
                cut = [(body, codec.inspect(body)) for body, _ in cut]
            appended = partition.append_all(cut, body_format=codec.format, append_us=append_us)
        self.ticket = max(self.ticket, appended.ticket)
        context.broker.metrics.records_in(
            PROTOCOL, partition.topic.name.full, info.record_count, len(prepared.body)
        )
        return Produced(Code.NONE, base_offset, log_start_offset=partition.log_start_offset)


def _check_count(messages: Messages | None) -> None:
    """Raises TooManyRecords."""
    if messages is not None and messages.count > SET_MESSAGES_MAX:
        raise TooManyRecords("messages", SET_MESSAGES_MAX)


def magic_of(message_set: memoryview) -> int:
    """The format of a set's first message, whatever the version of its request (some clients send
    the newest in the oldest); 0 for a set without one.
    """
    pos = kafka_batches.MAGIC_POS
    return message_set[pos] if len(message_set) > pos else 0


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
