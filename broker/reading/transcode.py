"""Reads a partition in the format that the reader wants. Knows formats only through the codec
interface.

Stored in that format already: the bytes as they are, from the right entry on. Stored in another:
decoded to records and encoded again, in pieces, leaving out what the reader's format cannot
carry. A chunked message is one record to the readers of other formats, at the offset of its last
chunk.
"""

from __future__ import annotations

import abc
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from broker.errors import BrokerError, UnreadableRecord
from broker.limits import (
    CONVERTED_BYTES_MAX,
    CONVERTED_RECORDS_MAX,
    DECODE_BYTES_MAX,
    DECODE_INLINE_BYTES,
    DECODE_INLINE_RECORDS,
    DECODE_RECORDS_MAX,
    DECODE_RECORDS_MIN,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    READ_FIRST_BYTES,
    READ_PARTS_MAX,
    READ_PIECE_BYTES,
    READ_TURN_BATCHES,
    WALK_BYTES_MAX,
)
from broker.reading.chunks import join_chunks
from broker.reading.cutting import CutBatches, cut_body
from broker.reading.unopened import Passed, cannot_decode, marked, settle
from broker.reading.unpacking import run_unpacking
from broker.steps import Steps, run
from broker.threads import run_in_thread
from storage.codecs.api import (
    BatchFlag,
    Buffer,
    Codec,
    Decoded,
    Part,
    without_frames,
)
from storage.codecs.base import BodyCodec, Converted, Stored, Wanted
from storage.codecs.record import Record
from storage.codecs.registry import codec_for
from storage.errors import BodyError, UnreadableBody
from storage.log.batch import HEADER_BYTES
from storage.log.settings import UncarriedRecords

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from storage.log.batch import Batch


@dataclass(slots=True)
class ReadResult:
    """Records in the reader's format: `parts`, `size` bytes together, are whole entries in
    order.
    """

    first_offset: int  # of the first record given; where the read began if there is none
    next_offset: int  # where the next read goes on, past records left out
    parts: list[Part] = field(default_factory=list)
    size: int = 0
    record_count: int = 0
    left_out: int = 0  # records walked over that this format cannot carry, or that were skipped
    as_stored: bool = False  # whether the first part is stored in the format asked for

    @property
    def in_memory(self) -> list[Buffer]:
        """The parts, of a read that is not `in_place`."""
        # None of them is a StoredPart then, which no type says.
        return self.parts  # type: ignore[return-value]

    def add(self, body: Part, record_count: int, first_offset: int) -> None:
        """Put records behind those that are there."""
        if not self.parts:
            self.first_offset = first_offset
        self.parts.append(body)
        self.size += len(body)
        self.record_count += record_count


async def read_as(
    partition: Partition,
    codec: Codec,
    offset: int,
    *,
    bytes_max: int,
    records_max: int | None = None,
) -> ReadResult:
    """What a reader of `codec`'s format is given from `offset` on, up to the high watermark.

    At least one record, however large, if there is one that the format can carry: those that it
    cannot are walked over. More while they fit both limits; what is stored in the reader's format
    comes in whole batches, cut only at `offset` and by `records_max`. An empty result that has come
    further (`next_offset`) is a walk that reached the watermark or WALK_BYTES_MAX.

    Raises OffsetOutOfRange, DamagedLog, and UnreadableRecord where the first record to be given
    cannot be read; where that is a later one, the read ends before it.
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
) -> Steps[ReadResult]:
    """`read_as` in steps: what is in memory in the reader's format is read without a wait.

    With `fills`, where there is more, the next entries follow as far as `bytes_max` reaches, the
    last one cut there; `next_offset` is at or below the first offset of what was cut. It keeps the
    batch that was cut.

    With `in_place` large batches may be given as places in files, to be sent soon.
    """
    reader = _FormatReader(partition, codec, offset, bytes_max, records_max)
    reader.fills = fills
    reader.in_place = in_place and records_max is None and not partition.wants_keys
    yield from reader.steps()
    return reader.result


class Reader(abc.ABC):
    """One read under way. Subclasses say what is made of the records that were decoded."""

    def __init__(
        self,
        partition: Partition,
        body_format: int,
        result: ReadResult,
        bytes_max: int,
        records_max: int | None,
    ) -> None:
        """`body_format` is that of bodies that need no decoding; 0: there is none."""
        self.result = result
        self._partition = partition
        self._format = body_format
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._asked_offset = result.next_offset
        self._walked_bytes = 0  # stored in other formats
        self._record_bytes = 0  # of a record that was made for this reader lately
        self._piece_bytes = READ_FIRST_BYTES  # to ask the log for at once
        self._last_bytes = 0  # of the batch that was read last
        self._ended = False
        self.fills: CutBatches | None = None  # See `read_steps`.
        self.in_place = False  # See `read_steps`.
        self.passed: list[Passed] = []

    def steps(self) -> Steps[None]:
        """Read until it is over. Raises BrokerError where there is nothing to be given before."""
        result = self.result
        self._partition.check_readable(self._asked_offset, self._format)
        try:
            if self.fills is not None:  # What was cut is where a next read begins.
                kept = self.fills.take(self._partition, self._asked_offset)
                if kept is not None:
                    yield from self._take(kept)
                    self._learn((kept,))
            while not self.is_full and (yield from self._take_next()):
                pass  # One after the other, in `_take_next`.
        except BrokerError:
            if not result.record_count:
                raise

    @property
    def is_full(self) -> bool:
        """Whether the read is over."""
        result = self.result
        if self._ended or self._records_left <= 0:
            return True
        if result.record_count:
            return result.size >= self._bytes_max or len(result.parts) >= READ_PARTS_MAX
        return self._walked_bytes >= WALK_BYTES_MAX

    @property
    def bytes_wanted(self) -> int:
        """Stored bytes to ask the log for next: no more than the records wanted are likely to
        take.
        """
        if self._walked_bytes and not self.result.record_count:
            return max(self._bytes_max, READ_PIECE_BYTES)
        room = min(self._bytes_max - self.result.size, self._piece_bytes)
        if self._records_max is None:
            return room
        log = self._partition.log
        record_bytes = log.size_bytes // max(log.log_end_offset - log.log_start_offset, 1) + 1
        return min(room, max(self._records_left * record_bytes, READ_BYTES_MIN))

    @property
    def _records_left(self) -> int:
        if self._records_max is None:
            return DECODE_RECORDS_MAX
        return self._records_max - self.result.record_count

    def _take_next(self) -> Steps[bool]:
        """Read on; False at the high watermark. Raises BrokerError: what was taken stays."""
        offset, wanted = self.result.next_offset, self.bytes_wanted
        if self.in_place and self._take_in_place(offset, wanted):
            return True
        beyond = None if self.fills is None else self._bytes_beyond(wanted)
        batches: Sequence[Batch] | None = self._partition.read_warm(offset, wanted, beyond)
        if batches is None:
            batches = yield self._partition.read(offset, wanted, beyond)
        for batch in batches:
            yield from self._take(batch)
            if self.is_full:
                break
        if batches:
            self._expect_more_like(batches[-1])
            self._learn(batches)
        if len(batches) >= READ_TURN_BATCHES:
            yield trio.lowlevel.checkpoint()
        return bool(batches)

    def _learn(self, batches: Sequence[Batch]) -> None:
        """What follows is most likely as large as what was read."""
        self._last_bytes = len(batches[-1].body)
        piece = sum(len(batch.body) for batch in batches) // len(batches) * READ_PARTS_MAX
        self._piece_bytes = min(max(piece, READ_BYTES_MIN), READ_BYTES_MAX)

    def _take_in_place(self, offset: int, wanted: int) -> bool:
        """Add large batches that need not be read; False where none comes first."""
        run = self._partition.read_in_place(offset, wanted, self._format)
        if run is None:
            return False
        result = self.result
        result.as_stored = result.as_stored or not result.parts
        result.add(run.bodies, run.record_count, offset)
        result.next_offset = run.next_offset
        self._last_bytes = run.last_bytes
        if self.fills is None:  # As in `_expect_more_like`.
            self._ended |= result.size + run.last_bytes > self._bytes_max
        return True

    def _bytes_beyond(self, wanted: int) -> int:
        """How far the batch in which so many bytes end reaches beyond them, if all are as large as
        the last one.
        """
        if not self._last_bytes:
            return 0
        count = -(-wanted // self._last_bytes)
        return count * (self._last_bytes + HEADER_BYTES) - wanted

    def _expect_more_like(self, batch: Batch) -> None:
        """End the read where a batch as large as the last one finds no room: what follows is most
        likely no smaller, and would be read for nothing.
        """
        if batch.header.body_format == self._format and self.result.parts and self.fills is None:
            self._ended |= self.result.size + len(batch.body) > self._bytes_max

    def _take(self, batch: Batch) -> Steps[None]:
        """Add what the batch has for this reader, from `next_offset` on."""
        header = batch.header
        if header.flags & BatchFlag.GAP:
            self.result.next_offset = batch.next_offset
        elif header.body_format == self._format:
            self._take_stored(batch)
        else:
            yield from self._take_foreign(batch)

    @abc.abstractmethod
    def _take_stored(self, batch: Batch) -> None:
        """Add what a batch of the reader's own format has."""

    @abc.abstractmethod
    def _give(self, batch: Batch, decoded: Decoded) -> None:
        """Add the decoded records that there is room for, and continue behind them."""

    def _take_foreign(self, batch: Batch) -> Steps[None]:
        self._walked_bytes += len(batch.body)
        policy = self._partition.log.settings.unreadable_records
        while self.result.next_offset < batch.next_offset and not self.is_full:
            decoded = yield from self._decode(batch)
            passed = settle(policy, batch, decoded)
            if passed is not None:
                self.passed.append(passed)
            if not decoded.records and decoded.failed is None and passed is None:
                self.result.next_offset = batch.next_offset
                continue
            self._give(batch, decoded)
            if passed is not None and not passed.is_raw and self.result.next_offset >= passed.end:
                self.result.left_out += passed.end - passed.start  # Else it comes in a later read.

    def _decode(self, batch: Batch) -> Steps[Decoded]:
        """The next records of a body, whole messages in the place of their last chunks."""
        try:
            stored = codec_for(batch.header.body_format)
        except UnreadableBody as error:
            return cannot_decode(batch, self.result.next_offset, error)
        decoded: Decoded = yield self._decode_piece(stored, batch)
        if batch.header.flags & BatchFlag.CHUNK:
            yield self._join(stored, batch, decoded)
        return decoded

    async def _decode_piece(self, stored: Codec, batch: Batch) -> Decoded:
        """The next piece of a body; in a thread where that takes long, since it may inflate.

        What is not compressed stays in the loop, in short pieces: a thread that decodes takes turns
        with the loop, and holds it up for longer than it works.
        """
        is_compressed = bool(batch.header.flags & BatchFlag.COMPRESSED)
        wanted = self._records_wanted(batch, is_compressed)

        def decode() -> Decoded:
            return stored.decode(
                batch.body,
                batch.base_offset,
                batch.header.append_us,
                start_offset=self.result.next_offset,
                records_max=wanted,
                bytes_max=DECODE_BYTES_MAX,
            )

        if is_compressed and len(batch.body) > DECODE_INLINE_BYTES:
            return await run_unpacking(decode)
        if len(batch.body) > READ_PIECE_BYTES:
            return await run_in_thread(decode)
        await trio.lowlevel.checkpoint()
        return decode()

    def _records_wanted(self, batch: Batch, is_compressed: bool) -> int:
        """Records of the batch to decode next: as many as are likely to find room."""
        stored = len(batch.body) // max(batch.header.record_count, 1)
        room = max(self._bytes_max - self.result.size, 0)
        wanted = min(room, READ_PIECE_BYTES) // max(stored, self._record_bytes, 1) + 1
        piece = DECODE_RECORDS_MAX if is_compressed else DECODE_INLINE_RECORDS
        return min(max(wanted, DECODE_RECORDS_MIN), piece, self._records_left)

    async def _join(self, stored: Codec, batch: Batch, decoded: Decoded) -> None:
        """Put whole messages in the place of their last chunks; earlier chunks and rests go."""
        whole: list[Record] = []
        for record in decoded.records:
            if record.chunk is None:
                whole.append(record)
                continue
            try:
                joined = await join_chunks(self._partition, stored, batch, record)
            except BodyError as error:
                decoded.failed, decoded.failed_offset = without_frames(error), record.offset
                decoded.next_offset = record.offset
                break
            if joined is not None:
                whole.append(joined)
        decoded.records = whole

    def _refuse(self, offset: int, error: BodyError) -> None:
        """End the read before a record that cannot be opened, or refuse it if that is the first."""
        if not self.result.record_count:
            partition = self._partition
            place = f"offset {offset} of {partition.topic.name.full}, partition {partition.index}"
            text = f"{place}: {error}"
            partition.unreadable.add(self._asked_offset, self._format, text)
            raise UnreadableRecord(text)
        self._ended = True


class _FormatReader(Reader):
    """Gives bodies of one format."""

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
        self._convert = getattr(codec, "converted", None)
        self._carries_all = getattr(type(codec), "carries", None) is BodyCodec.carries
        # Formats of the same protocol, whose keys are no part of what its readers are shown.
        self._keyless: Sequence[int] = getattr(codec, "keyless", ())

    def _take_foreign(self, batch: Batch) -> Steps[None]:
        while self._take_converted(batch):
            yield trio.lowlevel.checkpoint()
        if self.result.next_offset < batch.next_offset and not self.is_full:
            yield from super()._take_foreign(batch)

    def _take_converted(self, batch: Batch) -> bool:
        """Add what the reader's format knows a short way from, of the rest of a batch; False: it
        knows none, or there is no room.
        """
        header, result = batch.header, self.result
        if self._convert is None or header.flags or len(batch.body) > CONVERTED_BYTES_MAX:
            return False
        room = self._bytes_max - result.size
        if self.is_full or room <= 0 or result.next_offset >= batch.next_offset:
            return False
        stored = Stored(batch.body, header.body_format, header.append_us, header.record_count)
        records_max = min(self._records_left, CONVERTED_RECORDS_MAX)
        made: Converted | None = self._convert(
            stored, Wanted(result.next_offset, records_max, room)
        )
        if made is None:
            return False
        if not made.count:
            self._ended = made.is_full and bool(result.parts) and self.fills is None
            return False
        result.add(made.records, made.count, made.first_offset)
        result.next_offset = made.next_offset
        return True

    def _take_stored(self, batch: Batch) -> None:
        result, count = self.result, batch.header.record_count
        body: Buffer = batch.body
        start_offset = max(result.next_offset, batch.base_offset)
        next_offset = batch.next_offset
        records_max = self._records_left if self._records_max is not None else None
        if start_offset == batch.base_offset and (records_max is None or count <= records_max):
            body = self._codec.readable(body)
        else:
            body, count, next_offset = cut_body(self._codec, batch, start_offset, records_max)
        room = self._bytes_max - result.size
        if self.fills is not None and len(body) > room:
            self.fills.keep(self._partition, batch)
        if result.parts and len(body) > room:
            self._ended = True
            if self.fills is not None:
                result.add(body[:room], count * room // len(body), start_offset)  # about so many
            return
        if count:
            result.as_stored = result.as_stored or not result.parts
            result.add(body, count, start_offset)
        result.next_offset = next_offset

    def _give(self, batch: Batch, decoded: Decoded) -> None:
        """Add the decoded records that there is room for, and continue behind them."""
        result, codec = self.result, self._codec
        carried = decoded.records if self._carries_all else self._carried(decoded.records)
        next_offset = decoded.next_offset
        if batch.header.body_format in self._keyless:
            for record in carried:
                record.key = None
        if carried:
            encoded = codec.encode(carried, batch.base_offset)
            body, fitting = codec.readable(encoded), len(carried)
            self._record_bytes = len(body) // fitting
            if result.size + len(body) > self._bytes_max:
                fitting, size = self._fitting(encoded, batch.base_offset, len(body))
                body = body[
                    : max(size, self._bytes_max - result.size) if self.fills is not None else size
                ]
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
            self._ended = True  # What follows is most likely no smaller.
        if decoded.failed is not None and not self._ended:
            self._refuse(result.next_offset, decoded.failed)

    def _carried(self, records: Sequence[Record]) -> list[Record]:
        """Those that the format can carry; marks for the others where the topic wants them."""
        carries = self._codec.carries
        if self._partition.log.settings.uncarried_records is UncarriedRecords.MARK:
            return [record if carries(record) else marked(record) for record in records]
        return [record for record in records if carries(record)]

    def _fitting(self, encoded: bytes, base_offset: int, readable_bytes: int) -> tuple[int, int]:
        """How many encoded records fit, and their bytes; one at least if it is the first of all."""
        room = self._bytes_max - self.result.size
        head = len(encoded) - readable_bytes
        ends = [pos - head for _, pos in self._codec.split(encoded, base_offset)[1:]]
        ends.append(readable_bytes)
        fitting = max(bisect_right(ends, room), 0 if self.result.parts else 1)
        return fitting, ends[fitting - 1] if fitting else 0
