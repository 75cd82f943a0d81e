"""The Parquet files of one task: rows go to the file of their date, in pieces of some MB.

Knows pyarrow and the folder's layout, no log and no Spark.
"""

import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as parquet

from braidlog.storage.export.commit import StagedFile, sync_file
from braidlog.storage.export.layout import (
    NO_SLOT,
    PartitionBy,
    dead_letter_path,
    final_path,
    slots_of,
)
from braidlog.storage.export.ranges import Range
from braidlog.storage.export.rows import BadBody
from braidlog.storage.formats.columns.vectors import Array

ROW_GROUP_ROWS = 1 << 20
PENDING_BYTES_MAX = 32 << 20  # Buffered rows of all open files.
FILE_BYTES = 24 << 20  # Rows per row group of a file.
FILES_MAX = 200  # Open files of a task; records of further dates go to the folder without a date.
DEAD_BYTES_MAX = 16 << 20
# Threshold for large rows, which have large bodies or many records. Usual rows have 8 MB.
LARGE_BYTES = 12 << 20
# Memory of the process. Above this, and after large rows, Arrow returns unused memory. Otherwise
# Arrow keeps the memory for the next row group: a new request to the kernel each time costs a tenth
# of an export. Workers may hold 400 MB.
RESIDENT_BYTES_MAX = 224 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RUNS_MAX = 32  # Single-date pieces of a batch; above this, rows are gathered by date.

_DELTA = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "appendTime": "DELTA_BINARY_PACKED",
    "sequenceId": "DELTA_BINARY_PACKED",
}
_LENGTHS = {"key": "DELTA_LENGTH_BYTE_ARRAY", "value": "DELTA_LENGTH_BYTE_ARRAY"}
_DICTIONARY = ["partition", "timestampType", "protocol", "producerName", "schemaVersion"]

# The levels of each codec; other levels make Parquet's writer fail in the middle of a task.
LEVELS = {
    "zstd": range(-7, 23),
    "gzip": range(10),
    "brotli": range(12),
    "snappy": range(0),
    "lz4": range(0),
    "none": range(0),
}
LEVEL = re.compile("-?[0-9]{1,2}")

DEAD_LETTER_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("count", pa.int64()),
        ("bodyFormat", pa.int32()),
        ("reason", pa.string()),
        ("body", pa.binary()),
    ]
)


class Compression(msgspec.Struct, frozen=True):
    """Codec and level as pyarrow names them; level None is the codec's own default."""

    codec: str = "zstd"
    level: int | None = 1

    @classmethod
    def parse(cls, text: str) -> "Compression":
        """Parse `zstd:1`, `snappy`, `none`. Raises ValueError."""
        codec, _, level = text.partition(":")
        known = LEVELS.get(codec)
        if known is None or (level and not (LEVEL.fullmatch(level) and int(level) in known)):
            raise ValueError(
                f"compression {text!r}: zstd[:LEVEL], snappy, gzip[:LEVEL], lz4, brotli[:LEVEL] or "
                "none; a level is at most 22 of zstd, 9 of gzip, 11 of brotli"
            )
        return cls(codec, int(level) if level else (1 if codec == "zstd" else None))


class TableSettings(msgspec.Struct, frozen=True):
    """Format of an export's files."""

    by: PartitionBy = "date"
    time: str = "timestamp"
    compression: Compression = Compression()


def parquet_writer(
    path: Path, schema: pa.Schema, compression: Compression
) -> parquet.ParquetWriter:
    """Return a writer with the encodings that suit these columns."""
    names = set(schema.names)
    encodings = {name: code for name, code in {**_DELTA, **_LENGTHS}.items() if name in names}
    return parquet.ParquetWriter(
        path,
        schema,
        compression=compression.codec,
        compression_level=compression.level,
        use_dictionary=[name for name in _DICTIONARY if name in names],
        column_encoding=encodings,
        write_statistics=[name for name in ("partition", "offset", "timestamp") if name in names],
    )


class TaskFiles:
    """All files of a range."""

    def __init__(
        self, staging: Path, part: Range, settings: TableSettings, schema: pa.Schema
    ) -> None:
        self._staging = staging
        self._part = part
        self._settings = settings
        self._schema = schema
        self._files: dict[int, _SlotFile] = {}
        self._pending = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Put each row into the file of its date."""
        times = _times_us(batch, self._settings.time)
        slots = slots_of(times, self._settings.by)
        if not len(slots):
            return
        cuts = [0, *(np.flatnonzero(slots[1:] != slots[:-1]) + 1).tolist(), len(slots)]
        if len(cuts) <= RUNS_MAX:  # Times mostly ascend: slice the batch without a copy.
            for start, end in pairwise(cuts):
                piece = batch.slice(start, end - start)
                self._add(int(slots[start]), piece, times[start:end])
            return
        for slot in np.unique(slots).tolist():
            here = slots == slot
            self._add(slot, batch.filter(pa.array(here)), times[here])

    def _add(self, slot: int, batch: pa.RecordBatch, times: Array) -> None:
        if slot not in self._files and len(self._files) >= FILES_MAX:
            slot = NO_SLOT
        file = self._files.get(slot)
        if file is None:
            path = self._staging / f"{uuid.uuid4().hex}.parquet"
            file = self._files[slot] = _SlotFile(path, self._schema, self._settings)
        file.add(batch, times)
        self._pending += batch.nbytes
        if file.pending >= FILE_BYTES:
            self._pending -= file.flush()
        while self._pending >= PENDING_BYTES_MAX:
            largest = max(self._files.values(), key=lambda open_file: open_file.pending)
            self._pending -= largest.flush()

    def finish(self) -> list[StagedFile]:
        """Write the remaining rows durably: sync a file while the next file is written."""
        done, syncs = [], []
        with ThreadPoolExecutor(1) as syncing:
            for slot, file in self._files.items():
                final = final_path(self._part, slot, self._settings.by)
                done.append(file.finish(final, self._part.topic))
                syncs.append(syncing.submit(sync_file, Path(done[-1].staged)))
        for sync in syncs:
            sync.result()
        return done

    def close(self) -> None:
        """Close the open files; staged files that are not published go with the run."""
        for file in self._files.values():
            file.close()


class _SlotFile:
    """A Parquet file in the making."""

    def __init__(self, path: Path, schema: pa.Schema, settings: TableSettings) -> None:
        self.pending = 0
        self._path = path
        self._rows: list[pa.RecordBatch] = []
        self._count = 0
        self._first_us = self._last_us = 0
        self._writer = parquet_writer(path, schema, settings.compression)

    def add(self, batch: pa.RecordBatch, times: Array) -> None:
        first_us, last_us = int(times.min()), int(times.max())
        self._first_us = min(self._first_us, first_us) if self._count else first_us
        self._last_us = max(self._last_us, last_us) if self._count else last_us
        self._count += batch.num_rows
        self._rows.append(batch)
        self.pending += batch.nbytes

    def flush(self) -> int:
        """Write a row group; return the number of bytes no longer buffered."""
        written, self.pending = self.pending, 0
        is_large = any(batch.nbytes > LARGE_BYTES for batch in self._rows)
        if self._rows:
            table = pa.Table.from_batches(self._rows)
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            del table
        self._rows = []
        if is_large or _resident_bytes() > RESIDENT_BYTES_MAX:
            pa.default_memory_pool().release_unused()
        return written

    def finish(self, final: str, topic: str) -> StagedFile:
        """Complete the file, but not durably yet."""
        self.flush()
        self.close()
        size = self._path.stat().st_size
        times = self._first_us, self._last_us
        return StagedFile(str(self._path), final, self._count, size, *times, topic)

    def close(self) -> None:
        self._writer.close()


class DeadFile:
    """The dead-letter file of a range: bodies without a row. Created at the first such body."""

    def __init__(self, staging: Path, part: Range, run: int) -> None:
        self._path = staging / f"{uuid.uuid4().hex}.dead.parquet"
        self._part = part
        self._run = run
        self._rows: list[dict[str, object]] = []
        self._pending = 0
        self._writer: parquet.ParquetWriter | None = None
        self.count = 0
        self._bodies = 0

    def add(self, bad: BadBody) -> None:
        """Add a body with the reason."""
        self.count += bad.count
        self._bodies += 1
        self._pending += len(bad.body)
        self._rows.append(
            {
                "topic": self._part.topic,
                "partition": self._part.index,
                "offset": bad.offset,
                "count": bad.count,
                "bodyFormat": bad.body_format,
                "reason": bad.reason,
                "body": bad.body,
            }
        )
        if self._pending >= DEAD_BYTES_MAX:
            self._flush()

    def finish(self) -> StagedFile | None:
        """Return the durable file, None if nothing was set aside."""
        self._flush()
        self.close()
        if not self._bodies:
            return None
        sync_file(self._path)
        final = dead_letter_path(self._run, self._part)
        size = self._path.stat().st_size
        return StagedFile(str(self._path), final, self._bodies, size, 0, 0, self._part.topic)

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, DEAD_LETTER_SCHEMA)
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=DEAD_LETTER_SCHEMA))
        self._rows, self._pending = [], 0

    def close(self) -> None:
        """Close the file in its present state."""
        if self._writer is not None:
            self._writer.close()


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def _times_us(batch: pa.RecordBatch, column: str) -> Array:
    """Return the times of `column`, which decides the folder, or of `timestamp` as a fallback."""
    times = batch[column].cast(pa.int64())
    if times.null_count:
        times = pa.compute.coalesce(times, batch["timestamp"].cast(pa.int64()))
    array: Array = times.to_numpy(zero_copy_only=False)
    return array
