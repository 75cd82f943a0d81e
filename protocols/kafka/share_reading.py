"""Takes records from the queue of a share group's partition, as record batches. Knows no request.

The records are read first; then the queue holds those that are to be delivered later, and the
member locks those that are still free. Batches without a record for the member are left out. Other
records in a batch are for other consumers: the client leaves them out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.broker.delivery.consumer_attach import join
from braidlog.broker.delivery.share_queue import QueueDispatcher
from braidlog.broker.errors import SubscriptionBusy
from braidlog.broker.reading.times import first_not_before
from braidlog.broker.reading.transcode import read_steps
from braidlog.broker.reading.turn import Turn
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import settings_of
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.share_sessions import ShareConsumer, ShareSession
from braidlog.protocols.kafka.wire.share_fetch import AcquiredRecords
from braidlog.storage.formats.api import Buffer, Part
from braidlog.storage.formats.kafka.record_batches import HEAD, KAFKA_BATCHES, PREFIX

if TYPE_CHECKING:
    from braidlog.broker.delivery.locks import Lock
    from braidlog.broker.topics.partition import Partition
    from braidlog.protocols.kafka.assignors import Place
    from braidlog.protocols.kafka.context import KafkaContext
    from braidlog.protocols.kafka.messages import Leader

READ_BYTES_MIN, READ_BYTES_MAX = 16 * 1024, 1024 * 1024
FIRST_READ_BYTES = 64 * 1024  # While the size of the partition's records is unknown.
READ_US = 15  # The fixed cost of a read.
# Of delayed records that a fetch passes; then the fetch looks at its other partitions, and at the
# time.
PASSED_BYTES_MAX: Final = 4 * 1024 * 1024
DELTA: Final = struct.Struct(">i")
DELTA_POS = 23  # Of the last offset, from the base offset on.


@dataclass(slots=True)
class ShareRoom:
    """Room in an answer."""

    records: int
    size: int
    is_exact: bool

    @property
    def is_full(self) -> bool:
        """True if the answer takes no more records."""
        return self.records <= 0 or self.size <= 0


@dataclass(slots=True)
class ShareRead:
    """Records of a partition for a member."""

    code: Code = Code.NONE
    message: bytes | None = None
    parts: list[Part] = field(default_factory=list)
    acquired: list[AcquiredRecords] = field(default_factory=list)
    leader: Leader | None = None  # named with an error


@dataclass(slots=True)
class BatchPlace:
    """A record batch in a part of a read."""

    base: int
    end: int
    part: Buffer
    start_pos: int
    end_pos: int


async def attached(context: KafkaContext, session: ShareSession, place: Place) -> ShareConsumer:
    """Return the session's consumer of a partition, attached to the queue. Raises BrokerError."""
    topic = context.topic_with_id(place[0])
    partition = topic.partition(place[1])
    name = session.key[0]
    context.check_group(name, topic.name)
    consumer, of_topic = session.consumers.get(place), topic.client_limits
    if consumer is not None and consumer.is_attached and consumer.partition is partition:
        if consumer.topic_limits is not of_topic and consumer.dispatcher is not None:
            consumer.topic_limits = of_topic
            consumer.dispatcher.share_limits = settings_of(context, name).limits(
                context.names, topic
            )
        return consumer
    if consumer is not None:
        consumer.leave()
    consumer = session.consumers[place] = ShareConsumer(session, partition)
    broker = context.broker
    partition.check_here()
    subscription = broker.subscriptions.open(topic, name)
    settings = settings_of(context, name)

    dated = await _first_of_age(context, partition, settings.start_age_us)

    def initial(partition: Partition) -> int:
        if dated is not None:
            return dated
        return partition.log_start_offset if settings.starts_early else partition.high_watermark

    dispatcher = await join(
        broker, consumer, partition, subscription, SubscriptionKind.SHARED, initial
    )
    if not isinstance(dispatcher, QueueDispatcher):
        raise SubscriptionBusy(f"{name!r} is not a queue")
    dispatcher.share_limits = settings.limits(context.names, topic)
    consumer.dispatcher, consumer.topic_limits = dispatcher, of_topic
    if session.is_ended:
        consumer.leave()
    return consumer


async def _first_of_age(
    context: KafkaContext, partition: Partition, age_us: int | None
) -> int | None:
    """Return the offset of the first record that is at most so old; None: there is none, or no age
    decides. Raises BrokerError.
    """
    if age_us is None:
        return None
    first = await first_not_before(partition, max(context.broker.now_us() - age_us, 0))
    return None if first is None else first[0]


def take_records(
    context: KafkaContext, consumer: ShareConsumer, room: ShareRoom, held: OutputReservation
) -> Steps[ShareRead | None]:
    """Take records of a partition, as far as there is room; None: there are none. Raises
    BrokerError.
    """
    dispatcher = consumer.dispatcher
    if dispatcher is None or not consumer.is_attached:
        return None
    read = ShareRead()
    read_end = 0  # Other members may free records below meanwhile: the next fetch takes those.
    passed_bytes = 0
    turn = Turn()
    budget = context.connection.outbox.budget
    while not room.is_full and not dispatcher.is_slowed:
        if not consumer.is_attached:
            return None  # A change of the topic's settings has ended the turn.
        position = dispatcher.first_offered()
        if position is None or position < read_end:
            break
        yield from turn.give_way(READ_US)
        wanted = _read_bytes(consumer, room)
        with budget.reserve_now(wanted) as memory:
            result = yield from read_steps(
                consumer.partition,
                KAFKA_BATCHES,
                position,
                bytes_max=max(memory.size, 1),
                trusts_memory=True,
                turn=turn,
                memory=memory,
            )
            if not consumer.is_attached:
                return None  # A seek meanwhile has ended the turn.
            batches = list(_batches(result.in_memory))
            end = batches[-1].end if batches else result.next_offset
            if has_delays := result.has_delays or dispatcher.reads_header:
                yield from dispatcher.hold_early(position, end, memory)
                if not consumer.is_attached:
                    return None
            if not batches:
                if result.next_offset == position:
                    break
                dispatcher.pass_hidden(position, result.next_offset)
                continue
            locks = dispatcher.acquire(
                consumer,
                position,
                [(batch.base, batch.end) for batch in batches],
                room.records,
                is_exact=room.is_exact or not result.as_stored,
            )
            read_end = end
            if not locks:
                passed_bytes += result.size
                if not has_delays or passed_bytes >= PASSED_BYTES_MAX:
                    break
                continue
            size = _add(read, batches, locks)
            held.keep(held.size + size)
        records = sum(lock.end - lock.first for lock in locks)
        consumer.record_bytes = result.size / max(end - batches[0].base, 1)
        room.records -= records
        room.size -= size
        dispatcher.count_delivered(records, size)
        consumer.bytes_out += size
        name = consumer.partition.metrics_name
        context.broker.metrics.records_out(PROTOCOL, name, records, size)
    return read if read.acquired else None


def _read_bytes(consumer: ShareConsumer, room: ShareRoom) -> int:
    """Return how many bytes to read for the records that are still wanted."""
    if not consumer.record_bytes:
        return min(room.size, FIRST_READ_BYTES)
    wanted = int(consumer.record_bytes * room.records)
    return min(room.size, max(READ_BYTES_MIN, min(wanted, READ_BYTES_MAX)))


def _batches(parts: Sequence[Buffer]) -> Iterator[BatchPlace]:
    """Yield the record batches of a read."""
    for part in parts:
        pos, size = 0, len(part)
        while pos + HEAD.size <= size:  # hot: see make bench
            base, length = PREFIX.unpack_from(part, pos)
            end = base + DELTA.unpack_from(part, pos + DELTA_POS)[0] + 1
            end_pos = pos + PREFIX.size + length
            yield BatchPlace(base, end, part, pos, end_pos)
            pos = end_pos


def _add(read: ShareRead, batches: Sequence[BatchPlace], locks: Sequence[Lock]) -> int:
    """Add the batches that have locked records; return their size."""
    size, number = 0, 0
    for batch in batches:
        while number < len(locks) and locks[number].end <= batch.base:
            number += 1
        if number == len(locks):
            break
        if locks[number].first >= batch.end:
            continue
        whole = batch.start_pos == 0 and batch.end_pos == len(batch.part)
        part = batch.part if whole else memoryview(batch.part)[batch.start_pos : batch.end_pos]
        read.parts.append(part)
        size += len(part)
    for lock in locks:
        last = read.acquired[-1] if read.acquired else None
        is_next = last is not None and last.last_offset + 1 == lock.first
        if is_next and last is not None and last.delivery_count == lock.count:
            last.last_offset = lock.end - 1
        else:
            read.acquired.append(
                AcquiredRecords(
                    first_offset=lock.first, last_offset=lock.end - 1, delivery_count=lock.count
                )
            )
    return size
