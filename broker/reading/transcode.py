"""Reads a partition in the reader's format. Knows formats only through the codec interface.

A batch stored in that format is returned byte for byte, from the right entry on. A batch in another
format is converted directly if the reader's codec can, else decoded to records and encoded again,
in pieces. Records that the reader's format cannot carry are left out, or marked if the topic is set
so. A chunked message is a single record to readers of other formats, at the offset of its last
chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from braidlog.broker.limits import CONVERTED_BYTES_MAX, CONVERTED_RECORDS_MAX, READ_PARTS_MAX
from braidlog.broker.reading.cutting import BatchRest, CutBatches, cut_body
from braidlog.broker.reading.reader import StoredRead, trust_of
from braidlog.broker.reading.result import ReadResult, record_bytes
from braidlog.broker.reading.turn import BATCH_US, CONVERTED_BYTES_PER_US, Turn
from braidlog.broker.reading.unopened import marked
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import Steps, run
from braidlog.storage.formats.api import Buffer, Decoded, Part
from braidlog.storage.formats.base import Codec, Stored, WantedRecords
from braidlog.storage.formats.record import Record
from braidlog.storage.log.settings import UncarriedRecords

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch


async def read_as(
    partition: Partition,
    codec: Codec,
    offset: int,
    *,
    bytes_max: int,
    records_max: int | None = None,
) -> ReadResult:
    """Read records in `codec`'s format from `offset` up to the high watermark.

    Returns at least the next record that the format can carry, however large; skips records that
    the format cannot carry. Returns more while both limits allow. Batches stored in the reader's
    format come whole, cut only at `offset` and by `records_max`. An empty result with a later
    `next_offset` means that the walk reached the watermark or WALK_BYTES_MAX.

    Raises OffsetOutOfRange, DamagedLog, and UnreadableRecord if the first record to return cannot
    be read; before a later unreadable record the read ends.
    """
    return await run(
        read_steps(partition, codec, offset, bytes_max=bytes_max, records_max=records_max)
    )


def read_steps(
    partition: Partition,
    codec: Codec,
    offset: int,
    *,
    bytes_max: int,
    records_max: int | None = None,
    fills: CutBatches | None = None,
    in_place: bool = False,
    cold_in_place: bool = False,
    trusts_memory: bool = False,
    turn: Turn | None = None,
    memory: OutputReservation | None = None,
    parts_max: int = READ_PARTS_MAX,
) -> Steps[ReadResult]:
    """Run `read_as` in steps: data in memory in the reader's format is read without a wait.

    With `fills`, further entries fill the answer up to `bytes_max` and the last entry is cut;
    `next_offset` is then at or below the first offset of the cut batch. `fills` keeps the rest of
    that batch.

    With `in_place`, large batches may be returned as places in files, to be sent soon; with
    `cold_in_place`, those that a thread has to read first. With `trusts_memory`, bodies that
    were good when loaded into memory are not checked again.

    `turn` belongs to a caller with several reads in a row; without a turn, the read lets other
    tasks run before decoding anything. `memory` is reserved for the answer and grows by the size of
    a large record.
    """
    reader = _FormatReader(partition, codec, offset, bytes_max, records_max)
    reader.memory, reader.parts_max = memory, parts_max
    if fills is not None:
        reader.fill_from(fills)
    may_be_in_place = records_max is None and not partition.wants_keys
    reader.in_place = in_place and may_be_in_place
    reader.cold_in_place = cold_in_place and may_be_in_place
    if trusts_memory and not partition.wants_keys:
        reader.trusted = trust_of(codec.format)
    if turn is not None:
        reader.turn = turn
    yield from reader.steps()
    return reader.result


class _FormatReader(StoredRead):
    """Returns bodies of a single format."""

    encodes = True

    def __init__(
        self,
        partition: Partition,
        codec: Codec,
        offset: int,
        bytes_max: int,
        records_max: int | None,
    ) -> None:
        result = ReadResult(offset, offset)
        super().__init__(partition, codec.format, result, bytes_max, records_max)
        self._codec = codec
        self._carries_all = type(codec).carries is Codec.carries
        # Formats of the same protocol that hide their keys from its readers.
        self._keyless = codec.keyless

    def fill_from(self, fills: CutBatches) -> None:
        """Fill the answer, first with the kept rest of an earlier answer, if any.

        Raises BrokerError.
        """
        self.fills = fills
        rest = fills.take(self._partition, self._asked_offset)
        if rest is not None:
            offsets = rest.offset, rest.next_offset
            self._add_stored(rest.body, offsets[1] - offsets[0], offsets, rest.batch_bytes)
            self._learn(rest.batch_bytes, rest.batch_bytes)

    def _take_foreign(self, batch: Batch) -> Steps[None]:
        result = self.result
        while True:
            size = result.size
            if not self._take_converted(batch):
                break
            work_us = (result.size - size) // CONVERTED_BYTES_PER_US
            yield from self.turn.give_way(BATCH_US + work_us)
        if result.next_offset < batch.next_offset and not self.is_full:
            yield from super()._take_foreign(batch)

    def _take_converted(self, batch: Batch) -> bool:
        """Convert the next records of a batch directly, without decoding to records.

        False if the reader's codec cannot convert or the answer has no room.
        """
        header, result = batch.header, self.result
        if header.flags or len(batch.body) > CONVERTED_BYTES_MAX:
            return False
        room = self._bytes_max - result.size
        if self.is_full or room <= 0 or result.next_offset >= batch.next_offset:
            return False
        stored = Stored(
            batch.body,
            header.body_format,
            header.base_offset,
            header.append_us,
            header.record_count,
        )
        records_max = min(self._records_left, CONVERTED_RECORDS_MAX)
        converted = self._codec.converted(
            stored, WantedRecords(result.next_offset, records_max, room)
        )
        if converted is None:
            return False
        if not converted.count:
            self._ended = converted.is_full and bool(result.parts) and self.fills is None
            return False
        result.add(converted.records, converted.count, converted.first_offset)
        result.next_offset = converted.next_offset
        return True

    def _take_whole(self, batches: Sequence[Batch]) -> int:
        """Take batches of the reader's format that fit, as `StoredRead._take_whole`. # hot: see
        make bench
        """
        result = self.result
        if self._records_max is not None:
            return 0
        readable, body_format, left = self._codec.readable, self._format, self._bytes_max
        left -= result.size
        parts: list[Part] = []
        next_offset, count = result.next_offset, 0
        for batch in batches[: self.parts_max - len(result.parts)]:
            header = batch.header
            if header.body_format != body_format or header.base_offset != next_offset:
                break
            left -= header.body_bytes
            if left < 0:
                break
            parts.append(readable(batch.body))
            count += header.record_count
            next_offset += header.last_offset_delta + 1
        if parts:
            result.as_stored |= not result.parts
            result.add_all(parts, count, result.next_offset)
            result.next_offset = next_offset
        return len(parts)

    def _take_stored(self, batch: Batch) -> None:
        result, count = self.result, batch.header.record_count
        body: Buffer = batch.body
        if batch.is_cut:
            self._take_cut(batch)
            return
        start_offset = max(result.next_offset, batch.base_offset)
        next_offset = batch.next_offset
        records_max = self._records_left if self._records_max is not None else None
        if start_offset == batch.base_offset and (records_max is None or count <= records_max):
            body = self._codec.readable(body)
        else:
            body, count, next_offset = cut_body(self._codec, batch, start_offset, records_max)
        self._add_stored(body, count, (start_offset, next_offset), len(batch.body))

    def _take_cut(self, batch: Batch) -> None:
        """Fill the answer with the beginning of a batch.

        The next read most likely begins with the cut entry.
        """
        body, base_offset = batch.body, batch.base_offset
        offset, body_pos = self._codec.start_before(body, base_offset, len(body))
        self._partition.log.remember_within(offset, batch, body_pos)
        self.result.add(body, offset - base_offset, base_offset)

    def _add_stored(
        self, body: memoryview, count: int, offsets: tuple[int, int], batch_bytes: int
    ) -> None:
        """Add records of a batch between two offsets; to fill the answer, only as many as have
        room.
        """
        result, (first_offset, next_offset) = self.result, offsets
        room = self._bytes_max - result.size
        if len(body) > room and self.fills is not None:
            rest = BatchRest(first_offset, next_offset, body, batch_bytes)
            self.fills.keep(self._partition, self._codec, rest, room)
        if result.parts and len(body) > room:
            self._ended = True
            if self.fills is not None:
                result.add(body[:room], count * room // len(body), first_offset)  # an estimate
            return
        if count:
            result.as_stored = result.as_stored or not result.parts
            result.add(body, count, first_offset)
        result.next_offset = next_offset

    def _give(self, batch: Batch, decoded: Decoded) -> None:
        """Add the decoded records that have room, and continue after them."""
        result = self.result
        carried = decoded.records if self._carries_all else self._carried(decoded.records)
        next_offset = decoded.next_offset
        if batch.header.body_format in self._keyless:
            for record in carried:
                record.key = None
        if carried:
            body, fitting = self._encode(carried, batch.base_offset)
            if body:
                result.add(body, fitting, carried[0].offset)
            if fitting < len(carried):
                next_offset = carried[fitting].offset
                self._ended = True
        if len(carried) < len(decoded.records):
            passed = sum(record.offset < next_offset for record in decoded.records)
            result.left_out += passed - sum(record.offset < next_offset for record in carried)
        result.next_offset = max(next_offset, result.next_offset)
        if (
            result.parts
            and result.size + self._record_bytes > self._bytes_max
            and self.fills is None
        ):
            self._ended = True  # The next records are most likely no smaller.

    def _carried(self, records: Sequence[Record]) -> list[Record]:
        """Return the records that the format can carry, and marks for others if the topic is set
        so.
        """
        carries = self._codec.carries
        if self._partition.log.settings.uncarried_records is UncarriedRecords.MARK:
            return [record if carries(record) else marked(record) for record in records]
        return [record for record in records if carries(record)]

    def _encode(self, records: Sequence[Record], base_offset: int) -> tuple[memoryview, int]:
        """Encode as many records as fit, at least the first if the answer is empty: bytes and
        count.

        With `fills`, the beginning of the next record fills the answer.
        """
        codec, count, is_first = self._codec, len(records), not self.result.parts
        room = max(self._bytes_max - self.result.size, 0)
        count_max = count - 1  # in the next try
        while True:
            encoded = codec.encode(records[:count], base_offset)
            body = codec.readable(encoded)
            self._record_bytes = len(body) // count
            if len(body) <= room:
                return body, count
            starts = codec.split(encoded, base_offset)
            ends = [pos - len(encoded) + len(body) for _, pos in starts[1:]] + [len(body)]
            entries = bisect_right(ends, room)
            if not entries and len(starts) < count:  # The first entry holds several records.
                count = min(_likely_to_fit(records[:count], len(body), room), count_max)
                count = max(count, int(is_first))
                if not count:
                    return body[:0], 0
                count_max = max(count // 2, 1)  # Keeps wrong guesses few.
                continue
            entries = max(entries, int(is_first))
            size = ends[entries - 1] if entries else 0
            if entries < len(starts):
                count = bisect_left(records, starts[entries][0], hi=count, key=_offset_of)
            return body[: size if self.fills is None else max(size, room)], count


def _likely_to_fit(records: Sequence[Record], encoded_bytes: int, room: int) -> int:
    """Return the number of records that likely fit; together they take `encoded_bytes`."""
    sizes = [record_bytes(record) for record in records]
    overhead = -(-max(encoded_bytes - sum(sizes), 0) // len(sizes))  # of each record
    return bisect_right(list(accumulate(size + overhead for size in sizes)), room)


def _offset_of(record: Record) -> int:
    return record.offset
