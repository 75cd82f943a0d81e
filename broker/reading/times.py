"""Finds a record by its time. Knows formats only through the codec interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.reading.look import look_at
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.storage.errors import BodyError, StorageError
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.registry import codec_for

if TYPE_CHECKING:
    from braidlog.broker.runtime.output_budget import OutputReservation
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch


Found = TypeVar("Found")
US_PER_MS: Final = 1000
TIME_MS_MAX: Final = (2**63 - 1) // US_PER_MS


async def first_not_before(
    partition: Partition, time_us: int, *, timed_only: bool = False
) -> tuple[int, int] | None:
    """Return (offset, time in us) of the first record of that time or later, else None.

    Uses the publish time. A record without publish time has the append time, or is left out if
    `timed_only` is set. Raises BrokerError.
    """

    async def find(
        batch: Batch, start_offset: int, memory: OutputReservation
    ) -> tuple[int, int] | None:
        return await _first_in(batch, start_offset, time_us, memory, timed_only=timed_only)

    return await search(partition, time_us, find)


async def first_of_latest_time(partition: Partition) -> tuple[int, int] | None:
    """Return (offset, time in us) of the first record with the latest publish time in milliseconds,
    else None. Raises BrokerError.
    """
    latest = await first_not_before(partition, 0, timed_only=True)
    if latest is None:
        return None
    # A later record exists at `low`, and none at `high`: each step halves the times between them.
    low, high = latest[1] // US_PER_MS, TIME_MS_MAX + 1
    while high - low > 1:
        middle = (low + high) // 2
        place = await first_not_before(partition, middle * US_PER_MS, timed_only=True)
        if place is None:
            high = middle
        else:
            latest, low = place, place[1] // US_PER_MS
    return latest


async def search(
    partition: Partition,
    time_us: int,
    find: Callable[[Batch, int, OutputReservation], Awaitable[Found | None]],
) -> Found | None:
    """Return the first result of `find` over the batches from that time on.

    `find` receives a batch, the offset to begin at, and the reservation of the batch's memory.
    Raises BrokerError.
    """
    try:
        position = await run_in_thread(partition.log.offset_at_or_after, time_us)
    except StorageError as error:
        raise to_broker_error(error) from error
    position = max(position, partition.log_start_offset)
    end = partition.high_watermark  # The search ignores records appended meanwhile.
    while position < end:
        async with look_at(partition, position) as look:
            if not look.batches:
                break
            batch = look.batches[0]
            offset = await find(batch, max(position, batch.base_offset), look.memory)
            position = batch.next_offset
            del batch
        if offset is not None:
            return offset
    return None


async def _first_in(
    batch: Batch,
    start_offset: int,
    time_us: int,
    memory: OutputReservation,
    *,
    timed_only: bool,
) -> tuple[int, int] | None:
    header = batch.header
    latest_us = header.append_us if header.max_publish_us is None else header.max_publish_us
    if header.flags & BatchFlag.GAP or max(latest_us, header.append_us) < time_us:
        return None
    if timed_only and header.max_publish_us is None:
        return None

    def find() -> tuple[int, int] | None:
        codec = codec_for(header.body_format)
        decoded = codec.decode(
            batch.body, batch.base_offset, header.append_us, start_offset=start_offset
        )
        for record in decoded.records:
            at_us = record.publish_us
            if at_us is None and not timed_only:
                at_us = record.append_us
            if at_us is not None and at_us >= time_us:
                return record.offset, at_us
        return None

    try:
        return await run_unpacking(find, before_large=memory.grow)
    except BodyError as error:
        raise to_broker_error(error) from error
