"""Prints batches and records for `braidlog log dump`: lines for people, JSON for programs.

Bytes of users are never mangled: UTF-8 is printed as text, other bytes as base64 with a mark beside
them (as in PIP-64's messages). For people, long text is cut and terminal control characters are
escaped.
"""

from __future__ import annotations

import base64
import json
import os
from contextlib import closing
from typing import Any

from braidlog.broker.cli.message_text import cell, head, line, time_text
from braidlog.broker.cli.output import Output
from braidlog.storage.formats.record import Header, HeaderKind, Record
from braidlog.storage.formats.registry import format_name
from braidlog.storage.log.folder_reader import PartitionFolder
from braidlog.storage.tools.dump import (
    DumpedBatch,
    PartitionDump,
    Unreadable,
    flag_names,
)
from braidlog.storage.tools.lock_holder import lock_holder

Json = dict[str, Any]

# Characters of a key or value in a table: as many as fit beside the other columns.
CELL_MAX = 60

BATCH_COLUMNS = (
    ("offsets", 21),
    ("records", 7),
    ("format", 7),
    ("appended", 26),
    ("bytes", 9),
    ("durable", 10),
    ("file and position", 36),
    ("flags", 0),
)
RECORD_COLUMNS = (("offset", 10), ("published or appended", 26), ("key", 20), ("value", 0))


class Printer:
    """Prints partitions in turn, up to a number of lines; None: all."""

    def __init__(
        self, data_dir: str | os.PathLike[str], *, records: bool, output: Output, left: int | None
    ) -> None:
        self._running = lock_holder(os.fspath(data_dir)) != 0
        self._records = records
        self._output = output
        self._before = "[\n"  # The text before the next row of a JSON array.
        self._left = left

    def partition(self, part: PartitionFolder, from_offset: int) -> None:
        """Print a partition. Raises FileGone, BrokenPipeError."""
        name = f"{part.topic}/{part.index}"
        if self._output == "table":
            columns = RECORD_COLUMNS if self._records else BATCH_COLUMNS
            print(f"{name} (partition {part.partition_id})\n{head(columns)}")
        with closing(PartitionDump(part, running=self._running)) as reading:
            items = reading.records(from_offset) if self._records else reading.batches(from_offset)
            for item in items:
                if self._left == 0:
                    return
                self._print(name, item)
                self._left = None if self._left is None else self._left - 1

    def end(self) -> None:
        """Complete the output."""
        if self._output == "json":
            print("[]" if self._before == "[\n" else "\n]")

    def _print(self, name: str, item: Record | DumpedBatch | Unreadable) -> None:
        if self._output == "table":
            print(self._line(item))
        elif self._output == "ndjson":
            print(self._json_line(name, item))
        else:
            print(self._before + self._json_line(name, item), end="")
            self._before = ",\n"

    def _json_line(self, name: str, item: Record | DumpedBatch | Unreadable) -> str:
        if isinstance(item, Unreadable):
            row = unreadable_json(name, item)
        elif isinstance(item, DumpedBatch):
            row = batch_json(name, item)
        else:
            row = record_json(name, item)
        return json.dumps(row)

    def _line(self, item: Record | DumpedBatch | Unreadable) -> str:
        if isinstance(item, Unreadable):
            place = f"{item.path} at byte {item.file_pos}"
            offsets = offsets_text(item.offset, item.next_offset)
            return f"{offsets}: cannot be read, {item.reason} ({place})"
        if isinstance(item, DumpedBatch):
            return batch_line(item)
        return record_line(item)


def offsets_text(offset: int, next_offset: int | None) -> str:
    """Return a half-open range of offsets as text for people."""
    if next_offset is None or next_offset <= offset:
        return f"from offset {offset} on"
    if next_offset == offset + 1:
        return f"offset {offset}"
    return f"offsets {offset} to {next_offset - 1}"


def batch_json(partition: str, batch: DumpedBatch) -> Json:
    """Return all fields of a batch header, and the place of the batch."""
    header = batch.header
    return {
        "partition": partition,
        "base_offset": header.base_offset,
        "next_offset": header.next_offset,
        "records": header.record_count,
        "format": format_name(header.body_format),
        "format_version": header.body_version,
        "flags": flag_names(header.flags),
        "first_publish_us": header.first_publish_us,
        "max_publish_us": header.max_publish_us,
        "append_us": header.append_us,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "first_sequence": header.first_sequence,
        "last_sequence": header.last_sequence,
        "owner_epoch": header.owner_epoch,
        "positions_bytes": header.positions_bytes,
        "body_bytes": header.body_bytes,
        "stored_bytes": header.stored_bytes,
        "durable_offset": header.durable_offset,
        "file": batch.path,
        "position": batch.file_pos,
    }


def record_json(partition: str, record: Record) -> Json:
    """Return all fields of a record; absent fields are null."""
    chunk = record.chunk
    return {
        "partition": partition,
        "offset": record.offset,
        "append_us": record.append_us,
        "publish_us": record.publish_us,
        "event_us": record.event_us,
        "deliver_at_us": record.deliver_at_us,
        **encoded("key", record.key),
        **encoded("value", record.value, mark="encoding"),
        "headers": [header_json(header) for header in record.headers],
        **encoded("ordering_key", record.ordering_key),
        **encoded("producer_name", record.producer_name),
        "sequence_id": record.sequence_id,
        "message_id": str(record.message_id) if record.message_id else None,
        **encoded("schema_version", record.schema_version),
        "chunk": chunk
        and {
            **encoded("uuid", chunk.uuid),
            "chunk_id": chunk.chunk_id,
            "chunk_count": chunk.chunk_count,
            "total_bytes": chunk.total_bytes,
        },
    }


def header_json(header: Header) -> Json:
    """Return a header: its kind by name, and its bytes."""
    kind = HeaderKind(header.kind).name.lower() if header.kind in list(HeaderKind) else header.kind
    name, value = encoded("name", header.name), encoded("value", header.value, mark="encoding")
    return {**name, "kind": kind, **value}


def unreadable_json(partition: str, hole: Unreadable) -> Json:
    """Return a range of offsets that cannot be read."""
    return {
        "partition": partition,
        "unreadable": hole.reason,
        "base_offset": hole.offset,
        "next_offset": hole.next_offset,
        "file": hole.path,
        "position": hole.file_pos,
    }


def encoded(name: str, data: bytes | None, *, mark: str = "") -> Json:
    """Return bytes as text, or as base64 with the mark `NAME_encoding` if they are not UTF-8.

    A value's mark is `encoding`, always present beside a value.
    """
    if data is None:
        return {name: None}
    try:
        text, encoding = data.decode(), "utf8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(data).decode(), "base64"
    if mark:
        return {name: text, mark: encoding}
    return {name: text} if encoding == "utf8" else {name: text, f"{name}_encoding": encoding}


def batch_line(batch: DumpedBatch) -> str:
    """Return a batch as a line of a table."""
    header = batch.header
    return line(
        BATCH_COLUMNS,
        f"{header.base_offset}-{header.next_offset - 1}",
        str(header.record_count),
        format_name(header.body_format),
        time_text(header.append_us),
        str(header.stored_bytes),
        str(header.durable_offset),
        f"{os.path.basename(batch.path)} {batch.file_pos}",
        ",".join(flag_names(header.flags)),
    )


def record_line(record: Record) -> str:
    """Return a record as a line of a table."""
    time_us = record.append_us if record.publish_us is None else record.publish_us
    key, value = cell(record.key, CELL_MAX), cell(record.value, CELL_MAX)
    return line(RECORD_COLUMNS, str(record.offset), time_text(time_us), key, value)
