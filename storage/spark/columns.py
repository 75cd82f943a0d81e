"""Stored batches to Arrow columns, through the codecs. Knows bodies and Arrow, no Spark or file."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from storage.codecs.record import Header, Record
from storage.spark.schema import FILE_SCHEMA, HEADERS, SET_BY_PRODUCER, SET_ON_APPEND


def to_arrow(
    rows: Sequence[tuple[str, Record]], partition_id: int, partition: int
) -> pa.RecordBatch:
    """(protocol, record) pairs as one RecordBatch of FILE_SCHEMA."""
    columns = [
        _column(field, _COLUMNS[field.name](rows, partition_id, partition)) for field in FILE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA)


def timestamp_us(record: Record) -> int:
    """When the producer says it was published, else when it was appended."""
    return record.append_us if record.publish_us is None else record.publish_us


Rows = Sequence[tuple[str, Record]]


def _column(field: pa.Field, values: Iterable[Any]) -> pa.Array:
    if field.name == "headers":
        return _headers_column(values)
    return pa.array(list(values), type=field.type)


def _headers_column(values: Iterable[Sequence[Header]]) -> pa.Array:
    """Built from flat lists: an object per header only where there are any."""
    names: list[str] = []
    contents: list[bytes] = []
    ends = [0]
    for headers in values:
        for header in headers:
            names.append(_text(header.name))
            contents.append(header.value)
        ends.append(len(names))
    items = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(contents, pa.binary())],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=HEADERS)


def _text(value: bytes) -> str:
    """Names are bytes in the log, text in Parquet; what is not UTF-8 keeps its bytes as \\xNN."""
    return value.decode(errors="backslashreplace")


def _message_id(protocol: str, record: Record, partition_id: int, partition: int) -> str | None:
    """Pulsar's ledger:entry:partition form for Pulsar, the 128-bit id in hex where there is one."""
    if record.message_id:
        return f"{record.message_id:032x}"
    return f"{partition_id}:{record.offset}:{partition}" if protocol == "pulsar" else None


_COLUMNS: dict[str, Callable[[Rows, int, int], Iterable[Any]]] = {
    "key": lambda rows, *_: (r.key for _, r in rows),
    "value": lambda rows, *_: (r.value for _, r in rows),
    "partition": lambda rows, _, partition: [partition] * len(rows),
    "offset": lambda rows, *_: (r.offset for _, r in rows),
    "timestamp": lambda rows, *_: (timestamp_us(r) for _, r in rows),
    "timestampType": lambda rows, *_: (
        SET_ON_APPEND if r.publish_us is None else SET_BY_PRODUCER for _, r in rows
    ),
    "headers": lambda rows, *_: (r.headers for _, r in rows),
    "protocol": lambda rows, *_: (protocol for protocol, _ in rows),
    "eventTime": lambda rows, *_: (r.event_us for _, r in rows),
    "appendTime": lambda rows, *_: (r.append_us for _, r in rows),
    "messageId": lambda rows, partition_id, partition: (
        _message_id(protocol, r, partition_id, partition) for protocol, r in rows
    ),
    "producerName": lambda rows, *_: (
        None if r.producer_name is None else _text(r.producer_name) for _, r in rows
    ),
    "sequenceId": lambda rows, *_: (r.sequence_id for _, r in rows),
    "schemaVersion": lambda rows, *_: (r.schema_version for _, r in rows),
}
