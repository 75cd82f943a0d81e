"""The records of a range of a partition as Arrow batches, in offset order.

The column decoder of a body format decodes several batches together. The plain codec handles the
remaining batches. The caller receives the bodies that cannot be opened. Knows codecs and a log
reader, no Spark and no file.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute

from braidlog.storage.errors import BodyError, UnreadableBody
from braidlog.storage.export.chunks import CHUNK_LIMITS, ChunkJoiner, ChunkLimits, Incomplete
from braidlog.storage.export.readers import ExportPartition
from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.base import Codec
from braidlog.storage.formats.batch import Batch
from braidlog.storage.formats.columns.records import (
    Columns,
    ColumnTarget,
    records_to_batch,
    to_batch,
)
from braidlog.storage.formats.columns.vectors import Irregular
from braidlog.storage.formats.pulsar.columns import places_of
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for, column_decoder_for

WINDOW_BYTES = 4 << 20  # Bodies decoded together: numpy pays off from a few hundred records on.
WINDOW_BATCHES = 20_000
# Records decoded together, in whole batches. Each record briefly takes some 300 bytes, however
# small the record is.
WINDOW_RECORDS = 200_000
PAGE_RECORDS = 100_000  # Plain records held at a time, and their keys and values together.
PAGE_BYTES = 16 << 20

SLOW_FLAGS = BatchFlag.OPAQUE | BatchFlag.CHUNK | BatchFlag.MARKER

# Errors that a column decoder may raise for malformed bytes.
NOT_REGULAR = (Irregular, BodyError, IndexError, ValueError, OverflowError, struct.error)


@dataclass(slots=True, frozen=True)
class BadBody:
    """Records without a row: `count` offsets from `offset` on, their stored bytes, and the reason.

    `is_damage` is False if no reader can get the record and no repair helps: a chunked message
    whose other pieces are not in the log.
    """

    offset: int
    count: int
    body_format: int
    reason: str
    body: bytes
    is_damage: bool = True


SetAside = Callable[[BadBody], None]


class RangeRows:
    """Rows of the offsets [start, end) of a partition."""

    def __init__(
        self,
        reader: ExportPartition,
        start: int,
        end: int,
        target: ColumnTarget,
        set_aside: SetAside,
        limits: ChunkLimits = CHUNK_LIMITS,
    ) -> None:
        """Set up a read; if `set_aside` does not raise, the rows continue after the bad records."""
        self._reader = reader
        self._start = start
        self._end = end
        self._target = target
        self._set_aside = set_aside
        self._joiner = ChunkJoiner(reader, start, limits)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of some MB. Raises the errors of the reader and of `set_aside`."""
        window: list[Batch] = []
        size = records = 0
        for batch in self._reader.batches(self._start, self._end):
            if batch.header.flags & BatchFlag.GAP:
                continue
            if records + batch.header.record_count > WINDOW_RECORDS:
                yield from self._rows_of(window)
                window, size, records = [], 0, 0
            window.append(batch)
            size += len(batch.body)
            records += batch.header.record_count
            if size >= WINDOW_BYTES or len(window) >= WINDOW_BATCHES:
                yield from self._rows_of(window)
                window, size, records = [], 0, 0
        yield from self._rows_of(window)

    def _rows_of(self, window: Sequence[Batch]) -> Iterator[pa.RecordBatch]:
        groups: dict[int, list[Batch]] = defaultdict(list)
        slow = 0
        for batch in window:
            is_slow = batch.header.flags & SLOW_FLAGS or batch.header.body_version != 1
            slow += bool(is_slow)
            groups[-slow if is_slow else batch.header.body_format].append(batch)
        if len(groups) <= 1:
            for body_format, batches in groups.items():
                yield from self._group(body_format, batches)
            return
        parts = [part for key, group in groups.items() for part in self._group(key, group)]
        if parts:
            yield self._in_order(parts)

    def _in_order(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Merge the batches of all formats in the order of the log."""
        table = pa.Table.from_batches(parts)
        if "offset" in self._target.names:
            table = table.take(pa.compute.sort_indices(table["offset"]))
        return table.combine_chunks().to_batches()[0] if table.num_rows else parts[0]

    def _group(self, body_format: int, batches: Sequence[Batch]) -> Iterator[pa.RecordBatch]:
        is_large = batches[0].header.record_count > WINDOW_RECORDS  # A large batch is alone.
        columns = None if body_format < 0 or is_large else self._columns(batches)
        if columns is not None:
            name = codec_for(batches[0].header.body_format).name
            if len(columns.offset):
                yield to_batch(columns, self._target, name)
        elif len(batches) == 1:
            yield from self._plainly(batches[0])
        else:
            # A batch may be damaged, or all batches together unpack to too much.
            half = len(batches) // 2
            yield from self._group(body_format, batches[:half])
            yield from self._group(body_format, batches[half:])

    def _columns(self, batches: Sequence[Batch]) -> Columns | None:
        """Return None if the batches need smaller parts, in the end a single batch by the plain
        codec.
        """
        try:
            codec = codec_for(batches[0].header.body_format)
            decode = column_decoder_for(codec)
            if decode is None:
                return None
            columns: Columns = decode(batches)
        except NOT_REGULAR:
            return None
        return columns.where((columns.offset >= self._start) & (columns.offset < self._end))

    def _plainly(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Decode a batch by the plain codec, some records at a time."""
        header = batch.header
        offset, end = max(batch.base_offset, self._start), min(batch.next_offset, self._end)
        try:
            codec = codec_for(header.body_format)
            if header.body_version > codec.version:
                raise UnreadableBody(f"{codec.name} body of version {header.body_version}")
        except UnreadableBody as error:
            self._aside(batch, offset, end - offset, str(error), bytes(batch.body))
            return
        while offset < end:
            decoded = codec.decode(
                batch.body,
                batch.base_offset,
                header.append_us,
                start_offset=offset,
                records_max=PAGE_RECORDS,
                bytes_max=PAGE_BYTES,
            )
            records = [record for record in decoded.records if record.offset < end]
            records = [whole for record in records for whole in self._whole(batch, codec, record)]
            if records:
                places = None
                if codec.format == BodyFormat.PULSAR and "messageId" in self._target.names:
                    places = places_of(batch.body, batch.base_offset)
                yield records_to_batch(records, self._target, codec.name, places)
            offset = max(decoded.next_offset, offset)
            if decoded.failed is not None:
                failed = offset if decoded.failed_offset is None else decoded.failed_offset
                offset = self._pass_over(batch, codec, max(failed, offset), end, decoded.failed)
            elif not decoded.records:
                break

    def _whole(self, batch: Batch, codec: Codec, record: Record) -> Sequence[Record]:
        """Return the record; for the last piece of a chunked message, the whole message."""
        if record.chunk is None:
            return [record]
        try:
            joined = self._joiner.whole(codec, record)
        except (BodyError, Incomplete) as error:
            damage = not isinstance(error, Incomplete)
            value = record.value or b""
            self._aside(batch, record.offset, 1, str(error), value, is_damage=damage)
            return []
        return [] if joined is None else [joined]

    def _pass_over(
        self, batch: Batch, codec: Codec, offset: int, end: int, error: BodyError
    ) -> int:
        """Set the entry with this offset aside; return the offset after the entry."""
        body, following = bytes(batch.body), end
        if offset >= end:
            return end
        try:
            starts = codec.split(batch.body, batch.base_offset, start_offset=offset, starts_max=2)
        except BodyError:
            starts = []
        if len(starts) == 2 and starts[0][0] <= offset < starts[1][0]:
            body = body[starts[0][1] : starts[1][1]]
            following = min(starts[1][0], end)
        self._aside(batch, offset, following - offset, str(error), body)
        return following

    def _aside(
        self,
        batch: Batch,
        offset: int,
        count: int,
        reason: str,
        body: bytes,
        *,
        is_damage: bool = True,
    ) -> None:
        body_format = batch.header.body_format
        self._set_aside(BadBody(offset, count, body_format, reason, body, is_damage))
