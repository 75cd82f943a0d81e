"""A read of a partition under way: the next request to the log, and the end of the read.

Subclasses decide how records are returned. Knows formats only through the codec interface.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import trio

from braidlog.broker.errors import BrokerError, UnreadableRecord
from braidlog.broker.limits import (
    DECODE_BYTES_MAX,
    DECODE_INLINE_BYTES,
    DECODE_INLINE_RECORDS,
    DECODE_RECORDS_MAX,
    DECODE_RECORDS_MIN,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    READ_FIRST_BYTES,
    READ_FIRST_COUNTED_BYTES,
    READ_PARTS_MAX,
    READ_PIECE_BYTES,
    READ_TURN_BATCHES,
    WALK_BYTES_MAX,
)
from braidlog.broker.reading.chunks import join_chunks
from braidlog.broker.reading.cutting import CutBatches
from braidlog.broker.reading.result import ReadResult, record_bytes
from braidlog.broker.reading.turn import BATCH_US, TURN_US_MAX, Turn, decoding_us
from braidlog.broker.reading.unopened import Passed, cannot_decode, pass_unreadable
from braidlog.broker.reading.unpacking import run_packing, run_unpacking
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import Steps
from braidlog.storage.errors import BodyError, UnreadableBody
from braidlog.storage.formats.api import BatchFlag, Decoded, without_frames
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.batch import HEADER_BYTES
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.large import LargeBody, refusing_large
from braidlog.storage.log.segment_reading import Trusted

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch


DELAYED = int(BatchFlag.DELAYED)  # An operator of a flag class costs a microsecond.


class _Full(Exception):
    """The next batch is large: the answer ends before it."""


@cache  # A format is a single byte.
def trust_of(body_format: int) -> tuple[Trusted, Trusted]:
    """Return the checks that a read skips for readers that check bodies of that format themselves.

    With the second value, the first batch may come cut.
    """
    return Trusted(body_format), Trusted(body_format, may_be_cut=True)


class StoredRead(abc.ABC):
    """A read under way. Subclasses define how decoded records are returned."""

    # True if `_give` encodes records: a large record is then encoded in a thread.
    encodes: ClassVar[bool]

    def __init__(
        self,
        partition: Partition,
        body_format: int,
        result: ReadResult,
        bytes_max: int,
        records_max: int | None,
    ) -> None:
        """`body_format` is the format of bodies that need no decoding; 0: none."""
        self.result = result
        self._partition = partition
        self._format = body_format
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._asked_offset = result.next_offset
        # A reader that followed the growing end could read for as long as producers write.
        self._end_offset = partition.high_watermark
        self._walked_bytes = 0  # stored in other formats
        self._record_bytes = 0  # of the latest record that was decoded for this reader
        # to request from the log at once
        self._piece_bytes = READ_FIRST_BYTES if records_max is None else READ_FIRST_COUNTED_BYTES
        self._last_bytes = 0  # of the latest batch
        self._batch_bytes = 0  # of the largest batch for which `memory` has grown
        self._is_placed = False  # True if large batches were taken in place.
        self._ended = False
        self.fills: CutBatches | None = None  # See `read_steps`.
        self.in_place = False  # See `read_steps`.
        self.cold_in_place = False  # See `read_steps`.
        self.trusted: tuple[Trusted, Trusted] | None = None  # See `trust_of`.
        self.passed: list[Passed] = []
        self.turn = Turn(TURN_US_MAX)  # See `read_steps`.
        self.parts_max = READ_PARTS_MAX
        # Of the answer: grows for a record larger than DECODE_BYTES_MAX.
        self.memory: OutputReservation | None = None

    def steps(self) -> Steps[None]:
        """Read until the answer is complete. Raises BrokerError only if nothing was read before the
        error.
        """
        result = self.result
        self._partition.check_readable(self._asked_offset, self._format)
        try:
            while not self.is_full and (yield from self._take_next()):
                if result.next_offset >= self._end_offset:
                    break
        except BrokerError:
            if not result.record_count:
                raise

    @property
    def _expect(self) -> Callable[[int], Awaitable[None]] | None:
        return None if self.memory is None else self.memory.expect

    @property
    def is_full(self) -> bool:
        """True if the read is over."""
        result = self.result
        if self._ended or self._records_left <= 0:
            return True
        if result.record_count:
            return result.size >= self._bytes_max or len(result.parts) >= self.parts_max
        return self._walked_bytes >= WALK_BYTES_MAX

    @property
    def bytes_wanted(self) -> int:
        """Return the stored bytes to request next: no more than the wanted records likely take."""
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
        """Read on; False at the high watermark. Raises BrokerError: records taken before stay."""
        offset, wanted = self.result.next_offset, self.bytes_wanted
        if self.in_place and self._take_in_place(offset, wanted):
            return True
        beyond, may_be_cut = None, False
        if self.fills is not None:
            may_be_cut = self._is_placed and wanted == self._bytes_max - self.result.size
            beyond = 0 if may_be_cut else self._bytes_beyond(wanted)
        trusted = None if self.trusted is None else self.trusted[may_be_cut]
        batches: Sequence[Batch] | None = self._partition.read_warm(offset, wanted, beyond, trusted)
        if batches is None:
            before_large = self._before_large
            try:
                batches = yield self._partition.read(
                    offset, wanted, beyond, before_large=before_large
                )
            except _Full:
                self._ended = True
                return True
            if self.cold_in_place and self._take_in_place(offset, wanted):
                return True  # The read in the thread has checked the batches.
        if batches and (size := self._uncounted_bytes(batches[0])):
            del batches  # The batch is read again once memory is free.
            if self.result.record_count:
                self._ended = True
                return True
            assert self.memory is not None
            yield self.memory.grow(size, copies=1)
            self._batch_bytes = size  # At least the bytes of the batch.
            batches = yield self._partition.read(offset, wanted, beyond)
        batches_taken = self._take_whole(batches)
        for batch in islice(batches, batches_taken, None):
            if self.is_full:
                break
            yield from self._take(batch)
        if batches:
            last = batches[-1]
            self._expect_more_like(last)
            size = sum([batch.header.body_bytes for batch in batches])
            self._learn(last.header.body_bytes, size // len(batches))
        if len(batches) >= READ_TURN_BATCHES:
            yield trio.lowlevel.checkpoint()
        return bool(batches)

    async def _before_large(self, size: int) -> None:
        """Hold memory for a large batch that is read next. Raises _Full."""
        if self.result.record_count:
            raise _Full
        if self.memory is not None:
            await self.memory.grow(size)
            self._batch_bytes = max(size, self._batch_bytes)

    def _uncounted_bytes(self, batch: Batch) -> int:
        """Return the bytes of a large batch for which the answer's memory has not grown and cannot
        grow now.

        A batch of the reader's own format becomes the answer at once. A batch of another format is
        in memory while waiting for a thread, beside the answer.
        """
        header, memory = batch.header, self.memory
        size = header.body_bytes
        if memory is None or size <= READ_PIECE_BYTES or size <= self._batch_bytes:
            return 0
        is_own = header.body_format == self._format
        if is_own and (size <= DECODE_BYTES_MAX or size * memory.copies <= memory.size):
            return 0
        if memory.grow_now(size - self._batch_bytes, copies=memory.copies if is_own else 1):
            self._batch_bytes = size
            return 0
        return size * (memory.copies if is_own else 1)

    def _learn(self, last_bytes: int, mean_bytes: int) -> None:
        """Expect the next batches to be as large as the last batch and as the mean so far."""
        self._last_bytes = last_bytes
        piece = mean_bytes * READ_PARTS_MAX
        self._piece_bytes = min(max(piece, READ_BYTES_MIN), READ_BYTES_MAX)

    def _take_in_place(self, offset: int, wanted: int) -> bool:
        """Add large batches without reading them; False if the next batch is not large."""
        run = self._partition.read_in_place(offset, wanted, self._format)
        if run is None:
            return False
        result = self.result
        result.as_stored = result.as_stored or not result.parts
        result.add(run.bodies, run.record_count, offset)
        result.next_offset = run.next_offset
        self._last_bytes = run.last_bytes
        self._is_placed = True
        if self.fills is None:  # As in `_expect_more_like`.
            self._ended |= result.size + run.last_bytes > self._bytes_max
        return True

    def _bytes_beyond(self, wanted: int) -> int:
        """Return how far the batch at the end of the wanted bytes likely reaches beyond them.

        Assumes that all batches are as large as the last batch.
        """
        if not self._last_bytes:
            return 0
        count = -(-wanted // self._last_bytes)
        return count * (self._last_bytes + HEADER_BYTES) - wanted

    def _expect_more_like(self, batch: Batch) -> None:
        """End the read if a batch as large as the last batch has no room.

        The next batch is most likely no smaller, and would be read for nothing.
        """
        if batch.header.body_format == self._format and self.result.parts and self.fills is None:
            self._ended |= self.result.size + len(batch.body) > self._bytes_max

    def _take(self, batch: Batch) -> Steps[None]:
        """Add the batch's records for this reader, from `next_offset` on."""
        header = batch.header
        if header.flags & BatchFlag.GAP:
            self.result.next_offset = batch.next_offset
        elif header.body_format == self._format:
            self._take_stored(batch)
        else:
            yield from self._take_foreign(batch)

    def _take_whole(self, batches: Sequence[Batch]) -> int:
        """Add the first batches that need not be opened, and return their number."""
        return 0

    @abc.abstractmethod
    def _take_stored(self, batch: Batch) -> None:
        """Add records of a batch of the reader's own format."""

    @abc.abstractmethod
    def _give(self, batch: Batch, decoded: Decoded) -> None:
        """Add the decoded records that have room, and continue after them."""

    def _take_foreign(self, batch: Batch) -> Steps[None]:
        self._walked_bytes += len(batch.body)
        self.result.has_delays |= bool(batch.header.flags & DELAYED)
        policy = self._partition.log.settings.unreadable_records
        while self.result.next_offset < batch.next_offset and not self.is_full:
            decoded = yield from self._decode(batch)
            passed = pass_unreadable(policy, batch, decoded)
            if passed is not None:
                self.passed.append(passed)
            if not decoded.records and decoded.failed is None and passed is None:
                self.result.next_offset = batch.next_offset
                continue
            if (size := _large_bytes(decoded)) and self.encodes:
                yield run_packing(partial(self._give, batch, decoded), size)
            else:
                self._give(batch, decoded)
            if decoded.failed is not None and not self._ended:
                self._refuse(self.result.next_offset, decoded.failed)
            if passed is not None and not passed.is_raw and self.result.next_offset >= passed.end:
                # Otherwise a later read returns these offsets.
                self.result.left_out += passed.end - passed.start

    def _decode(self, batch: Batch) -> Steps[Decoded]:
        """Return the next records of a body, with whole messages in the place of their
        last chunks.
        """
        try:
            stored = codec_for(batch.header.body_format)
        except UnreadableBody as error:
            return cannot_decode(batch, self.result.next_offset, error)
        decoded = yield from self._decode_whole(stored, batch)
        memory = self.memory
        if memory is not None and not memory.hold_built(size := _large_bytes(decoded)):
            # The size is known only now. The record is decoded again once memory is free.
            del decoded
            yield memory.expect(size)
            decoded = yield from self._decode_whole(stored, batch)
            memory.hold_built(_large_bytes(decoded))
        return decoded

    def _decode_whole(self, stored: Codec, batch: Batch) -> Steps[Decoded]:
        decoded = yield from self._decode_piece(stored, batch)
        if batch.header.flags & BatchFlag.CHUNK:
            yield self._join(stored, batch, decoded)
        return decoded

    def _decode_piece(self, stored: Codec, batch: Batch) -> Steps[Decoded]:
        """Decode the next piece of a body; in a thread if slow: compressed bodies may inflate.

        Uncompressed bodies up to READ_PIECE_BYTES stay in the loop, in short pieces: a decoding
        thread takes turns with the loop, and delays the loop for longer than the thread works.
        """
        header, size = batch.header, len(batch.body)
        is_compressed = bool(header.flags & BatchFlag.COMPRESSED)
        wanted = self._records_wanted(batch, is_compressed)

        def decode() -> Decoded:
            return stored.decode(
                batch.body,
                batch.base_offset,
                header.append_us,
                start_offset=self.result.next_offset,
                records_max=wanted,
                bytes_max=DECODE_BYTES_MAX,
            )

        decoded: Decoded
        if is_compressed:
            if size <= DECODE_INLINE_BYTES:
                yield from self.turn.give_way(BATCH_US + TURN_US_MAX)
                try:
                    with refusing_large():
                        return decode()
                except LargeBody:
                    pass  # Large bodies are decoded in the thread.
            # The memory for a single large record is known before decoding. With several records,
            # each piece is most likely small.
            before_large = self._expect if header.record_count == 1 else None
            decoded = yield run_unpacking(decode, before_large=before_large)
        elif size > READ_PIECE_BYTES:
            decoded = yield run_packing(decode, size)
        else:
            count = min(wanted, header.record_count)
            yield from self.turn.give_way(BATCH_US + decoding_us(count, size))
            decoded = decode()
        return decoded

    def _records_wanted(self, batch: Batch, is_compressed: bool) -> int:
        """Return the records of the batch to decode next: as many as likely have room."""
        stored = len(batch.body) // max(batch.header.record_count, 1)
        room = max(self._bytes_max - self.result.size, 0)
        wanted = min(room, READ_PIECE_BYTES) // max(stored, self._record_bytes, 1) + 1
        piece = DECODE_RECORDS_MAX if is_compressed else DECODE_INLINE_RECORDS
        return min(max(wanted, DECODE_RECORDS_MIN), piece, self._records_left)

    async def _join(self, stored: Codec, batch: Batch, decoded: Decoded) -> None:
        """Put whole messages in the place of their last chunks, and leave out all other chunks."""
        whole: list[Record] = []
        for record in decoded.records:
            if record.chunk is None:
                whole.append(record)
                continue
            try:
                joined = await join_chunks(
                    self._partition, stored, batch, record, before_large=self._expect
                )
            except BodyError as error:
                decoded.failed, decoded.failed_offset = without_frames(error), record.offset
                decoded.next_offset = record.offset
                break
            if joined is not None:
                whole.append(joined)
                # A large message at a time: the next piece joins the messages that follow.
                if len(joined.value or b"") > DECODE_BYTES_MAX:
                    decoded.next_offset = record.offset + 1  # are joined by the next piece.
                    decoded.failed = decoded.failed_offset = None
                    break
        decoded.records = whole

    def _refuse(self, offset: int, error: BodyError) -> None:
        """End the read before a record that cannot be opened; raise if that record is the first."""
        if not self.result.record_count:
            partition = self._partition
            place = f"offset {offset} of {partition.topic.name.full}, partition {partition.index}"
            text = f"{place}: {error}"
            partition.unreadable.add(self._asked_offset, self._format, text)
            raise UnreadableRecord(text)
        self._ended = True


def _large_bytes(decoded: Decoded) -> int:
    """Return the bytes of the last record if large: a decoded piece ends with such a record."""
    if not decoded.records:
        return 0
    size = record_bytes(decoded.records[-1])
    return size if size > DECODE_BYTES_MAX else 0
