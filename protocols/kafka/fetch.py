"""Fetch: reads many partitions and waits for enough data. Knows no bytes.

A waiting fetch sits in its handler, so everything behind it on its connection waits too, as in 0.8.
Records of any protocol wake it. What it has read into memory before is kept, not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from braidlog.broker.errors import BrokerError, InvalidRequest, OffsetOutOfRange, TopicNotFound
from braidlog.broker.reading.in_memory import all_in_memory
from braidlog.broker.reading.transcode import read_steps
from braidlog.broker.reading.turn import Turn
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import Steps, run
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import check_epoch, endpoints, leader_in
from braidlog.protocols.kafka.errors import Code, UnknownTopicId
from braidlog.protocols.kafka.large_requests import large_requests
from braidlog.protocols.kafka.messages import BY_ID_VERSION, Leader
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.schema import NO_UUID
from braidlog.protocols.kafka.wire.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from braidlog.storage.formats.api import Buffer, Part, StoredPart
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_layout import entry_bytes

if TYPE_CHECKING:
    from braidlog.broker.reading.result import ReadResult
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic
    from braidlog.storage.metadata.names import TopicName

# Bytes requested in a single read: a quarter of a millisecond.
FETCH_STEP_BYTES = 1024 * 1024
READ_BYTES_PER_US = 4096
READ_US = 15  # The fixed cost of a read.
# Partitions handled before other tasks get a turn: a millisecond or two.
PARTITIONS_PER_TURN = 500
# Bytes beyond the answer's room that are counted record by record, to check `bytes_min`.
COUNTED_BYTES_MAX = 1024 * 1024
# A larger number of parts, each smaller than this on average, is joined into a single part.
JOINED_PARTS_MIN, SMALL_PART_BYTES = 16, 1024
# The longest wait that is answered although the client has closed its sending side.
HALF_CLOSED_WAIT_S = 30.0
# From this version on, clients read record batches, format 2, and get whole batches.
BATCHES_VERSION = 4
# From this version on, the first message of an answer is whole, and order matters.
WHOLE_VERSION = 3
# From this version on, a refusal names the present leader, as in Kafka 4.3; requests name topics by
# their ids then.
LEADER_VERSION = 16
# Session epochs of fetches that name all their partitions. Others continue a session, which a
# client can only have from another broker that was at this address.
WHOLE_EPOCHS = (0, -1)


_Refusal = tuple[Code, Leader | None]
"""The error of a partition that cannot be read, and the leader that the refusal names."""


@dataclass(slots=True)
class PartitionFetch:
    """Progress of a fetch in a partition."""

    target: FetchPartition
    offset: int  # next offset to read
    partition: Partition
    refusal: _Refusal | None = None  # error of the partition
    parts: list[Part] = field(default_factory=list)
    size: int = 0
    records: int = 0
    full: bool = False  # no more can be added
    available: int = 0  # bytes in the log that satisfy `bytes_min`, known once `full` is set
    counted_to: int = -1  # end offset of the counted bytes; -1: not counted yet


def fetch(context: KafkaContext, request: FetchRequest) -> Steps[KafkaAnswer]:
    """Answer once there are `min_bytes` or an error, at the latest after `max_wait_ms`.

    Every replica id reads as a consumer: there are no followers. A follower's own fields and the
    isolation level are not used: there are no transactions. Sessions are declined.
    """
    if request.session_epoch not in WHOLE_EPOCHS:
        context.count_error(Code.FETCH_SESSION_NOT_FOUND)
        return KafkaAnswer(FetchResponse(error_code=Code.FETCH_SESSION_NOT_FOUND))
    end_s = trio.current_time() + request.max_wait_ms / 1000
    if context.has_own_writes:
        yield context.own_writes()
    topics: dict[bytes | None, dict[int, PartitionFetch | _Refusal]] = {}
    number = 0
    by_id = context.version >= BY_ID_VERSION
    for named in request.topics:
        key = named.topic_id if by_id else named.topic
        for target in named.partitions:  # Of a partition that is named twice the last counts.
            by_index = topics.setdefault(key, {})
            name = None
            try:
                topic = context.topic_with_id(named.topic_id) if by_id else context.topic(key)
                name = topic.name
                by_index[target.partition] = _begin(context, topic, target)
            except BrokerError as error:
                by_index[target.partition] = _refusal(context, error, name)
            number += 1
            if number % PARTITIONS_PER_TURN == 0:
                yield trio.lowlevel.checkpoint()
    every = [reading for by_index in topics.values() for reading in by_index.values()]
    with OutputReservation(context.connection.outbox.budget, 0) as held:
        fetching = _Fetching(context, request, every, held)
        yield from fetching.read_all()
        if request.max_wait_ms > 0 and not fetching.is_enough():
            yield fetching.wait(max(end_s - trio.current_time(), 0.0))
        reply = yield from _finish_all(context, topics)
    return KafkaAnswer(reply)


def _begin(context: KafkaContext, topic: Topic, target: FetchPartition) -> PartitionFetch:
    """Start reading a partition. Raises PartitionNotFound, FencedEpoch, UnknownEpoch."""
    partition = topic.partition(target.partition)
    if target.current_leader_epoch >= 0:
        check_epoch(context, topic.name, target.current_leader_epoch)
    offset = target.fetch_offset
    if context.walked:
        walked = context.walked.get(partition.partition_id)
        if walked is not None and walked[0] == offset:
            offset = walked[1]
    return PartitionFetch(target, offset, partition)


def _refusal(context: KafkaContext, error: BrokerError, name: TopicName | None) -> _Refusal:
    if name is None or context.version < LEADER_VERSION:
        return context.refused(error), None
    return context.refused(error), leader_in(context, error, name)


class _Fetching:
    """A request in progress."""

    def __init__(
        self,
        context: KafkaContext,
        request: FetchRequest,
        every: Sequence[PartitionFetch | _Refusal],
        held: OutputReservation,
    ) -> None:
        """Take `held`, the answer's share of the output budget."""
        version = context.version
        self._context = context
        self._readings = [reading for reading in every if isinstance(reading, PartitionFetch)]
        self._is_refused = len(self._readings) < len(every)  # Some partition cannot be read at all.
        self._held = held
        self._bytes_min = request.min_bytes
        self._codec = KAFKA if version < BATCHES_VERSION else KAFKA_BATCHES
        self._gives_whole = version >= WHOLE_VERSION
        self._cuts = version < BATCHES_VERSION
        self._bytes_max = min(context.options.fetch_bytes_max, max(request.max_bytes, 1))
        self._may_wait = False  # Once the fetch may wait, it holds no file.
        self._in_place = False  # If True, `read_all` leaves large sets in their files.
        self._cold_in_place = False  # The same for sets that were not in memory.
        self._turn = Turn()
        self._room = 0  # bytes that `read_all` may still add to the answer
        self._memory: OutputReservation | None = None  # Reserved for what `read_all` adds.

    @property
    def _is_alone(self) -> bool:
        """True while the answer is empty."""
        return not any(reading.size for reading in self._readings)

    def is_enough(self) -> bool:
        """Return True if the fetch should answer now: on an error, with enough bytes, or for an
        empty request.
        """
        if self._is_refused:
            return True
        size = 0
        for reading in self._readings:
            if reading.refusal is not None:
                return True
            size += max(reading.size, reading.available)
        return size >= self._bytes_min or not self._readings

    async def wait(self, seconds: float) -> None:
        """Read on until there is enough data, or until the timeout, a rebalance or a large request
        ends the wait.

        A client that closes its sending side meanwhile is answered if the wait is short. A client
        that is gone looks the same: a long wait would hold memory for it, and a group has to learn
        soon that its member is gone.
        """
        context = self._context
        if seconds > HALF_CLOSED_WAIT_S or context.presence.is_used:
            await self._wait(seconds)
        else:
            with context.connection.answer_half_closed():
                await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        context = self._context
        broker = context.broker
        self._may_wait = True
        if self._forget_files():
            await run(self.read_all())
        with (
            large_requests().waiting_fetch(len(self._readings)),
            context.groups.polls.waiting(context.client, seconds),
        ):
            while not self.is_enough() and not broker.stopping.is_set():
                awaited = [
                    (
                        reading.partition,
                        reading.partition.high_watermark if reading.full else reading.offset,
                    )
                    for reading in self._readings
                ]
                await broker.wait_any(awaited)
                await run(self.read_all())

    def _forget_files(self) -> bool:
        """Drop parts that are still in files; a client's long wait must not hold files open. Return
        True if there were any.
        """
        had_files = False
        for reading in self._readings:
            if not all_in_memory(reading.parts):
                reading.parts, reading.size, reading.records = [], 0, 0
                reading.offset, reading.full = reading.target.fetch_offset, False
                reading.available, reading.counted_to = 0, -1
                had_files = True
        return had_files

    def read_all(self) -> Steps[None]:
        """Read what there is of every partition, within the answer's limit and the memory that is
        free for it.

        Each time another partition comes first, so that one that fills the answer does not starve
        the others; clients of version 3 and later choose the order themselves.
        """
        readings, held = self._readings, self._held
        first = 0
        if not self._gives_whole:
            self._context.fetch_turn += 1
            first = self._context.fetch_turn
        wanted = min(self._bytes_max - held.size, sum(map(_wanted, readings)))
        outbox = self._context.connection.outbox
        budget = outbox.budget
        if wanted > 0 and budget.is_spent(outbox.unsent_bytes):
            yield budget.wait_for_room(lambda: outbox.unsent_bytes)
        with budget.reserve_now(wanted) as room:
            self._room, self._memory = room.size, room
            is_large = room.size >= self._context.limits.in_place_bytes_min
            self._cold_in_place = outbox.sends_files and not self._may_wait
            self._in_place = is_large and self._cold_in_place
            for number in range(1, len(readings) + 1):
                reading = readings[(number - 1 + first) % len(readings)]
                if number % PARTITIONS_PER_TURN == 0:
                    yield trio.lowlevel.checkpoint()
                if reading.refusal is not None:
                    continue
                before = reading.size
                yield from self._read_on(reading, reading.partition)
                self._room -= reading.size - before
            held.keep(sum(reading.size for reading in readings))

    def _read_on(self, reading: PartitionFetch, partition: Partition) -> Steps[None]:
        try:
            if not reading.full:
                yield from self._read(reading, partition)
            if reading.full and reading.size < self._bytes_min:
                yield from self._count_available(reading, partition)
        except BrokerError as error:
            reading.full = True
            # Otherwise the next fetch begins at this offset and gets the error.
            if not reading.size:
                reading.refusal = _refusal(self._context, error, partition.topic.name)

    def _read(self, reading: PartitionFetch, partition: Partition) -> Steps[None]:
        """Read up to the present high watermark, or as far as there is room. Raises BrokerError."""
        if partition.removed:
            gone = UnknownTopicId if self._context.version >= BY_ID_VERSION else TopicNotFound
            raise gone(partition.topic.name.full)
        room = min(reading.target.partition_max_bytes - reading.size, self._room)
        # The present end: with busy writers, a moving end would never be reached.
        end = partition.high_watermark
        if reading.offset > end:
            raise OffsetOutOfRange(reading.offset, partition.log_start_offset, end)
        # At the end, a negative limit does not matter.
        bytes_max = reading.target.partition_max_bytes
        if reading.offset < end and bytes_max < 0:
            raise InvalidRequest(f"max_bytes is {bytes_max}, expected 0 or more")
        while reading.offset < end:
            if room <= 0 and not (self._gives_whole and self._is_alone):
                _close(reading, partition)
                return
            yield from self._turn.give_way(READ_US)
            wanted = min(max(room, 1), FETCH_STEP_BYTES)
            fills = self._context.broker.cut_batches if self._cuts and wanted == room else None
            result = yield from read_steps(
                partition,
                self._codec,
                reading.offset,
                bytes_max=wanted,
                fills=fills,
                in_place=self._in_place,
                cold_in_place=self._cold_in_place,
                trusts_memory=True,
                turn=self._turn,
                memory=self._memory,
            )
            if not result.parts and result.next_offset == reading.offset:
                return
            self._turn.add(result.size // READ_BYTES_PER_US)
            before = reading.size
            self._add(reading, result, room)
            if result.left_out and reading.offset == result.next_offset:  # The batch was skipped.
                name = partition.topic.name.full
                self._context.broker.metrics.left_out(PROTOCOL, name, result.left_out)
            room -= max(result.size, reading.size - before)
            if room <= 0 and reading.size and not self._gives_whole:
                reading.full = True
                return
            # Reading another batch as large as the last would be in vain. Stop, unless more room is
            # left than was used.
            is_last = result.parts and room < len(result.parts[-1]) and room <= reading.size
            if is_last and not self._cuts:
                room = 0

    def _count_available(self, reading: PartitionFetch, partition: Partition) -> Steps[None]:
        """Count what there is for this reader, whatever room it has: that satisfies `bytes_min`.

        Beyond COUNTED_BYTES_MAX, count what is stored: it differs by little. Raises BrokerError.
        """
        if reading.counted_to < 0:
            reading.counted_to = reading.target.fetch_offset
        end, enough = partition.high_watermark, min(self._bytes_min, COUNTED_BYTES_MAX)
        while reading.counted_to < end and reading.available < enough:
            yield from self._turn.give_way(READ_US)
            result = yield from read_steps(
                partition,
                self._codec,
                reading.counted_to,
                bytes_max=min(enough - reading.available, FETCH_STEP_BYTES),
                trusts_memory=True,
                turn=self._turn,
            )
            if result.next_offset == reading.counted_to:
                return
            self._turn.add(result.size // READ_BYTES_PER_US)
            reading.available += result.size
            reading.counted_to = result.next_offset
        if self._bytes_min > enough <= reading.available:
            reading.available += partition.bytes_between(reading.counted_to, end)
            reading.counted_to = end

    def _add(self, reading: PartitionFetch, result: ReadResult, room: int) -> None:
        """Take what was read if it fits, or a part of it if the client accepts cut messages. What
        is not taken comes first in one of the next answers.

        What is read first of a partition is always taken if it was converted from another format,
        or if it is alone in the answer to a client that reads batches.
        """
        limit = room
        if result.size > room:
            if self._cuts and result.as_stored and not reading.parts:
                limit = self._first_limit(reading, _first(result), room)
            elif not reading.parts and (self._is_alone or not result.as_stored):
                limit = result.size
        if result.size <= limit:
            reading.parts += _joined(result)
            reading.size += result.size
            reading.records += result.record_count
            # Also past batches that Kafka readers do not receive.
            reading.offset = result.next_offset
        elif self._cuts and limit > 0:  # A single part can exceed the requested size.
            reading.parts.append(memoryview(_first(result))[:limit])
            reading.size += limit
            reading.records += result.record_count * limit // result.size  # an estimate

    def _first_limit(self, reading: PartitionFetch, stored: Buffer, room: int) -> int:
        """Bytes to give of a stored set that comes first in its partition and is too large.

        At least its first message if the answer is empty so far; in versions 0 to 2 no more of it
        than the client asks for: a cut message tells the client to ask for more.
        """
        message = entry_bytes(stored)
        if message <= room:
            return room
        own_room = reading.target.partition_max_bytes
        if self._gives_whole:
            return message if self._is_alone else 0
        return min(message, own_room) if self._is_alone or own_room <= room else 0


def _first(result: ReadResult) -> Buffer:
    """Return the first part of a result larger than requested. Such a part is never in a file."""
    part = result.parts[0]
    assert not isinstance(part, StoredPart)
    return part


def _joined(result: ReadResult) -> list[Part]:
    """Return the parts read; many small parts are joined, as each object is several times as large
    as its bytes.
    """
    parts = result.parts
    is_small = len(parts) > JOINED_PARTS_MIN and result.size < len(parts) * SMALL_PART_BYTES
    if is_small and all_in_memory(parts):
        return [b"".join(parts)]
    return parts


def _wanted(reading: PartitionFetch) -> int:
    """Return the number of bytes that could still be added for a partition."""
    partition = reading.partition
    if reading.full or reading.offset == partition.high_watermark:
        return 0
    return max(reading.target.partition_max_bytes - reading.size, 0)


def _close(reading: PartitionFetch, partition: Partition) -> None:
    """Mark a partition as full although there is more to read. Raises BrokerError."""
    start, end = partition.log_start_offset, partition.high_watermark
    if not start <= reading.offset <= end:
        raise OffsetOutOfRange(reading.offset, start, end)
    reading.full = True


def _finish_all(
    context: KafkaContext, topics: dict[bytes | None, dict[int, PartitionFetch | _Refusal]]
) -> Steps[FetchResponse]:
    """Finish every reading, and return the answer; a version has either names or ids of topics."""
    responses: list[FetchableTopicResponse] = []
    leaders: list[Leader] = []
    number = 0
    for key, partitions in topics.items():
        done: list[PartitionData] = []
        for index, reading in partitions.items():
            if isinstance(reading, PartitionFetch):
                _finish(context, reading)
            done.append(_fetched(index, reading, leaders))
            number += 1
            if number % PARTITIONS_PER_TURN == 0:
                yield trio.lowlevel.checkpoint()
        topic = FetchableTopicResponse(topic=key, topic_id=key or NO_UUID, partitions=done)
        responses.append(topic)
    return FetchResponse(responses=responses, node_endpoints=endpoints(leaders, NodeEndpoint))


def _finish(context: KafkaContext, reading: PartitionFetch) -> None:
    """Count the returned records; remember how far an empty read got, for the next fetch."""
    partition, start = reading.partition, reading.target.fetch_offset
    if reading.size:
        context.broker.metrics.records_out(
            PROTOCOL, partition.metrics_name, reading.records, reading.size, partition.traffic
        )
    if reading.size == 0 and reading.refusal is None and reading.offset > start:
        context.note_walked(partition, start, reading.offset)
    elif context.walked:
        context.walked.pop(partition.partition_id, None)


def _fetched(
    index: int, reading: PartitionFetch | _Refusal, leaders: list[Leader]
) -> PartitionData:
    """Return a partition of the answer; add the leader that a refusal names."""
    if isinstance(reading, PartitionFetch):
        if reading.refusal is None:
            end = reading.partition.high_watermark
            return PartitionData(
                partition_index=index,
                high_watermark=end,
                last_stable_offset=end,
                log_start_offset=reading.partition.log_start_offset,
                aborted_transactions=None,
                records=reading.parts,
            )
        reading = reading.refusal
    code, leader = reading
    refused = PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None
    )
    if leader is not None:
        leaders.append(leader)
        refused.current_leader = LeaderIdAndEpoch(
            leader_id=leader.node_id, leader_epoch=leader.epoch
        )
    return refused
