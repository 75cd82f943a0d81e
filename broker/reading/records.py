"""Reads a partition as records with the places that Pulsar's ids name.

For callers that show single records. Knows formats only through the codec interface.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braidlog.broker.reading.entries import record_places
from braidlog.broker.reading.reader import StoredRead
from braidlog.broker.reading.result import ReadResult, record_bytes
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import run
from braidlog.storage.formats.api import Decoded
from braidlog.storage.formats.record import Record

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch


NO_FORMAT = 0  # Every body is decoded.


@dataclass(slots=True)
class PlacedRecord:
    """A record, the id of its entry, and its batch index there (-1: not batched)."""

    record: Record
    entry: int
    batch_index: int
    body_format: int  # The stored format of the entry.


@dataclass(slots=True)
class RecordsRead:
    """Records in offset order, and the offset at which the next read continues."""

    records: list[PlacedRecord] = field(default_factory=list)
    next_offset: int = 0
    skipped: list[tuple[int, int]] = field(default_factory=list)
    """Offset ranges that could not be opened and that the topic's setting passes over."""


async def read_records(
    partition: Partition,
    offset: int,
    *,
    bytes_max: int,
    records_max: int,
    memory: OutputReservation | None = None,
) -> RecordsRead:
    """Read records from `offset` up to the high watermark.

    Returns at least the next record, however large; more while their keys, values and headers fit
    `bytes_max`. `memory` is reserved for the answer and grows by the size of a large record.

    A chunked message is a single record at its last chunk's offset. Raises OffsetOutOfRange,
    DamagedLog, and UnreadableRecord if the first record cannot be opened; before a later unreadable
    record the read ends.
    """
    reader = _RecordReader(partition, offset, bytes_max, records_max)
    reader.memory = memory
    await run(reader.steps())
    skipped = [(span.start, span.end) for span in reader.passed if not span.is_raw]
    return RecordsRead(reader.records, reader.result.next_offset, skipped)


class _RecordReader(StoredRead):
    """A read that returns records."""

    encodes = False

    def __init__(self, partition: Partition, offset: int, bytes_max: int, records_max: int) -> None:
        super().__init__(partition, NO_FORMAT, ReadResult(offset, offset), bytes_max, records_max)
        self.records: list[PlacedRecord] = []

    def _take_stored(self, batch: Batch) -> None:
        raise AssertionError("no body is of this format")

    def _give(self, batch: Batch, decoded: Decoded) -> None:
        result = self.result
        next_offset, fitting = decoded.next_offset, decoded.records
        for number, record in enumerate(fitting):
            size = record_bytes(record)
            if result.record_count and result.size + size > self._bytes_max:
                next_offset, fitting = record.offset, fitting[:number]
                self._ended = True
                break
            result.size += size
            result.record_count += 1
            self._record_bytes = size
        places = record_places(batch, [record.offset for record in fitting])
        raw = {
            span.end - 1 for span in self.passed if span.is_raw
        }  # Each stands for a whole entry.
        body_format = batch.header.body_format
        self.records += (
            PlacedRecord(record, entry, -1 if record.offset in raw else index, body_format)
            for record, (entry, index) in zip(fitting, places, strict=True)
        )
        result.next_offset = max(next_offset, result.next_offset)
