"""The work of a task: the rows of a span, in Spark's form. Stateless between tasks.

Knows log reader, decoder and table; of Spark only the classes for pickling.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from braidlog.storage.errors import OffsetOutOfRange, UnreadableBody
from braidlog.storage.export.files import DeadFile
from braidlog.storage.export.places import open_log
from braidlog.storage.export.process import tune_process
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.readers import ExportPartition
from braidlog.storage.export.rows import BadBody, RangeRows
from braidlog.storage.export.source.offsets import DataLoss
from braidlog.storage.export.source.options import OnCorrupt
from braidlog.storage.export.source.table import Table
from braidlog.storage.export.source.value_schemas import TopicValues, Values
from braidlog.storage.formats.columns.records import ColumnTarget

NO_FORMAT = 0  # In a dead letter that is a value, not a stored body.

log = logging.getLogger("braidlog.spark")


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings of a read, the same for every task."""

    place: str
    table: Table
    fail_on_loss: bool = True
    corrupt: OnCorrupt = "fail"
    dead_letters: str | None = None
    values: Values | None = None

    def rows(self, span: Range) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a span. Raises DataLoss, UnreadableBody, DamagedLog, OSError."""
        tune_process()
        with closing(_DeadLetters(self, span)) as dead:
            yield from self._rows(span, dead)
            dead.finish()

    def _rows(self, span: Range, dead: "_DeadLetters") -> Iterator[pa.RecordBatch]:
        start = span.start
        values = None if self.values is None else self.values.of(span.topic)
        while start < span.end:
            try:
                place = (span.topic, span.index, span.partition_id)
                with open_log(self.place).open(*place) as reader:
                    start = self._first(span, start, reader)
                    for batch in self._decoded(span, start, reader, dead):
                        start = batch["offset"][-1].as_py() + 1
                        yield self._shaped(batch, span, values, dead)
                    return
            except OffsetOutOfRange as error:  # Retention was faster.
                if self.fail_on_loss or error.log_start_offset <= start:
                    raise _loss(span, start, error.log_start_offset) from None
                start = error.log_start_offset
            except FileNotFoundError:
                if self.fail_on_loss:
                    raise DataLoss(f"{span.topic} partition {span.index} is gone") from None
                return

    def _shaped(
        self,
        batch: pa.RecordBatch,
        span: Range,
        values: TopicValues | None,
        dead: "_DeadLetters",
    ) -> pa.RecordBatch:
        """Return the rows with decoded values.

        `corrupt` decides about values that do not decode: a dead letter has no row, a skipped value
        is null.
        """
        if values is None:
            return self.table.shaped(batch, span.topic)
        data, bad = values.decode(batch)
        for undecodable in bad:
            offset, value = (
                batch["offset"][undecodable.row].as_py(),
                batch["value"][undecodable.row].as_py(),
            )
            dead.set_aside(BadBody(offset, 1, NO_FORMAT, undecodable.reason, value))
        rows = self.table.shaped(batch, span.topic, data)
        if bad and self.corrupt == "deadletter":
            keep = np.ones(rows.num_rows, bool)
            keep[[undecodable.row for undecodable in bad]] = False
            rows = rows.filter(pa.array(keep))
        return rows

    def _first(self, span: Range, start: int, reader: ExportPartition) -> int:
        if self.fail_on_loss and reader.high_watermark < span.end:
            raise DataLoss(
                f"{span.topic} partition {span.index}: the log ends at "
                f"{reader.high_watermark}, not {span.end}: is it an older one?"
            )
        if start >= reader.log_start_offset:
            return start
        if self.fail_on_loss:
            raise _loss(span, start, reader.log_start_offset)
        log.warning("%s", _loss(span, start, reader.log_start_offset))
        return reader.log_start_offset

    def _decoded(
        self, span: Range, start: int, reader: ExportPartition, dead: "_DeadLetters"
    ) -> Iterator[pa.RecordBatch]:
        if start >= span.end:
            return iter(())
        target = ColumnTarget(span.partition_id, span.index, self.table.stored | {"offset"})
        return iter(RangeRows(reader, start, span.end, target, dead.set_aside))


class _DeadLetters:
    """Handling of bodies without a row, by option `corrupt`."""

    def __init__(self, reading: ReadSettings, span: Range) -> None:
        self._corrupt = reading.corrupt
        self._span = span
        self._file: DeadFile | None = None
        if reading.dead_letters is not None:
            folder = Path(reading.dead_letters)
            folder.mkdir(parents=True, exist_ok=True)
            self._file = DeadFile(folder, span, 0)

    def set_aside(self, bad: BadBody) -> None:
        """Set a body aside. Raises UnreadableBody if the read must fail."""
        if self._file is not None:
            self._file.add(bad)
        elif bad.is_damage and self._corrupt == "fail":
            raise UnreadableBody(
                f"offset {bad.offset} of {self._span.topic} partition {self._span.index} "
                f"cannot be opened: {bad.reason}; option corrupt can skip it or set it aside"
            )
        else:
            log.warning("offset %s of %s has no row: %s", bad.offset, self._span.topic, bad.reason)

    def finish(self) -> None:
        """Name the file after the span, so that a repeated task overwrites its own file."""
        if self._file is None:
            return
        written = self._file.finish()
        if written is not None:
            path = Path(written.staged)
            path.replace(path.parent / Path(written.final).name)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _loss(span: Range, start: int, log_start: int) -> DataLoss:
    return DataLoss(
        f"{span.topic} partition {span.index}: offsets {start} to {log_start - 1} are no "
        "longer in the log (failOnDataLoss=false goes on behind them)"
    )
