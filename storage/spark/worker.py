"""The work of one task, inside a Spark Python worker: read a range, decode it, write Parquet.

The worker writes the files itself: rows never cross into the JVM. Every failure comes back as a
value, since Spark would wrap an exception into pages of trace and try the same again.
"""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as parquet

from storage.codecs.api import BatchFlag, Codec
from storage.codecs.record import Record
from storage.codecs.registry import codec_for
from storage.errors import BodyError, StorageError, UnreadableBody
from storage.log.batch import Batch
from storage.log.reader import ReadOnlyLog
from storage.spark.chunks import ChunkJoiner
from storage.spark.columns import timestamp_us, to_arrow
from storage.spark.commit import ExportFolder, Intent, StagedFile, day_of, sync_file
from storage.spark.ranges import Range
from storage.spark.schema import FILE_SCHEMA

FLUSH_ROWS = 20_000  # Rows turned into Arrow at once: a few MB of small records.
FLUSH_BYTES = 8 << 20
ROW_GROUP_ROWS = 1 << 20

_DELTA = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
_LENGTHS = {"key": "DELTA_LENGTH_BYTE_ARRAY", "value": "DELTA_LENGTH_BYTE_ARRAY"}

DEAD_LETTER_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("bodyFormat", pa.int32()),
        ("reason", pa.string()),
        ("body", pa.binary()),
    ]
)


class TaskFailed(msgspec.Struct, frozen=True):
    """Why a range could not be exported, for the operator."""

    text: str


class DeadLetters(msgspec.Struct, frozen=True):
    """Bodies set aside: how many, and the file that holds them."""

    count: int
    file: StagedFile


OnCorrupt = Literal["fail", "deadletter"]
Outcome = StagedFile | DeadLetters | TaskFailed


class Job(msgspec.Struct, frozen=True):
    """What every task of a run is told."""

    root: str
    intent: Intent
    on_corrupt: OnCorrupt


def write_range(job: Job, part: Range) -> list[Outcome]:
    """Export one range into staged files, one for each day of its records."""
    pa.set_cpu_count(1)  # One task a core is all the parallelism there should be.
    try:
        with ReadOnlyLog(part.folder) as log:
            return _write_log(job, part, log)
    except (StorageError, OSError) as error:
        return [TaskFailed(f"partition {part.index}: {error}")]


def _write_log(job: Job, part: Range, log: ReadOnlyLog) -> list[Outcome]:
    writer = _RangeWriter(job, part, log)
    try:
        for batch in log.batches(part.start, part.end):
            writer.add(batch)
        return writer.finish()
    finally:
        writer.close()


class _RangeWriter:
    """Gathers rows by day and writes each day's file in pieces of a few MB."""

    def __init__(self, job: Job, part: Range, log: ReadOnlyLog) -> None:
        self._job = job
        self._part = part
        self._joiner = ChunkJoiner(log, part.start)
        self._folder = ExportFolder(Path(job.root))
        self._days: dict[str, _DayFile] = {}
        self._dead: list[dict[str, object]] = []

    def add(self, batch: Batch) -> None:
        """Take the records of a batch that are in the range."""
        if batch.header.flags & BatchFlag.GAP:
            return
        try:
            codec = codec_for(batch.header.body_format)
        except UnreadableBody as error:
            self._set_aside(batch, max(batch.base_offset, self._part.start), error)
            return
        decoded = codec.decode(
            batch.body, batch.base_offset, batch.header.append_us, start_offset=self._part.start
        )
        for record in decoded.records:
            if record.offset < self._part.end:
                self._add_record(batch, codec, record)
        failed_offset = decoded.failed_offset
        if decoded.failed and failed_offset is not None and failed_offset < self._part.end:
            self._set_aside(batch, failed_offset, decoded.failed)

    def _add_record(self, batch: Batch, codec: Codec, record: Record) -> None:
        if record.chunk is not None:
            try:
                joined = self._joiner.whole(codec, record)
            except BodyError as error:
                self._set_aside(batch, record.offset, error)
                return
            if joined is None:
                return
            record = joined
        day = day_of(timestamp_us(record))
        file = self._days.get(day)
        if file is None:
            file = self._days[day] = _DayFile(self._staged(), self._part)
        file.add(codec.name, record)

    def finish(self) -> list[Outcome]:
        """Close every file; what the driver has to publish."""
        intent = self._job.intent
        done: list[Outcome] = []
        for day, file in self._days.items():
            done.append(file.finish(self._folder.final_path(intent.topic, self._part, day)))
        if self._dead:
            done.append(self._finish_dead())
        return done

    def close(self) -> None:
        """Close what is open; what was staged and not published goes with the run."""
        for file in self._days.values():
            file.close()

    def _staged(self) -> Path:
        return self._folder.staging(self._job.intent.run) / f"{uuid.uuid4().hex}.parquet"

    def _set_aside(self, batch: Batch, offset: int, reason: BodyError) -> None:
        if self._job.on_corrupt == "fail":
            raise UnreadableBody(f"offset {offset} cannot be opened: {reason}")
        self._dead.append(
            {
                "partition": self._part.index,
                "offset": offset,
                "bodyFormat": batch.header.body_format,
                "reason": str(reason),
                "body": bytes(batch.body),
            }
        )

    def _finish_dead(self) -> DeadLetters:
        path = self._staged()
        table = pa.Table.from_pylist(self._dead, schema=DEAD_LETTER_SCHEMA)
        parquet.write_table(table, path)
        sync_file(path)
        final = self._folder.dead_letter_path(self._job.intent.run, self._part)
        count = len(self._dead)
        return DeadLetters(count, StagedFile(str(path), final, count, path.stat().st_size, 0, 0))


class _DayFile:
    """One Parquet file in the making."""

    def __init__(self, path: Path, part: Range) -> None:
        self._path = path
        self._part = part
        self._rows: list[tuple[str, Record]] = []
        self._bytes = 0
        self._count = 0
        self._first_us = self._last_us = 0
        self._writer = parquet.ParquetWriter(
            path,
            FILE_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["partition", "timestampType", "protocol", "producerName"],
            column_encoding={**_DELTA, **_LENGTHS},
            write_statistics=["partition", "offset", "timestamp"],
        )

    def add(self, protocol: str, record: Record) -> None:
        """Take one record; writes when enough has come together."""
        time_us = timestamp_us(record)
        self._first_us = min(self._first_us, time_us) if self._count else time_us
        self._last_us = max(self._last_us, time_us) if self._count else time_us
        self._count += 1
        self._rows.append((protocol, record))
        self._bytes += len(record.value or b"")
        if len(self._rows) >= FLUSH_ROWS or self._bytes >= FLUSH_BYTES:
            self._flush()

    def finish(self, final: str) -> StagedFile:
        """Write the rest, durably."""
        self._flush()
        self.close()
        sync_file(self._path)
        size = self._path.stat().st_size
        return StagedFile(str(self._path), final, self._count, size, self._first_us, self._last_us)

    def close(self) -> None:
        """Close the file as it stands."""
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            rows = to_arrow(self._rows, self._part.partition_id, self._part.index)
            self._writer.write_batch(rows, row_group_size=ROW_GROUP_ROWS)
        self._rows = []
        self._bytes = 0


def run_ranges(job: Job, parts: Iterable[Range]) -> Iterator[Outcome]:
    """`write_range` over what Spark hands to one task."""
    for part in parts:
        yield from write_range(job, part)
