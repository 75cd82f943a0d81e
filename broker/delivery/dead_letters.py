"""Dead letters: copies of records that a queue gives up, in another topic.

A record is copied, then acknowledged once the copy is durable: each record has at least a copy. A
copy names its origin in headers, as Pulsar's Java client writes them. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog
import trio

from braidlog.broker.delivery.retries import longer_wait
from braidlog.broker.errors import BrokerError, OffsetOutOfRange, TopicNotFound, UnreadableRecord
from braidlog.broker.reading.records import PlacedRecord, read_records
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.record import Header, Record
from braidlog.storage.formats.registry import codec_for

if TYPE_CHECKING:
    from braidlog.broker.commit.durability import CommitRounds
    from braidlog.broker.delivery.locking import LockingDispatcher
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.storage.metadata.names import TopicName

log = structlog.get_logger()

COPY_BYTES: Final = 1 << 20  # Read and appended together.
COPY_RECORDS: Final = 100
NO_FORMAT: Final = 0


@dataclass(slots=True, frozen=True)
class DeadLetterCopier:
    """Copies records to dead letter topics."""

    topics: TopicRegistry
    durability: CommitRounds
    now_us: Callable[[], int]
    _buried: set[LockingDispatcher] = field(default_factory=set, init=False)
    """Queues for which a task copies."""

    async def bury(self, dispatcher: LockingDispatcher) -> None:
        """Copy the records that a queue gives up, until none waits or the queue has no consumers.
        A failed copy is tried again: meanwhile the records are given to nobody. Returns at once
        while another call copies for the queue.
        """
        if dispatcher in self._buried:
            return
        self._buried.add(dispatcher)
        try:
            await self._copy_all(dispatcher)
        finally:
            self._buried.remove(dispatcher)

    async def _copy_all(self, dispatcher: LockingDispatcher) -> None:
        wait_s, offset = 0.0, 0
        place: tuple[int, int, int, TopicName | None] | None = None
        while dispatcher.dead and dispatcher.consumers:
            start, end = dispatcher.dead[0]
            name, seeks = dispatcher.share_limits.dead_letters, dispatcher.seeks
            if place != (start, end, seeks, name):
                place, offset = (start, end, seeks, name), start
            try:
                while name is not None and offset < end:
                    offset = await self._copy(dispatcher, offset, end, name)
            except BrokerError as error:
                if not wait_s:
                    topic = "" if name is None else name.full
                    log.warning("dead_letter_failed", topic=topic, reason=str(error))
                wait_s = longer_wait(wait_s)
                await trio.sleep(wait_s)
                continue
            wait_s = 0.0
            if seeks == dispatcher.seeks:
                dispatcher.buried(start, end)

    async def _copy(
        self, dispatcher: LockingDispatcher, start: int, end: int, name: TopicName
    ) -> int:
        """Copy the first records of `[start, end)`; return the offset behind them. Raises
        BrokerError.
        """
        partition = dispatcher.partition
        try:
            read = await read_records(
                partition, start, bytes_max=COPY_BYTES, records_max=COPY_RECORDS
            )
        except OffsetOutOfRange:  # Retention took these records.
            return partition.log_start_offset if start < partition.log_start_offset else end
        except UnreadableRecord:
            placed = [PlacedRecord(Record(start, 0), start, -1, NO_FORMAT)]
            next_offset = start + 1
        else:
            placed = [each for each in read.records if start <= each.record.offset < end]
            next_offset = read.next_offset if read.next_offset > start else end
        if placed:
            now_us = self.now_us()
            records = [dead_letter(each, partition, dispatcher.name, now_us) for each in placed]
            await self._append(records, name, placed[0].record.offset)
        return next_offset

    async def _append(self, records: list[Record], name: TopicName, offset: int) -> None:
        topic = self.topics.find(name)
        if topic is None:
            raise TopicNotFound(f"dead letter topic {name.full} does not exist")
        partition = topic.partition(offset % len(topic.partitions))
        for number, record in enumerate(records):
            record.offset = number  # In this format, from the base offset of the batch.
        codec = codec_for(BodyFormat.PLAIN)
        body = codec.encode(records, 0)
        appended = partition.append(
            [body], codec.inspect(body), body_format=codec.format, append_us=self.now_us()
        )
        await self.durability.reached(appended.ticket)


def dead_letter(
    placed: PlacedRecord, partition: Partition, subscription: bytes, now_us: int
) -> Record:
    """Return the record of a message for a dead letter topic, with Java's properties."""
    topic = f"persistent://{partition.topic.name.full}"
    if partition.topic.partitioned:
        topic += f"-partition-{partition.index}"
    index = partition.index if partition.topic.partitioned else -1
    origin = f"{partition.partition_id}:{placed.entry}:{index}".encode()
    record = placed.record
    added = [
        Header(b"REAL_TOPIC", topic.encode()),
        Header(b"REAL_SUBSCRIPTION", subscription),
        Header(b"ORIGIN_MESSAGE_ID", origin),
        Header(b"ORIGIN_MESSAGE_IDY_TIME", origin),
    ]
    names = {header.name for header in added}
    return Record(
        0,
        0,
        now_us // 1000 * 1000,
        record.event_us,
        record.key,
        record.value,
        [*(header for header in record.headers if header.name not in names), *added],
        producer_name=b"dead-letters",
        schema_version=None,
    )
