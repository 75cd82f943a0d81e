"""Stored batches unchanged, for readers that decode them: Spark's network fetcher.

Each batch is its header, sealed again with salt 0 (a segment's own salt is secret), the positions
table and the body, byte for byte (storage/FORMAT.md section 3). Knows partitions, no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.runtime.turns import in_turns
from braidlog.storage.errors import StorageError
from braidlog.storage.formats.batch import pack

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputReservation
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Buffer

WIRE_SALT = 0
BATCHES_PER_TURN = 500  # Headers sealed between two checkpoints: some 3 ms.


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Parts to send in order, and the offset after them."""

    parts: list[Buffer]
    next_offset: int


async def read_raw(partition: Partition, offset: int, memory: OutputReservation) -> RawBatches:
    """Read batches from the batch that holds `offset` up to the high watermark, as `Partition.read`
    does: about as many bytes as are reserved. A larger batch is read alone, once `memory` has grown
    for it.

    Raises: OffsetOutOfRange, CorruptBatch, StorageFailed.
    """
    bytes_max = memory.size
    batches = await partition.read(offset, bytes_max, before_large=memory.grow)
    size = sum([batch.header.body_bytes for batch in batches])
    if size > memory.size and not memory.grow_now(size - memory.size):
        del batches  # They are read again once there is memory.
        await memory.grow(size)
        batches = await partition.read(offset, bytes_max)
    parts: list[Buffer] = []
    next_offset = offset
    async for batch in in_turns(batches, BATCHES_PER_TURN):
        parts += (pack(batch.header, WIRE_SALT), batch.positions, batch.body)
        next_offset = batch.next_offset
    return RawBatches(parts, next_offset)


async def first_at(partition: Partition, time_us: int) -> int | None:
    """Return the offset of the first batch with a record of that time or later, else None.

    Raises: StorageFailed, CorruptBatch.
    """
    try:
        offset = await run_in_thread(partition.log.offset_at_or_after, time_us)
    except StorageError as error:
        raise to_broker_error(error, f"{partition.topic.name}/{partition.index}") from error
    return offset if offset < partition.high_watermark else None
