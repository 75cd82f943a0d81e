"""Cuts stored bodies, and keeps the rest of a batch that an answer had room for only in part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.broker.limits import CUT_BATCHES_MAX, CUT_READ_BYTES_MAX
from braidlog.storage.formats.api import RECORDS_MAX
from braidlog.storage.formats.base import Codec

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.storage.formats.batch import Batch


@dataclass(slots=True)
class BatchRest:
    """The rest of a stored batch, not returned yet."""

    offset: int  # of the first record of the rest
    next_offset: int  # after the batch
    body: memoryview  # whole entries
    batch_bytes: int  # of the body that the rest belongs to


class CutBatches:
    """Rests of batches that were returned in part, by the offset of the next read.

    A kept rest need not be read and checked again.
    """

    def __init__(self) -> None:
        """Begin with no rests."""
        self._rests: deque[tuple[int, BatchRest]] = deque(maxlen=CUT_BATCHES_MAX)

    def keep(self, partition: Partition, codec: Codec, rest: BatchRest, count: int) -> None:
        """Keep the rest after the whole entries in the first `given` bytes; replaces the oldest
        rest.

        Keeps nothing if compaction can change the rest or the rest holds much memory.
        """
        body = rest.body
        with memoryview(body.obj) as memory:  # All memory that was read together with the body.
            size = memory.nbytes
        if size <= CUT_READ_BYTES_MAX and not partition.wants_keys:  # Compaction removes records.
            offset, pos = codec.start_before(body, rest.offset, count)
            left = BatchRest(offset, rest.next_offset, body[pos:], rest.batch_bytes)
            self._rests.append((partition.partition_id, left))

    def take(self, partition: Partition, offset: int) -> BatchRest | None:
        """Remove and return the rest that begins at that offset.

        Raises as `Partition.read_warm` does if the partition is gone.
        """
        rests = self._rests
        if not rests:
            return None
        sought = partition.partition_id
        for number, (partition_id, rest) in enumerate(rests):
            if rest.offset == offset and partition_id == sought:
                partition.check_here()
                if partition.wants_keys or offset < partition.log_start_offset:
                    return None
                del rests[number]
                return rest
        return None


def cut_body(
    codec: Codec, batch: Batch, start_offset: int, records_max: int | None
) -> tuple[memoryview, int, int]:
    """Return the entries of a stored body from `start_offset` on: bytes, record count, next offset.

    An entry of several records (a compressed set, a batched entry) is returned whole; from the
    first such entry on, offsets give the record count.
    """
    header, body = batch.header, batch.body
    if header.record_count <= header.last_offset_delta:
        return _cut_sparse_body(codec, batch, start_offset, records_max)
    # Without a limit the first start suffices; else one start beyond the limit.
    starts_max = 1 if records_max is None else records_max + 1
    starts = codec.split(body, batch.base_offset, start_offset=start_offset, starts_max=starts_max)
    if records_max is None:
        stop_pos, next_offset = len(body), batch.next_offset
    else:
        last = bisect_left(starts, start_offset + records_max, key=_offset_of)
        stop_pos, next_offset = _place(starts, last, batch)
    start_pos, _ = _place(starts, 0, batch)
    return body[start_pos:stop_pos], next_offset - start_offset, next_offset


def _cut_sparse_body(
    codec: Codec, batch: Batch, start_offset: int, records_max: int | None
) -> tuple[memoryview, int, int]:
    """As `cut_body`, after compaction removed records: offsets alone do not give the count."""
    starts = codec.split(batch.body, batch.base_offset)
    most = RECORDS_MAX if records_max is None else records_max
    # An entry may begin with removed offsets, so search for the first record itself.
    header = batch.header
    decoded = codec.decode(
        batch.body, batch.base_offset, header.append_us, start_offset=start_offset, records_max=1
    )
    if not decoded.records and decoded.failed is None:
        return batch.body[:0], 0, batch.next_offset
    first_offset = decoded.records[0].offset if decoded.records else start_offset
    first = max(bisect_right(starts, first_offset, key=_offset_of) - 1, 0)
    if len(starts) == header.record_count:
        last = min(first + most, len(starts))
        count = last - first
    else:
        last = bisect_left(starts, start_offset + most, key=_offset_of)
        last = max(last, min(first + 1, len(starts)))
        count = (starts[last][0] if last < len(starts) else batch.next_offset) - start_offset
    start_pos, _ = _place(starts, first, batch)
    stop_pos, next_offset = _place(starts, last, batch)
    return batch.body[start_pos:stop_pos], count, next_offset


def _place(starts: Sequence[tuple[int, int]], number: int, batch: Batch) -> tuple[int, int]:
    """Return byte position and offset of an entry's start, or of the end of the batch."""
    if number == len(starts):
        return len(batch.body), batch.next_offset
    offset, pos = starts[number]
    return pos, offset


def _offset_of(start: tuple[int, int]) -> int:
    return start[0]
