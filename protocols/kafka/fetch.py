"""Fetch: reads many partitions at once and waits until enough is there. Knows no bytes.

A waiting fetch sits in its handler, so everything behind it on its connection waits too, as in 0.8.
It is woken by records of any protocol; what was read before it waited is kept, not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from broker.errors import BrokerError, InvalidRequest, OffsetOutOfRange, TopicNotFound
from broker.reading.transcode import read_as
from broker.server.output_budget import Reservation
from protocols.kafka.context import PROTOCOL, Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.messages import Fetched, FetchReply, FetchRequest, FetchTarget
from protocols.turns import in_turns
from storage.codecs.api import Buffer
from storage.codecs.kafka import KAFKA

if TYPE_CHECKING:
    from broker.reading.transcode import ReadResult
    from broker.topics.partition import Partition

# So much is read of a partition before others get their turn: a quarter of a millisecond.
BYTES_PER_TURN = 1024 * 1024
# What a read takes however little it brings: as long as so many bytes.
READ_COST_BYTES = 64 * 1024
# Partitions that are looked at between two turns of others: a millisecond, or two.
PARTITIONS_PER_TURN = 500


@dataclass(slots=True)
class Reading:
    """How far one partition of a fetch has been read."""

    target: FetchTarget
    offset: int  # where to read on
    partition: Partition | None = None  # None: nothing to read, see `code`
    code: int = Code.NONE
    parts: list[Buffer] = field(default_factory=list)
    size: int = 0
    records: int = 0
    full: bool = False  # nothing more can be added
    beyond: int = 0  # bytes that are there besides, and cannot be added


async def fetch(context: Context, request: FetchRequest) -> Answer:
    """Answer once `bytes_min` are there, or an error is, at the latest after `wait_ms_max`.

    Every replica id reads as a consumer: there are no followers.
    """
    await context.own_writes()
    topics: dict[bytes | None, dict[int, Reading]] = {}
    readings: list[Reading] = []
    for name, targets in request.topics.items():
        found = topics[name] = {}
        for index, target in targets.items():
            found[index] = reading = _begin(context, name, index, target)
            readings.append(reading)
            if len(readings) % PARTITIONS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
    with Reservation(context.connection.outbox.budget, 0) as held:
        await _read_all(context, readings, request.bytes_min, held)
        if request.wait_ms_max > 0 and not _enough(readings, request.bytes_min):
            with trio.move_on_after(request.wait_ms_max / 1000):
                await _wait(context, readings, request.bytes_min, held)
        async for reading in in_turns(readings, PARTITIONS_PER_TURN):
            _settle(context, reading)
    fetched = {
        name: {index: _fetched(reading) for index, reading in partitions.items()}
        for name, partitions in topics.items()
    }
    return Answer(FetchReply(fetched))


def _begin(context: Context, name: bytes | None, index: int, target: FetchTarget) -> Reading:
    reading = Reading(target, target.offset)
    try:
        partition = context.partition(name, index)
        if target.bytes_max < 0:
            raise InvalidRequest(f"{target.bytes_max} bytes asked for")
    except BrokerError as error:
        reading.code = context.refused(error)
        return reading
    reading.partition = partition
    walked = context.walked.get(partition.partition_id)
    if walked is not None and walked[0] == target.offset:
        reading.offset = walked[1]
    return reading


def _enough(readings: Sequence[Reading], bytes_min: int) -> bool:
    """Whether to answer now: for an error, enough bytes, or nothing that waiting could add."""
    size = 0
    can_grow = False
    for reading in readings:
        if reading.code != Code.NONE:
            return True
        size += reading.size + reading.beyond
        can_grow = can_grow or not reading.full
    return size >= bytes_min or not can_grow


async def _wait(
    context: Context, readings: Sequence[Reading], bytes_min: int, held: Reservation
) -> None:
    """Read whatever comes until it is enough. Cancelled when the time is up."""
    broker = context.broker
    while not _enough(readings, bytes_min) and not broker.stopping.is_set():
        growing = [
            (reading.partition, reading.offset)
            for reading in readings
            if reading.partition is not None and not reading.full
        ]
        await broker.wait_any(growing)
        await _read_all(context, readings, bytes_min, held)


async def _read_all(
    context: Context, readings: Sequence[Reading], bytes_min: int, held: Reservation
) -> None:
    """Add to every partition what is there, within the limit for the whole answer and what memory
    there is for it.

    Each time another partition comes first, so that one which fills the answer starves no other.
    """
    context.fetch_turn += 1
    wanted = min(context.options.fetch_bytes_max - held.size, sum(map(_wanted, readings)))
    with await context.connection.outbox.budget.reserve(wanted) as room:
        budget = room.size
        first = context.fetch_turn
        rotated = (readings[(at + first) % len(readings)] for at in range(len(readings)))
        turn_bytes = 0
        async for reading in in_turns(rotated, PARTITIONS_PER_TURN):
            if reading.partition is None or reading.full:
                continue
            if turn_bytes >= BYTES_PER_TURN:
                await trio.lowlevel.checkpoint()
                turn_bytes = 0
            before = reading.size
            is_alone = held.size == 0 and budget == room.size
            await _read_on(context, reading, budget, bytes_min, is_alone=is_alone)
            if reading.size > before:
                budget -= reading.size - before
                turn_bytes += reading.size - before + READ_COST_BYTES
        held.keep(sum(reading.size for reading in readings))


def _wanted(reading: Reading) -> int:
    """Bytes that could be added to what was read of a partition."""
    partition = reading.partition
    if partition is None or reading.full or reading.offset == partition.high_watermark:
        return 0
    return max(reading.target.bytes_max - reading.size, 0)


async def _read_on(
    context: Context, reading: Reading, budget: int, bytes_min: int, *, is_alone: bool
) -> None:
    partition = reading.partition
    assert partition is not None
    try:
        await _read(reading, partition, budget, is_alone=is_alone)
        if reading.full and reading.size < bytes_min:
            _count_beyond(reading, partition)
    except BrokerError as error:
        reading.full = True
        if not reading.size:  # Else the next fetch begins there, and is told.
            reading.code = context.refused(error)


async def _read(reading: Reading, partition: Partition, budget: int, *, is_alone: bool) -> None:
    """Read on to the high watermark or as far as there is room; others get their turn between
    two reads. `is_alone`: the answer holds nothing yet. Raises BrokerError.
    """
    if partition.removed:
        raise TopicNotFound(partition.topic.name.full)
    room = min(reading.target.bytes_max - reading.size, budget)
    while reading.offset != partition.high_watermark:
        if room <= 0:
            _close(reading, partition)
            return
        if reading.parts:
            await trio.lowlevel.checkpoint()
        wanted = min(room, BYTES_PER_TURN)
        result = await read_as(partition, KAFKA, reading.offset, bytes_max=wanted)
        if not result.parts and result.next_offset == reading.offset:
            return
        _add(reading, result, room, is_alone=is_alone)
        room -= result.size
        # What follows is most likely no smaller than what came last: reading it would be in vain.
        if result.parts and room < len(result.parts[-1]):
            room = 0


def _add(reading: Reading, result: ReadResult, room: int, *, is_alone: bool) -> None:
    """Take what was read, if it fits; what does not comes first in one of the next answers.

    The first of a partition is taken in any case where it is foreign, and where it is alone in the
    answer. An entry of Kafka's own that its client has no room for is cut there, as 0.8 does, which
    tells that client to ask for more bytes.
    """
    own_room = reading.target.bytes_max
    is_first = not reading.parts
    too_large = result.as_stored and result.size > own_room
    if result.size <= room or (is_first and not too_large and (is_alone or not result.as_stored)):
        reading.parts += result.parts
        reading.size += result.size
        reading.records += result.record_count
        reading.offset = result.next_offset  # Also past what is not for Kafka's readers.
    elif is_first and too_large and (is_alone or room >= own_room):
        reading.parts.append(memoryview(result.parts[0])[:own_room])
        reading.size = own_room
        reading.records = result.record_count * own_room // result.size  # about so many


def _close(reading: Reading, partition: Partition) -> None:
    """Nothing more is added, though there is more. Raises BrokerError."""
    start, end = partition.log_start_offset, partition.high_watermark
    if not start <= reading.offset <= end:
        raise OffsetOutOfRange(reading.offset, start, end)
    reading.full = True


def _count_beyond(reading: Reading, partition: Partition) -> None:
    """What cannot be added counts for whoever waits for more bytes. Raises BrokerError."""
    reading.beyond = partition.bytes_between(reading.offset, partition.high_watermark)


def _settle(context: Context, reading: Reading) -> None:
    """Count what is handed out, and keep how far a fruitless walk came for the next fetch."""
    if reading.partition is None:
        return
    if reading.size:
        name = reading.partition.topic.name.full
        context.broker.metrics.records_out(PROTOCOL, name, reading.records, reading.size)
    if reading.size == 0 and reading.code == Code.NONE and reading.offset > reading.target.offset:
        context.walked[reading.partition.partition_id] = (reading.target.offset, reading.offset)
    else:
        context.walked.pop(reading.partition.partition_id, None)


def _fetched(reading: Reading) -> Fetched:
    if reading.code != Code.NONE or reading.partition is None:
        return Fetched(reading.code, -1)
    high_watermark = reading.partition.high_watermark
    return Fetched(Code.NONE, high_watermark, reading.parts, reading.size)
