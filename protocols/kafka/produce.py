"""Produce: appends message sets to the log. Knows only the bytes of the sets that are cut."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.errors import BrokerError
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.steps import Steps
from braidlog.broker.server.endings import EndConnection
from braidlog.broker.topics.producer_memory import StoredBatch
from braidlog.protocols.kafka.context import Answer, Context
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.keys import refuse_keyless
from braidlog.protocols.kafka.messages import Produced, ProduceReply, ProduceRequest
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.sequences import judge
from braidlog.storage.errors import BodyError, RecordTooLarge, TooManyRecords
from braidlog.storage.formats.api import BodyInfo, Buffer, Codec, Prepared
from braidlog.storage.formats.kafka import messages_v1 as kafka_timed
from braidlog.storage.formats.kafka import record_batches as kafka_batches
from braidlog.storage.formats.kafka import set_prepare as kafka
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_layout import SET_MESSAGES_MAX

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.producer_memory import SequenceTable
    from braidlog.storage.formats.kafka.set_prepare import Messages

# A larger set is stored as several batches, cut between messages, so that reading one message never
# loads a set of 100 MB. What clients send by default stays whole.
APPEND_BYTES_MAX = 1024 * 1024
# Checking and stamping this much takes about a millisecond; then other tasks get a turn.
BYTES_PER_TURN = 256 * 1024
SET_COST_BYTES = 2048  # The fixed cost of a set, as bytes that take the same time.
# Sets that unpack to at most this are repacked inline, in less than two milliseconds; larger sets,
# in a thread.
INLINE_INFLATED_MAX = 64 * 1024
# A set is packed for the next offset, and again if another protocol's producer appended meanwhile.
# After this many tries it is stored unpacked.
PACK_TRIES_MAX = 4

ENTRY = struct.Struct(">qi")  # offset, size of the message that follows


# A set that may have to wait: the place of its result, and the steps that produce the result.
Pending = tuple[dict[int, Produced], int, Steps[Produced]]


def produce(
    context: Context, request: ProduceRequest
) -> Answer | Steps[Answer | None] | None:  # hot: see make bench
    """Append every set. With acks 0 there is no answer; acks above 1 count as 1, below -1 as -1.

    So no client waits for replicas, which do not exist. All acks but 0 wait for the topic's
    durability: "on disk", unless that is `written`.
    """
    if request.transactional_id is not None:
        refused = Produced(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
        return Answer(
            ProduceReply(
                {name: dict.fromkeys(sets, refused) for name, sets in request.topics.items()}
            )
        )
    producing = _Producing(context, request)
    pending = producing.append_sets()
    return producing.answer() if pending is None else producing.finish(pending)


class _Producing:
    """A request in progress."""

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self._ticket = 0  # the answer waits for this
        self._context = context
        self._options = context.options
        self._inflated_left = context.options.inflated_bytes_max
        self._version = context.version
        self._acks = request.acks
        self._sets = (
            (name, index, message_set)
            for name, sets in request.topics.items()
            for index, message_set in sets.items()
        )
        self._done_bytes = 0  # since the last turn of other tasks
        self._topics: dict[bytes | None, dict[int, Produced]] = {}

    def append_sets(self) -> Pending | None:
        """Append the remaining sets, up to a set that may have to wait; return None when all are
        done.
        """
        topics = self._topics
        for name, index, message_set in self._sets:
            results = topics.get(name)
            if results is None:
                results = topics[name] = {}
            if self._done_bytes >= BYTES_PER_TURN:
                return results, index, self._append_after_others(name, index, message_set)
            produced = self._append(name, index, message_set)
            if not isinstance(produced, Produced):
                return results, index, produced
            results[index] = produced
        return None

    def finish(self, pending: Pending | None) -> Steps[Answer | None]:
        """Append the rest of the request, and answer."""
        while pending is not None:
            results, index, steps = pending
            try:
                results[index] = yield from steps
            except (BodyError, BrokerError) as error:
                results[index] = self._refused(error)
            pending = self.append_sets()
        return self.answer()

    def answer(self) -> Answer | None:
        """Return the answer, once all sets are appended."""
        context = self._context
        if self._ticket > context.written_ticket:
            context.written_ticket = self._ticket
        if self._acks != 0:
            return Answer(ProduceReply(self._topics), self._ticket)
        results = [one for found in self._topics.values() for one in found.values()]
        failed = sum(one.error != Code.NONE for one in results)
        if failed:
            # Such a client notices only the end of the connection, and then asks for metadata
            # again. The connection ends when the other sets can be read: an empty answer waits for
            # that.
            context.connection.outbox.answer((), self._ticket)
            raise EndConnection(f"produce with acks 0 failed for {failed} partitions")
        return None

    def _append_after_others(
        self, name: bytes | None, index: int, message_set: memoryview
    ) -> Steps[Produced]:
        self._done_bytes = 0
        yield trio.lowlevel.checkpoint()
        produced = self._append(name, index, message_set)
        return produced if isinstance(produced, Produced) else (yield from produced)

    def _append(
        self, name: bytes | None, index: int, message_set: memoryview
    ) -> Produced | Steps[Produced]:
        """Append a set; return steps if something may have to wait."""
        self._done_bytes += len(message_set) + SET_COST_BYTES
        try:
            partition = self._context.partition(name, index)
            magic = magic_of(message_set)
            if partition.wants_keys:
                return self._append_keyed(partition, message_set, magic)
            return self._append_to(partition, message_set, magic)
        except (BodyError, BrokerError) as error:
            return self._refused(error)

    def _refused(self, error: BodyError | BrokerError) -> Produced:
        if isinstance(error, BodyError):
            error = to_broker_error(error)
        return Produced(self._context.refused(error), -1)

    def _append_keyed(
        self, partition: Partition, message_set: memoryview, magic: int
    ) -> Steps[Produced]:
        refused = yield from refuse_keyless(message_set, magic, self._version)
        if refused is not None:
            return refused
        produced = self._append_to(partition, message_set, magic)
        return produced if isinstance(produced, Produced) else (yield from produced)

    def _append_to(
        self, partition: Partition, message_set: memoryview, magic: int
    ) -> Produced | Steps[Produced]:
        if magic == kafka_batches.MAGIC:
            if not kafka_batches.has_producer(message_set):
                return self._store_batch(partition, message_set, None)
            known = partition.known_sequences
            if known is None:
                return self._append_after_look(partition, message_set)
            return self._store_batch(partition, message_set, known)
        if magic == kafka_timed.MAGIC:
            return self._append_timed(partition, message_set)
        if len(message_set) > BYTES_PER_TURN:
            return self._append_large(partition, message_set)
        prepared = kafka.prepare_plain(
            message_set, partition.next_offset, self._options.message_bytes_max
        )
        if prepared is None:
            return self._append_compressed(partition, message_set)
        return self._store(partition, KAFKA, prepared)

    def _append_large(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        checked = yield from self._check(partition, message_set)
        if checked is None:
            return (yield from self._append_compressed(partition, message_set))
        return self._store(partition, KAFKA, kafka.stamp(checked, partition.next_offset))

    def _check(self, partition: Partition, message_set: memoryview) -> Steps[Messages | None]:
        """Return the messages of a large set; None if a message is compressed. Other tasks get
        turns meanwhile.
        """
        base_offset, limit = partition.next_offset, self._options.message_bytes_max
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
                pass  # The set unpacks to more, and perhaps to too much: the thread checks.
            else:
                packed = self._pack(messages, partition.next_offset)
                return self._store(partition, KAFKA, packed)
        produced: Produced = yield self._append_in_thread(partition, message_set)
        return produced

    async def _append_in_thread(self, partition: Partition, message_set: memoryview) -> Produced:
        async with partition.lane:  # Another producer's append would invalidate the packed set.
            messages = await run_unpacking(lambda: self._unwrap(message_set, self._inflated_left))
            return await self._pack_and_store(partition, messages)

    async def _pack_and_store(self, partition: Partition, messages: Messages) -> Produced:
        for _ in range(PACK_TRIES_MAX):
            base_offset = partition.next_offset
            prepared = await run_unpacking(lambda: self._pack(messages, partition.next_offset))
            if base_offset == partition.next_offset:
                return self._store(partition, KAFKA, prepared)
        # Producers that need no packing keep appending first: without packing this is as quick.
        return self._store(partition, KAFKA, kafka.stamp(messages, partition.next_offset))

    def _append_after_look(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        known: SequenceTable = yield partition.sequences()
        return self._store_batch(partition, message_set, known)

    def _store_batch(
        self, partition: Partition, message_set: memoryview, known: SequenceTable | None
    ) -> Produced:
        """Store a batch unchanged, unless the batch is a repeat from its producer."""
        # Atomic: no await until the batch is noted in the producer's sequences.
        prepared = kafka_batches.prepare(
            message_set, partition.next_offset, message_bytes_max=self._options.batch_bytes_max
        )
        if known is not None:
            found = judge(known.find(prepared.info.producer_id), prepared.info)
            if found is Code.DUPLICATE_SEQUENCE or isinstance(found, StoredBatch):
                # A repeat counts as a success, too.
                self._ticket = max(self._ticket, partition.appended_ticket)
            if isinstance(found, Code):
                self._context.count_error(found)
                return Produced(found, -1)
            if found is not None:
                start = partition.log_start_offset
                return Produced(Code.NONE, found.base_offset, log_start_offset=start)
        return self._store(partition, KAFKA_BATCHES, prepared)

    def _append_timed(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        """Store format 1 as format 2, which has a field for the times."""

        def convert() -> tuple[bytearray, int]:
            found, size = kafka_timed.records(
                message_set, self._options.message_bytes_max, self._inflated_left, SET_MESSAGES_MAX
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
        messages = kafka.unwrap(message_set, self._options.message_bytes_max, limit)
        self._inflated_left -= len(messages.data)
        _check_count(messages)
        return messages

    def _pack(self, messages: Messages, base_offset: int) -> Prepared:
        return kafka.pack(messages, base_offset, self._options.message_bytes_max)

    def _store(self, partition: Partition, codec: Codec, prepared: Prepared) -> Produced:
        # Atomic: no await between reading the base offset and the append.
        context, info = self._context, prepared.info
        base_offset = partition.next_offset
        if not info.record_count:
            return Produced(Code.NONE, base_offset if prepared.empty_compressed else -1)
        append_us, body = context.broker.now_us(), prepared.body
        cut: Sequence[tuple[Buffer, BodyInfo]] = ()
        if len(body) > APPEND_BYTES_MAX:
            cut = list(pieces(body, info, base_offset))
        if len(cut) < 2:
            appended = partition.append([body], info, body_format=codec.format, append_us=append_us)
        else:  # All or nothing: the whole set has a single answer.
            if codec is KAFKA_BATCHES:
                cut = [(one, codec.inspect(one)) for one, _ in cut]
            appended = partition.append_all(cut, body_format=codec.format, append_us=append_us)
        if appended.ticket > self._ticket:
            self._ticket = appended.ticket
        context.broker.metrics.records_in(
            PROTOCOL, partition.figures_name, info.record_count, len(body)
        )
        return Produced(Code.NONE, base_offset, log_start_offset=partition.log_start_offset)


def _check_count(messages: Messages | None) -> None:
    """Check the number of messages. Raises TooManyRecords."""
    if messages is not None and messages.count > SET_MESSAGES_MAX:
        raise TooManyRecords("messages", SET_MESSAGES_MAX)


def magic_of(message_set: memoryview) -> int:
    """Return the format of a set's first message, whatever the request's version (some clients send
    the newest format in the oldest request); 0 for a set without messages.
    """
    pos = kafka_batches.MAGIC_POS
    return message_set[pos] if len(message_set) > pos else 0


def pieces(body: Buffer, info: BodyInfo, base_offset: int) -> Iterator[tuple[Buffer, BodyInfo]]:
    """Split a stamped body into parts of at most APPEND_BYTES_MAX or a single entry, with each
    part's contents.
    """
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
    """Return the end of the last entry that fits a piece beginning at `start`; the first always
    fits.
    """
    limit = min(start + APPEND_BYTES_MAX, len(view))
    unpack = ENTRY.unpack_from
    stop = start + ENTRY.size + unpack(view, start)[1]
    while stop < limit:
        following = stop + ENTRY.size + unpack(view, stop)[1]
        if following > limit:
            break
        stop = following
    return int(stop)
